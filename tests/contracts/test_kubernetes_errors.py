"""What the Kubernetes adapter makes of every answer that is not a plain success.

A local HTTP server plays the API server, so that real bytes go through the real client: each
refusal and each silence becomes one of the port's errors, in words that hold no secret.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kubernetes.client import Configuration
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from gpu.adapters.kubernetes import KubernetesCluster, connection
from gpu.ports import (
    CONFIG_MAP,
    NODE,
    POD,
    AlreadyExistsError,
    BlockedError,
    Cluster,
    ClusterError,
    ConflictError,
    GoneError,
    NotFoundError,
    RefusedError,
    Scope,
    UnreachableError,
    WatchEvent,
)
from tests.cluster.processes import wait_until

TOKEN = "s3cret-t0ken"  # noqa: S105
NODE_PATH = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/team/pods"


@pytest.fixture(scope="session")
def httpserver_listen_address() -> tuple[str, int]:
    return ("127.0.0.1", 0)


@pytest.fixture
def server(httpserver: HTTPServer) -> HTTPServer:
    return httpserver


@pytest.fixture
def cluster(server: HTTPServer) -> KubernetesCluster:
    def configure() -> Configuration:
        configuration = Configuration(host=f"http://127.0.0.1:{server.port}")
        configuration.api_key = {"BearerToken": f"Bearer {TOKEN}"}
        return configuration

    return KubernetesCluster(configure)


def status(code: int, reason: str, message: str, **details: Any) -> Response:  # noqa: ANN401
    """Return Kubernetes' own form of a refusal."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    body |= {"reason": reason, "message": message, "details": details}
    return Response(json.dumps(body), status=code, content_type="application/json")


def garbage(code: int) -> Response:
    """Return what a proxy in between might say, with a secret in it."""
    return Response(f"<html>Authorization: Bearer {TOKEN}</html>", status=code)


def cut() -> Response:
    """Return the beginning of a longer answer, after which the connection closes."""
    response = Response('{"type":"ADDED","object":{}}\n')
    response.headers["Content-Length"] = "1000"
    return response


def answer(server: HTTPServer, path: str, response: Response, method: str = "GET") -> None:
    server.expect_request(path, method=method).respond_with_response(response)


REFUSALS: Mapping[str, tuple[Response, type[ClusterError], str]] = {
    "400": (status(400, "BadRequest", "what is this"), RefusedError, "what is this"),
    "401": (status(401, "Unauthorized", "Unauthorized"), RefusedError, "credentials"),
    "403": (status(403, "Forbidden", "nodes is forbidden"), RefusedError, "nodes is forbidden"),
    "404": (status(404, "NotFound", 'nodes "n1" not found'), NotFoundError, 'nodes "n1" not found'),
    "409": (status(409, "Conflict", "object has been modified"), ConflictError, "modified"),
    "410": (status(410, "Expired", "too old"), GoneError, "too old"),
    "422": (status(422, "Invalid", "spec.x: Invalid value"), RefusedError, "spec.x: Invalid value"),
    "429": (
        status(429, "TooManyRequests", "too many requests", retryAfterSeconds=7),
        UnreachableError,
        "try again in 7 s",
    ),
    "500": (status(500, "InternalError", "etcd is gone"), UnreachableError, "etcd is gone"),
    "503": (status(503, "ServiceUnavailable", "starting"), UnreachableError, "starting"),
    "504": (status(504, "Timeout", "took too long"), UnreachableError, "took too long"),
    "garbage with 200": (garbage(200), UnreachableError, "something other than JSON"),
    "a list with 200": (Response("[1]", status=200), UnreachableError, "other than JSON"),
    "garbage with 403": (garbage(403), RefusedError, "403 Forbidden"),
    "garbage with 404": (garbage(404), NotFoundError, "404 Not Found"),
    "garbage with 502": (garbage(502), UnreachableError, "502 Bad Gateway"),
    "an unknown code": (garbage(599), UnreachableError, "599"),
    "a redirect": (
        Response("", status=302, headers={"Location": "http://127.0.0.1:1/"}),
        UnreachableError,
        "Cannot read Node n1",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_refusal_becomes_the_ports_error(
    server: HTTPServer, cluster: Cluster, case: tuple[Response, type[ClusterError], str]
) -> None:
    response, kind, words = case
    answer(server, NODE_PATH, response)
    with pytest.raises(ClusterError) as refusal:
        cluster.read(NODE, "n1")
    assert type(refusal.value) is kind
    assert str(refusal.value).startswith("Cannot read Node n1")
    assert words in str(refusal.value)
    assert TOKEN not in str(refusal.value)


def test_token_is_sent_and_our_name(server: HTTPServer, cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "slicedesk"}
    server.expect_request(NODE_PATH, headers=headers).respond_with_json({"kind": "Node"})
    assert cluster.read(NODE, "n1") == {"kind": "Node"}


def test_retry_after_header_is_told(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, NODE_PATH, Response("", status=429, headers={"Retry-After": "3"}))
    with pytest.raises(UnreachableError, match="try again in 3 s") as refusal:
        cluster.read(NODE, "n1")
    assert refusal.value.retry_after_s == 3


def test_silent_server_is_unreachable(
    server: HTTPServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.2)
    released = threading.Event()

    def wait(_: Request) -> Response:
        released.wait(5)
        return Response("{}")

    server.expect_request(NODE_PATH).respond_with_handler(wait)
    with pytest.raises(UnreachableError, match="no answer in time") as silence:
        cluster.read(NODE, "n1")
    released.set()
    wait_until(lambda: len(server.log) == 1, "the late answer", timeout_s=5)  # before other tests
    assert silence.value.__cause__ is not None


def test_closed_port_is_unreachable() -> None:
    cluster = KubernetesCluster(lambda: Configuration(host="http://127.0.0.1:1"))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1: nothing listens there"):
        cluster.version()


def test_nothing_is_sent_twice(server: HTTPServer, cluster: Cluster) -> None:
    server.expect_request(PODS, method="POST").respond_with_response(Response("", status=500))
    with pytest.raises(UnreachableError):
        cluster.create(_pod())
    assert len(server.log) == 1


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("AlreadyExists", AlreadyExistsError), ("Conflict", ConflictError)],
    ids=["taken", "changed"],
)
def test_conflict_of_a_create(
    server: HTTPServer, cluster: Cluster, reason: str, kind: type[ClusterError]
) -> None:
    answer(server, PODS, status(409, reason, "no"), "POST")
    with pytest.raises(ConflictError) as refusal:
        cluster.create(_pod())
    assert type(refusal.value) is kind


