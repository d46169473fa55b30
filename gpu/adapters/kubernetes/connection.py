"""One connection pool to one API server: configuration, credentials and TLS by the official client.

Bodies go out and come in as raw JSON; the client's typed models are slow and lose what they do not
know.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import orjson
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import OpenApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import HTTPError

from gpu.adapters.kubernetes.errors import Answer, refusal, silence
from gpu.ports import ClusterError, Endpoint, UnreachableError

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
_WATCH_SLACK_S = 10.0
# A network that is lost without a word is noticed after 14 s, also by a watch that is quiet.
_KEEP_ALIVE = {"idle": 5, "interval": 3, "count": 3}
_POOL_SIZE = 16
_CHUNK_BYTES = 65536
# One more try when nothing was sent yet; never twice what the server may have carried out.
_RETRIES = Retry(
    total=1, connect=1, read=0, redirect=0, status=0, other=0, respect_retry_after_header=False
)

type Refusal = Callable[[str, Answer], ClusterError]


def load_configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """Return how to reach the API server.

    A kubeconfig path wins; else the Pod's own service account when there is one; else the user's
    default kubeconfig. `ClusterError` says which of them does not work.
    """
    configuration = Configuration()
    is_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig and not context
    source = (
        "the Pod's service account" if is_pod else f"the kubeconfig {kubeconfig or '(default)'}"
    )
    if kubeconfig and not any(Path(part).is_file() for part in kubeconfig.split(os.pathsep)):
        msg = f"KUBECONFIG names {kubeconfig}, which is not a file"
        raise ClusterError(msg)
    try:
        if is_pod:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # theirs
        else:
            load_kube_config(  # type: ignore[no-untyped-call]  # theirs
                config_file=kubeconfig or None,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
    except ConfigException as error:
        msg = f"Cannot use {source}: {error}"
        raise ClusterError(msg) from error
    except Exception as error:  # noqa: BLE001  # their loader raises whatever it trips over
        # A parser's text may quote lines of the file, and so a token: it is not passed on.
        msg = f"Cannot use {source}: it is not valid ({type(error).__name__})"
        raise ClusterError(msg) from None
    return configuration


@dataclass(frozen=True, slots=True)
class Call:
    """One request: `asked` says it in words for errors, such as `read Pod team-a/train`."""

    asked: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"
    refusal: Refusal = refusal


class Connection:
    """Sends calls; safe to share between threads."""

    def __init__(self, configuration: Configuration) -> None:
        configuration.retries = _RETRIES
        configuration.connection_pool_maxsize = _POOL_SIZE
        configuration.socket_options = tcp_keepalive_socket_options(**_KEEP_ALIVE)
        self._server: str = configuration.host
        self._certificate_authority: str = configuration.ssl_ca_cert or ""
        self._client = ApiClient(configuration)
        self._client.user_agent = "slicedesk"

    def endpoint(self) -> Endpoint:
        """Return the server's address and the authority that it is trusted by."""
        path = self._certificate_authority
        try:
            return Endpoint(self._server, Path(path).read_text() if path else "")
        except OSError as error:
            msg = f"Cannot read the certificate authority {path}: {error.strerror}"
            raise ClusterError(msg) from error

    def send(self, call: Call) -> dict[str, Any]:
        """Return the decoded object that answers a call."""
        body = self.send_text(call)
        try:
            answer = orjson.loads(body)
        except ValueError as error:
            raise self._no_json(call) from error
        if not isinstance(answer, dict):
            raise self._no_json(call)
        return answer

    def send_text(self, call: Call) -> bytes:
        """Return the answer's body as it is."""
        response = self._open(call, READ_TIMEOUT_S)
        return self._read(call, response)

    def stream(self, call: Call, *, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Yield the JSON lines of a watch until the server ends it; broken off is unreachable."""
        query = {**call.query, "timeoutSeconds": str(max(1, math.ceil(timeout_s)))}
        call = Call(call.asked, call.method, call.path, query)
        response = self._open(call, timeout_s + _WATCH_SLACK_S)
        if response.status != HTTPStatus.OK:
            self._read(call, response)  # raises
        try:
            yield from self._lines(call, response)
        finally:
            response.close()

    def _lines(self, call: Call, response: BaseHTTPResponse) -> Iterator[dict[str, Any]]:
        rest = b""
        chunks = response.stream(_CHUNK_BYTES)
        while True:
            try:
                chunk = next(chunks, None)
            except (HTTPError, OSError) as error:
                raise silence(call.asked, self._server, error) from error
            if chunk is None:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                yield self._event(call, line)
        if rest.strip():
            yield self._event(call, rest)

    def _event(self, call: Call, line: bytes) -> dict[str, Any]:
        try:
            event = orjson.loads(line)
        except ValueError as error:
            raise self._no_json(call) from error
        if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
            raise self._no_json(call)
        return event

    def _open(self, call: Call, read_timeout_s: float) -> BaseHTTPResponse:
        try:
            method, url, headers, body, _ = self._client.param_serialize(
                call.method,
                call.path,
                query_params=list(call.query.items()),
                header_params={"Accept": "application/json", "Content-Type": call.content_type},
                body=call.body,
                auth_settings=["BearerToken"],
            )
            answer = self._client.call_api(
                method, url, headers, body, _request_timeout=(CONNECT_TIMEOUT_S, read_timeout_s)
            )
        except (HTTPError, OpenApiException, ConfigException, OSError) as error:
            raise silence(call.asked, self._server, error) from error
        return cast("BaseHTTPResponse", answer.response)

    def _read(self, call: Call, response: BaseHTTPResponse) -> bytes:
        """Return a successful answer's body and give the connection back; raise otherwise."""
        try:
            body = response.data
        except (HTTPError, OSError) as error:
            raise silence(call.asked, self._server, error) from error
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            retry_after = response.headers.get("Retry-After")
            raise call.refusal(call.asked, Answer.from_body(response.status, body, retry_after))
        return body

    def _no_json(self, call: Call) -> UnreachableError:
        msg = f"Cannot {call.asked}: {self._server} answers with something other than JSON"
        return UnreachableError(msg)
