"""The Cluster port over the Kubernetes API."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from typing import override
from urllib.parse import quote

from django.conf import settings
from kubernetes.client import Configuration

from gpu.adapters.kubernetes.connection import Call, Connection, load_configuration
from gpu.adapters.kubernetes.errors import Answer, eviction_refusal, log_refusal, refusal
from gpu.objects import parse_time
from gpu.ports import (
    EVERYTHING,
    FIELD_MANAGER,
    POD,
    SERVICE_ACCOUNT,
    Endpoint,
    EventType,
    GoneError,
    Kind,
    Listing,
    Manifest,
    NotFoundError,
    RefusedError,
    Scope,
    Token,
    UnreachableError,
    WatchEvent,
    kind_of,
)

_PAGE_SIZE = 500
_MOST_RESTARTS = 3
_MOST_LOG_BYTES = 1_048_576
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_NOT_NAMES = ("", ".", "..")
_WRITE = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}


class KubernetesCluster:
    """Talks to one API server; connects at the first call, may be shared between threads."""

    def __init__(self, configure: Callable[[], Configuration]) -> None:
        self._configure = configure

    @classmethod
    def from_settings(cls) -> "KubernetesCluster":
        """Return the cluster that KUBECONFIG and KUBE_CONTEXT name, else the one we run in."""
        return cls.from_kubeconfig(settings.KUBECONFIG, settings.KUBE_CONTEXT)

    @classmethod
    def from_kubeconfig(cls, path: str, context: str = "") -> "KubernetesCluster":
        """Return the cluster of a kubeconfig's context; empty means the defaults."""
        return cls(partial(load_configuration, path, context))

    @cached_property
    def _connection(self) -> Connection:
        return Connection(self._configure())

    def version(self) -> str:
        """Return the server's version, such as `v1.37.2`."""
        answer = self._connection.send(Call("read the server's version", "GET", "/version"))
        return str(answer.get("gitVersion", ""))

    def read(self, kind: Kind, name: str, namespace: str = "") -> Manifest:
        """Return one object; `NotFoundError` when there is none."""
        target = _Target(kind, name, namespace)
        return self._connection.send(Call(f"read {target}", "GET", target.path))

    def list(self, kind: Kind, scope: Scope = EVERYTHING) -> Listing:
        """Return all objects in scope, whatever the server's page size."""
        for _ in range(_MOST_RESTARTS):
            # The list's first page may grow too old while we read on: begin again.
            with suppress(GoneError):
                return self._list(kind, scope)
        msg = f"Cannot list {kind.plural}: the list changes faster than it can be read"
        raise UnreachableError(msg)

    def _list(self, kind: Kind, scope: Scope) -> Listing:
        items: list[Manifest] = []
        query = {**_selectors(scope), "limit": str(_PAGE_SIZE)}
        while True:
            path = _collection(kind, scope.namespace)
            page = self._connection.send(Call(f"list {kind.plural}", "GET", path, query))
            # The items of a list come without the two fields that say what they are.
            head = {"apiVersion": kind.api_version, "kind": kind.name}
            found = page.get("items") or ()
            for item in found:
                item.update(head)
            items.extend(found)
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return Listing(tuple(items), str(meta.get("resourceVersion", "")))
            query["continue"] = meta["continue"]

    def watch(
        self, kind: Kind, scope: Scope, since: str, *, timeout_s: float
    ) -> Iterator[WatchEvent]:
        """Yield changes after `since` until the time-out; `GoneError` when `since` is too old."""
        asked = f"watch {kind.plural}"
        query = {
            **_selectors(scope),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
        }
        call = Call(asked, "GET", _collection(kind, scope.namespace), query)
        for event in self._connection.stream(call, timeout_s=timeout_s):
            if event.get("type") == "ERROR":
                code = HTTPStatus.INTERNAL_SERVER_ERROR
                raise refusal(asked, Answer.from_status(code, event["object"]))
            if event.get("type") in EventType:
                yield WatchEvent(EventType(event["type"]), event["object"])

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object; `AlreadyExistsError` when the name is taken."""
        target = _Target.of(manifest)
        path = _collection(target.kind, target.namespace)
        return self._connection.send(
            Call(f"create {target}", "POST", path, _write_query(dry_run=dry_run), manifest)
        )

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under our field manager; a foreign field is a `ConflictError`."""
        target, query = _Target.of(manifest), _write_query(dry_run=dry_run)
        return self._connection.send(
            Call(f"apply {target}", "PATCH", target.path, query, manifest, _APPLY)
        )

    def patch(self, kind: Kind, name: str, body: Manifest, namespace: str = "") -> Manifest:
        """Merge-patch an object; a stale `metadata.resourceVersion` in it is a `ConflictError`."""
        target, query = _Target(kind, name, namespace), _write_query(dry_run=False)
        return self._connection.send(
            Call(f"change {target}", "PATCH", target.path, query, body, _MERGE)
        )

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None
    ) -> None:
        """Ask for a deletion, of dependants too; an object that is not there is success."""
        target = _Target(kind, name, namespace)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        body = options if grace_s is None else {**options, "gracePeriodSeconds": grace_s}
        with suppress(NotFoundError):
            self._connection.send(Call(f"delete {target}", "DELETE", target.path, body=body))

    def evict(self, pod: str, namespace: str) -> None:
        """Evict by the Eviction API; `BlockedError` while a budget forbids; absent is success."""
        target = _Target(POD, pod, namespace)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        asked, path = f"evict {target}", f"{target.path}/eviction"
        with suppress(NotFoundError):
            self._connection.send(Call(asked, "POST", path, body=body, refusal=eviction_refusal))

    def read_log(self, pod: str, namespace: str) -> str:
        """Return the log of a Pod's only container; `UnreachableError` while it has not started."""
        target, query = _Target(POD, pod, namespace), {"limitBytes": str(_MOST_LOG_BYTES)}
        asked, path = f"read the log of {target}", f"{target.path}/log"
        log = self._connection.send_text(Call(asked, "GET", path, query, refusal=log_refusal))
        # Before a Pod has a node, the API server answers with an empty log, as if it had run.
        if not log and not self.read(POD, pod, namespace)["spec"].get("nodeName"):
            msg = f"Cannot {asked}: it waits for a node"
            raise UnreachableError(msg)
        return log.decode(errors="replace")

    def request_token(self, account: str, namespace: str, *, lifetime_s: int) -> Token:
        """Return a new token of a service account; the server may grant another lifetime."""
        target = _Target(SERVICE_ACCOUNT, account, namespace)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s},
        }
        asked, path = f"get a token of {target}", f"{target.path}/token"
        status = self._connection.send(Call(asked, "POST", path, body=body)).get("status") or {}
        ends_at = parse_time(status.get("expirationTimestamp"))
        if not status.get("token") or ends_at is None:
            msg = f"Cannot {asked}: the API server's answer holds none"
            raise UnreachableError(msg)
        return Token(str(status["token"]), ends_at)

    def endpoint(self) -> Endpoint:
        """Return where we reach the API server ourselves; nothing is asked of it."""
        return self._connection.endpoint()