def test_delete_of_nothing_is_done(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, f"{PODS}/p", status(404, "NotFound", "no"), "DELETE")
    cluster.delete(POD, "p", "team", grace_s=0)
    [(request, _)] = server.log
    assert request.get_json() == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }


EVICTIONS: Mapping[str, tuple[Response, type[ClusterError]]] = {
    "budget": (
        status(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            causes=[{"reason": "DisruptionBudget", "message": "needs 1 healthy Pod"}],
        ),
        BlockedError,
    ),
    "overload": (status(429, "TooManyRequests", "too many requests"), UnreachableError),
    "two budgets": (
        status(500, "", "This pod has more than one PodDisruptionBudget, which is not supported"),
        BlockedError,
    ),
    "broken": (status(500, "InternalError", "etcd is gone"), UnreachableError),
    "forbidden": (status(403, "Forbidden", "pods/eviction is forbidden"), RefusedError),
}


@pytest.mark.parametrize("case", EVICTIONS.values(), ids=EVICTIONS.keys())
def test_refused_eviction(
    server: HTTPServer, cluster: Cluster, case: tuple[Response, type[ClusterError]]
) -> None:
    response, kind = case
    answer(server, f"{PODS}/p/eviction", response, "POST")
    with pytest.raises(ClusterError) as refusal:
        cluster.evict("p", "team")
    assert type(refusal.value) is kind


@pytest.mark.parametrize(
    "words",
    ["is waiting to start: ContainerCreating", "does not have a host assigned", "is not available"],
)
def test_log_of_a_container_that_has_not_started(
    server: HTTPServer, cluster: Cluster, words: str
) -> None:
    sentence = f'container "main" in pod "p" {words}'
    answer(server, f"{PODS}/p/log", status(400, "BadRequest", sentence))
    with pytest.raises(UnreachableError, match=words):
        cluster.read_log("p", "team")


def test_log_of_a_pod_without_a_node(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, f"{PODS}/p/log", Response("", status=200))
    server.expect_request(f"{PODS}/p").respond_with_json({"kind": "Pod", "spec": {}})
    with pytest.raises(UnreachableError, match="waits for a node"):
        cluster.read_log("p", "team")


def test_log_that_cannot_be_asked_for(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, f"{PODS}/p/log", status(400, "BadRequest", "a container name must be given"))
    with pytest.raises(RefusedError, match="container name"):
        cluster.read_log("p", "team")


def test_log_is_text_whatever_its_bytes(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, f"{PODS}/p/log", Response(b"caf\xe9\n", status=200))
    assert cluster.read_log("p", "team") == "caf\N{REPLACEMENT CHARACTER}\n"


def test_list_reads_every_page(server: HTTPServer, cluster: Cluster) -> None:
    first = {"metadata": {"continue": "more", "resourceVersion": "5"}, "items": [_named("a")]}
    last = {"metadata": {"resourceVersion": "5"}, "items": [_named("b")]}
    query = {"labelSelector": "x=y", "limit": "500"}
    server.expect_ordered_request(PODS, query_string=query).respond_with_json(first)
    query = {**query, "continue": "more"}
    server.expect_ordered_request(PODS, query_string=query).respond_with_json(last)
    listing = cluster.list(POD, Scope("team", "x=y"))
    head = {"apiVersion": "v1", "kind": "Pod"}
    assert listing.items == ({**head, **_named("a")}, {**head, **_named("b")})
    assert listing.resource_version == "5"


