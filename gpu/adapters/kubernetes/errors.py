"""Turns what the API server or the network says into the port's few errors.

Texts name what was asked and repeat the API server's own sentence, never a header, a body that is
not Kubernetes' (a proxy's page may hold anything) or the text of a credential plugin.
"""

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from gpu.ports import (
    AlreadyExistsError,
    BlockedError,
    ClusterError,
    ConflictError,
    GoneError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)

_KINDS: dict[int, type[ClusterError]] = {
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
}
_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
    (ReadTimeoutError, "no answer in time"),
    (NameResolutionError, "its name does not resolve"),
    (NewConnectionError, "nothing listens there"),
    (ConnectTimeoutError, "no connection in time"),
    (SSLError, "its certificate is not trusted"),
    (ProtocolError, "the connection broke"),
    (ConfigException, "our credentials for it cannot be had"),
    (ApiException, "no secure connection"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back besides success: the HTTP status and, if it is one, Kubernetes' Status."""

    code: int
    reason: str = ""
    message: str = ""
    causes: frozenset[str] = field(default_factory=frozenset)
    retry_after_s: int | None = None

    @classmethod
    def from_body(cls, code: int, body: bytes, retry_after: str | None = None) -> "Answer":
        """Read an HTTP answer; anything but a Status leaves only the code."""
        try:
            status = json.loads(body)
        except ValueError:
            status = None
        wait_s = int(retry_after) if retry_after and retry_after.isdecimal() else None
        return cls.from_status(code, status, wait_s)

    @classmethod
    def from_status(cls, code: int, status: Any, retry_after_s: int | None = None) -> "Answer":  # noqa: ANN401  # JSON edge
        """Read a Status object, as a body or within a watch."""
        if not isinstance(status, dict) or status.get("kind") != "Status":
            return cls(code, retry_after_s=retry_after_s)
        details = status.get("details") or {}
        return cls(
            code=int(status.get("code") or code),
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or ""),
            causes=frozenset(cause.get("reason", "") for cause in details.get("causes") or ()),
            retry_after_s=details.get("retryAfterSeconds") or retry_after_s,
        )


def refusal(asked: str, answer: Answer) -> ClusterError:
    """Return the port's error for an answer; `asked` says what for, such as `read Pod a/b`."""
    text = f"Cannot {asked}: {_sentence(answer)}"
    kind = _kind(answer)
    if kind is UnreachableError and answer.retry_after_s:
        text = f"{text} (try again in {answer.retry_after_s} s)"
        return UnreachableError(text, retry_after_s=answer.retry_after_s)
    return kind(text)


def _kind(answer: Answer) -> type[ClusterError]:
    if answer.code == HTTPStatus.CONFLICT and answer.reason == "AlreadyExists":
        return AlreadyExistsError
    if answer.code in _KINDS:
        return _KINDS[answer.code]
    is_ours = HTTPStatus.BAD_REQUEST <= answer.code < HTTPStatus.TOO_MANY_REQUESTS
    return RefusedError if is_ours else UnreachableError


def eviction_refusal(asked: str, answer: Answer) -> ClusterError:
    """Return the error for an eviction; a disruption budget's 429 is no overload."""
    is_budget = answer.code == HTTPStatus.TOO_MANY_REQUESTS and (
        "DisruptionBudget" in answer.causes or "disruption budget" in answer.message
    )
    # Two budgets over one Pod are answered with 500, and no waiting will help.
    if is_budget or "PodDisruptionBudget" in answer.message:
        return BlockedError(f"Cannot {asked}: {answer.message}")
    return refusal(asked, answer)


def log_refusal(asked: str, answer: Answer) -> ClusterError:
    """Return the error for a log; a container that has not started yet is asked again later."""
    # The last one is the kubelet's answer between the container's start and its first status.
    not_yet = ("is waiting to start", "does not have a host assigned", "is not available")
    if answer.code == HTTPStatus.BAD_REQUEST and any(words in answer.message for words in not_yet):
        return UnreachableError(f"Cannot {asked}: {answer.message}")
    return refusal(asked, answer)


def silence(asked: str, server: str, error: Exception) -> UnreachableError:
    """Return the error for a call that brought no usable answer at all."""
    cause: BaseException | None = error
    if isinstance(error, MaxRetryError):
        cause = error.reason
    for kind, sentence in _SENTENCES:
        if isinstance(cause, kind):
            return UnreachableError(f"Cannot {asked}: {server}: {sentence}")
    return UnreachableError(f"Cannot {asked}: {server} does not answer ({type(cause).__name__})")


def _sentence(answer: Answer) -> str:
    if answer.code == HTTPStatus.UNAUTHORIZED:
        return "the API server does not accept our credentials"
    if answer.message:
        return answer.message
    try:
        return f"the API server answers {answer.code} {HTTPStatus(answer.code).phrase}"
    except ValueError:
        return f"the API server answers {answer.code}"