@dataclass(frozen=True, slots=True)
class _Target:
    """One object by its kind and name, checked so that no name can reach another path."""

    kind: Kind
    name: str
    namespace: str

    def __post_init__(self) -> None:
        if self.name in _NOT_NAMES or (self.kind.is_namespaced and self.namespace in _NOT_NAMES):
            msg = f"{self} is not the name of an object: it needs a name"
            raise RefusedError(f"{msg} and a namespace" if self.kind.is_namespaced else msg)

    @classmethod
    def of(cls, manifest: Manifest) -> "_Target":
        """Return what a manifest names."""
        meta = manifest["metadata"]
        return cls(kind_of(manifest), meta["name"], meta.get("namespace", ""))

    @override
    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.kind.is_namespaced else ""
        return f"{self.kind.name} {where}{self.name}"

    @property
    def path(self) -> str:
        return f"{_collection(self.kind, self.namespace)}/{quote(self.name, safe='')}"


def _collection(kind: Kind, namespace: str) -> str:
    """Return the path of a kind's objects, in one namespace or, when that is empty, in all."""
    root = "/api" if "/" not in kind.api_version else "/apis"
    inside = f"/namespaces/{quote(namespace, safe='')}" if kind.is_namespaced and namespace else ""
    return f"{root}/{kind.api_version}{inside}/{kind.plural}"


def _selectors(scope: Scope) -> dict[str, str]:
    pairs = {"labelSelector": scope.label_selector, "fieldSelector": scope.field_selector}
    return {key: value for key, value in pairs.items() if value}


def _write_query(*, dry_run: bool) -> Mapping[str, str]:
    return {**_WRITE, "dryRun": "All"} if dry_run else _WRITE