def test_list_begins_again_when_its_first_page_is_too_old(
    server: HTTPServer, cluster: Cluster
) -> None:
    half = {"metadata": {"continue": "more", "resourceVersion": "5"}, "items": [_named("a")]}
    whole = {"metadata": {"resourceVersion": "9"}, "items": [_named("b")]}
    server.expect_ordered_request(PODS).respond_with_json(half)
    server.expect_ordered_request(PODS).respond_with_response(status(410, "Expired", "too old"))
    server.expect_ordered_request(PODS).respond_with_json(whole)
    listing = cluster.list(POD, Scope("team"))
    assert [item["metadata"]["name"] for item in listing.items] == ["b"]
    assert listing.resource_version == "9"


def test_list_that_never_ends_is_unreachable(server: HTTPServer, cluster: Cluster) -> None:
    answer(server, PODS, status(410, "Expired", "too old"))
    with pytest.raises(UnreachableError, match="changes faster"):
        cluster.list(POD, Scope("team"))


def test_watch_asks_for_bookmarks_and_an_end(server: HTTPServer, cluster: Cluster) -> None:
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "2",
        "fieldSelector": "spec.nodeName=n1",
    }
    events = _lines({"type": "ADDED", "object": _named("a")}, _bookmark("7"))
    server.expect_request("/api/v1/pods", query_string=query).respond_with_data(events)
    scope = Scope(field_selector="spec.nodeName=n1")
    assert list(cluster.watch(POD, scope, "5", timeout_s=1.5)) == [
        WatchEvent("ADDED", _named("a")),  # type: ignore[arg-type]  # equal to the member
        WatchEvent("BOOKMARK", _bookmark("7")["object"]),  # type: ignore[arg-type]  # as above
    ]


WATCHES: Mapping[str, tuple[Response, type[ClusterError]]] = {
    "too old, at once": (status(410, "Expired", "too old resource version"), GoneError),
    "too old, told within": (
        Response(
            '{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n',
        ),
        GoneError,
    ),
    "broken, told within": (
        Response('{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n'),
        UnreachableError,
    ),
    "forbidden": (status(403, "Forbidden", "pods is forbidden"), RefusedError),
    "cut in a line": (Response('{"type":"ADDED","object":{"kind"'), UnreachableError),
    "garbage": (garbage(200), UnreachableError),
    "no event": (Response('{"kind":"PodList"}\n'), UnreachableError),
    "cut by the network": (cut(), UnreachableError),
}


@pytest.mark.parametrize("case", WATCHES.values(), ids=WATCHES.keys())
def test_watch_that_ends_badly(
    server: HTTPServer, cluster: Cluster, case: tuple[Response, type[ClusterError]]
) -> None:
    response, kind = case
    answer(server, "/api/v1/pods", response)
    with pytest.raises(ClusterError) as refusal:
        list(cluster.watch(POD, Scope(), "5", timeout_s=1))
    assert type(refusal.value) is kind
    assert TOKEN not in str(refusal.value)


def test_watch_that_nobody_reads_on_lets_go(server: HTTPServer, cluster: Cluster) -> None:
    events = _lines(*({"type": "ADDED", "object": _named(f"p{i}")} for i in range(3)))
    server.expect_request("/api/v1/pods").respond_with_data(events)
    watch = cluster.watch(POD, Scope(), "5", timeout_s=1)
    assert next(watch).object == _named("p0")
    assert isinstance(watch, Iterator)
    watch.close()  # type: ignore[attr-defined]  # a generator
    assert len(list(cluster.watch(POD, Scope(), "5", timeout_s=1))) == 3


def test_writes_are_ours_and_strict(server: HTTPServer, cluster: Cluster) -> None:
    path = "/api/v1/namespaces/team/configmaps/a"
    server.expect_request(path, method="PATCH").respond_with_json({"kind": "ConfigMap"})
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    manifest["metadata"] = {"name": "a", "namespace": "team"}
    cluster.apply(manifest, dry_run=True)
    cluster.patch(CONFIG_MAP, "a", {"data": {"x": None}}, "team")
    (applied, _), (patched, _) = server.log
    ours = {"fieldManager": "slicedesk", "fieldValidation": "Strict"}
    assert applied.args.to_dict() == {**ours, "dryRun": "All"}
    assert (applied.content_type, applied.get_json(force=True)) == (
        "application/apply-patch+yaml",
        manifest,
    )
    assert patched.args.to_dict() == ours
    assert patched.content_type == "application/merge-patch+json"
    assert patched.get_json(force=True) == {"data": {"x": None}}


def _pod() -> dict[str, Any]:
    meta = {"name": "p", "namespace": "team"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}}


def _named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def _bookmark(version: str) -> dict[str, Any]:
    meta = {"resourceVersion": version}
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": meta}}


def _lines(*events: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)
