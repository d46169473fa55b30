"""The simulated cluster behind the Cluster port: API calls in, time advanced before each."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gpu.adapters.simulated import admission, budgets, faults, fields, tokens, watching
from gpu.adapters.simulated.deletion import delete_object
from gpu.adapters.simulated.plugin import NodeFiles
from gpu.adapters.simulated.selectors import check_scope, in_scope
from gpu.adapters.simulated.store import HIDDEN, Store, Transaction, hidden, public
from gpu.adapters.simulated.timekeeping import Timekeeper
from gpu.adapters.simulated.world import stamp
from gpu.ports import (
    EVERYTHING,
    FIELD_MANAGER,
    POD,
    SERVICE_ACCOUNT,
    AlreadyExistsError,
    ConflictError,
    Endpoint,
    Kind,
    Listing,
    Manifest,
    NotFoundError,
    Scope,
    Token,
    UnreachableError,
    WatchEvent,
    kind_of,
)

VERSION = "v1.37.2"


class SimulatedCluster:
    """A small, honest Kubernetes in one sqlite file, with GPUs whose driver is simulated too.

    Any number of processes and threads may use it at once; nothing has to run in between. Beside
    the file lie two folders, of the GPUs as their drivers know them and of running scripts.
    `clock` returns seconds since the epoch; `pace` scales every delay, 0 makes all happen at once.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, pace: float = 1.0
    ) -> None:
        self.store = Store(path)
        self.files = NodeFiles(path.with_suffix(".gpus"))
        self.clock = clock
        self._time = Timekeeper(self.store, self.files, clock=clock, pace=pace)

    def version(self) -> str:
        """Return the version that the lab plays."""
        self._time.arrive()
        return VERSION

    def read(self, kind: Kind, name: str, namespace: str = "") -> Manifest:
        """Return one object."""
        self._time.arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.reading() as tx:
            return public(_existing(tx, kind, name, namespace))

    def list(self, kind: Kind, scope: Scope = EVERYTHING) -> Listing:
        """Return all objects in scope."""
        self._time.arrive()
        check_scope(kind.name, scope)
        with self.store.reading() as tx:
            bodies = tx.select(kind, scope.namespace)
            found = tuple(public(body) for body in bodies if in_scope(body, scope))
            return Listing(found, str(tx.versions()[1]))

    def watch(
        self, kind: Kind, scope: Scope, since: str, *, timeout_s: float
    ) -> Iterator[WatchEvent]:
        """Yield changes after `since` until the time-out, and bookmarks when it is quiet."""
        self._time.arrive()
        check_scope(kind.name, scope)
        watch = watching.Watch(self.store, kind, scope, self._time.arrive)
        return watch.events(since, timeout_s=timeout_s)

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object."""
        return self._write(
            manifest,
            lambda tx, body: self._create(tx, body, FIELD_MANAGER),
            dry_run=dry_run,
        )

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under our field manager."""
        return self.apply_as(FIELD_MANAGER, manifest, dry_run=dry_run)

    def apply_as(self, manager: str, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under any field manager, to play somebody else."""
        return self._write(
            manifest, lambda tx, body: self._apply(tx, body, manager), dry_run=dry_run
        )

    def patch(self, kind: Kind, name: str, body: Manifest, namespace: str = "") -> Manifest:
        """Merge-patch an object."""
        self._time.arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.transaction() as tx:
            existing = _existing(tx, kind, name, namespace)
            _check_version(existing, body)
            patched = admission.admit_change(existing, fields.patched(existing, body))
            owners = hidden(patched).setdefault("owners", {})
            owners |= {" ".join(path): FIELD_MANAGER for path, _value in fields.leaves(body)}
            result = public(tx.put(patched))
            tx.wake(self.clock())
        return self._as_it_is_now(kind, result)

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None
    ) -> None:
        """Delete an object and what depends on it; one that is not there is success."""
        self._time.arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.transaction() as tx:
            body = tx.get(kind, name, namespace)
            if body is not None:
                delete_object(self._time.world(tx), body, grace_s)
                tx.wake(self.clock())

    def evict(self, pod: str, namespace: str) -> None:
        """Evict a Pod, unless a disruption budget forbids it just now."""
        self._time.arrive()
        admission.check_identity(POD, pod, namespace)
        with self.store.transaction() as tx:
            body = tx.get(POD, pod, namespace)
            if body is not None:
                budgets.check_eviction(tx, body)
                delete_object(self._time.world(tx), body, None)
                tx.wake(self.clock())

    def read_log(self, pod: str, namespace: str) -> str:
        """Return what a Pod has printed so far."""
        self._time.arrive()
        admission.check_identity(POD, pod, namespace)
        with self.store.reading() as tx:
            body = _existing(tx, POD, pod, namespace)
            log = tx.log_of(body["metadata"]["uid"])
        if body["status"]["phase"] == "Pending":
            msg = f'container "main" in pod "{pod}" is waiting to start: ContainerCreating'
            raise UnreachableError(msg)
        return log or self._time.containers.output(body["metadata"]["uid"])

    def request_token(self, account: str, namespace: str, *, lifetime_s: int) -> Token:
        """Return a token that nothing accepts."""
        self._time.arrive()
        admission.check_identity(SERVICE_ACCOUNT, account, namespace)
        with self.store.reading() as tx:
            now = self.clock()
            return tokens.new_token(tx, account, namespace, lifetime_s=lifetime_s, now=now)

    def endpoint(self) -> Endpoint:
        """Return an address that leads nowhere."""
        return tokens.ENDPOINT

    def set_fault(self, node: str, fault: str, *, on: bool) -> None:
        """Switch a fault on or off, for a node or for the API server (`faults.EVERYWHERE`)."""
        with self.store.transaction() as tx:
            names = faults.switch(tx, node, fault, on=on)
            tx.wake(self.clock())
        self.files.set_faults(node, dict.fromkeys(names, True))

    def faults(self) -> Mapping[str, Sequence[str]]:
        """Return the faults that are on, by node."""
        with self.store.reading() as tx:
            return faults.switched_on(tx)

    def _write(
        self,
        manifest: Manifest,
        write: Callable[[Transaction, Manifest], Manifest],
        *,
        dry_run: bool,
    ) -> Manifest:
        self._time.arrive()
        body = copy.deepcopy(manifest)
        body.pop(HIDDEN, None)
        kind, meta = kind_of(body), body["metadata"]
        admission.check_identity(kind, meta["name"], meta.get("namespace", ""))
        result: Manifest = {}
        try:
            with self.store.transaction() as tx:
                admission.check_namespace(tx, body)
                result = public(write(tx, body))
                tx.wake(self.clock())
                _undo_if(dry_run=dry_run)
        except _DryRunError:
            return result
        return self._as_it_is_now(kind, result)

    def _as_it_is_now(self, kind: Kind, written: Manifest) -> Manifest:
        self._time.arrive()
        meta = written["metadata"]
        with self.store.reading() as tx:
            return public(tx.get(kind, meta["name"], meta.get("namespace", "")) or written)

    def _create(self, tx: Transaction, body: Manifest, manager: str) -> Manifest:
        kind, meta = kind_of(body), body["metadata"]
        if tx.get(kind, meta["name"], meta.get("namespace", "")) is not None:
            msg = f'{kind.plural} "{meta["name"]}" already exists'
            raise AlreadyExistsError(msg)
        owners = {" ".join(path): manager for path, _value in fields.leaves(body)}
        for key in ("uid", "resourceVersion", "deletionTimestamp"):
            meta.pop(key, None)
        meta["creationTimestamp"] = stamp(self.clock())
        body = admission.admit(tx, body)
        hidden(body)["owners"] = owners
        return tx.put(body)

    def _apply(self, tx: Transaction, body: Manifest, manager: str) -> Manifest:
        kind, meta = kind_of(body), body["metadata"]
        existing = tx.get(kind, meta["name"], meta.get("namespace", ""))
        if existing is None:
            return self._create(tx, body, manager)
        _check_version(existing, body)
        owners: dict[str, str] = hidden(existing).get("owners", {})
        result = admission.admit_change(existing, fields.merged(existing, body, owners, manager))
        hidden(result)["owners"] = owners
        return tx.put(result)


class _DryRunError(Exception):
    """Undoes the transaction of a dry run."""


def _undo_if(*, dry_run: bool) -> None:
    if dry_run:
        raise _DryRunError


def _existing(tx: Transaction, kind: Kind, name: str, namespace: str) -> Manifest:
    body = tx.get(kind, name, namespace)
    if body is None:
        msg = f'{kind.plural} "{name}" not found'
        raise NotFoundError(msg)
    return body


def _check_version(existing: Manifest, wanted: Manifest) -> None:
    version = (wanted.get("metadata") or {}).get("resourceVersion")
    if version is not None and version != existing["metadata"]["resourceVersion"]:
        msg = (
            f'{kind_of(existing).plural} "{existing["metadata"]["name"]}": the object has been'
            " modified; please apply your changes to the latest version and try again"
        )
        raise ConflictError(msg)
