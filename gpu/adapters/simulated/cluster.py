"""The simulated cluster behind the Cluster port: API calls in, time advanced before each."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gpu.adapters.simulated import admission, fields, kubelet
from gpu.adapters.simulated.plugin import NodeFiles
from gpu.adapters.simulated.selectors import in_scope, matches_selector
from gpu.adapters.simulated.store import HIDDEN, Store, Transaction, hidden, public
from gpu.adapters.simulated.world import SCRIPT_S, World, stamp
from gpu.ports import (
    EVERYTHING,
    FIELD_MANAGER,
    JOB,
    KINDS,
    NAMESPACE,
    POD,
    POD_DISRUPTION_BUDGET,
    AlreadyExistsError,
    BlockedError,
    ConflictError,
    EventType,
    GoneError,
    Kind,
    Listing,
    Manifest,
    NotFoundError,
    Scope,
    UnreachableError,
    WatchEvent,
    kind_of,
)

VERSION = "v1.37.2"
_WATCH_POLL_S = 0.2
_GRACE_S = 1.0
_MAX_STEPS = 60
_LATER_THAN_EVERYTHING = 1e18  # JSON knows no infinity


class SimulatedCluster:
    """A small, honest Kubernetes in one sqlite file, with GPUs whose driver is simulated too.

    `clock` returns seconds since the epoch; `pace` scales every delay, 0 makes all happen at once.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, pace: float = 1.0
    ) -> None:
        self.store = Store(path)
        self.files = NodeFiles(path.with_suffix(".gpus"))
        self.clock = clock
        self.pace = pace
        self._scratch = path.with_suffix(".run")

    def version(self) -> str:
        """Return the version that the lab plays."""
        self._arrive()
        return VERSION

    def read(self, kind: Kind, name: str, namespace: str = "") -> Manifest:
        """Return one object."""
        self._arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.reading() as tx:
            return public(_existing(tx, kind, name, namespace))

    def list(self, kind: Kind, scope: Scope = EVERYTHING) -> Listing:
        """Return all objects in scope."""
        self._arrive()
        with self.store.reading() as tx:
            bodies = tx.select(kind, scope.namespace)
            found = tuple(public(body) for body in bodies if in_scope(body, scope))
            return Listing(found, str(tx.versions()[1]))

    def watch(
        self, kind: Kind, scope: Scope, since: str, *, timeout_s: float
    ) -> Iterator[WatchEvent]:
        """Yield changes after `since` until the time-out."""
        version = int(since)
        end = time.monotonic() + timeout_s
        while True:
            self._arrive()
            with self.store.reading() as tx:
                oldest, newest = tx.versions()
                if version < oldest:
                    msg = f"too old resource version: {version} ({oldest})"
                    raise GoneError(msg)
                changes = tx.changes_since(kind, version)
            for change in changes:
                event = _event(change.type, change.body, change.before, scope)
                if event is not None:
                    yield event
            version = max(version, newest)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_WATCH_POLL_S, left))

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object."""
        self._arrive()
        return self._write(manifest, self._create, dry_run=dry_run)

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under our field manager."""
        return self.apply_as(FIELD_MANAGER, manifest, dry_run=dry_run)

    def apply_as(self, manager: str, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply under any field manager, to play somebody else."""
        self._arrive()
        return self._write(
            manifest, lambda tx, body: self._apply(tx, body, manager), dry_run=dry_run
        )

    def patch(self, kind: Kind, name: str, body: Manifest, namespace: str = "") -> Manifest:
        """Merge-patch an object."""
        self._arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.transaction() as tx:
            existing = _existing(tx, kind, name, namespace)
            wanted = body.get("metadata", {}).get("resourceVersion")
            if wanted is not None and wanted != existing["metadata"]["resourceVersion"]:
                msg = (
                    f'{kind.plural} "{name}": the object has been modified; please apply your'
                    " changes to the latest version and try again"
                )
                raise ConflictError(msg)
            patched = fields.patched(existing, body)
            owners = hidden(patched).setdefault("owners", {})
            owners |= {" ".join(path): FIELD_MANAGER for path, _value in fields.leaves(body)}
            result = public(tx.put(patched))
            tx.set_fact("due", 0)
        self._arrive()
        with self.store.reading() as tx:
            return public(tx.get(kind, name, namespace) or result)

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None
    ) -> None:
        """Delete an object and what depends on it; one that is not there is success."""
        self._arrive()
        admission.check_identity(kind, name, namespace)
        with self.store.transaction() as tx:
            body = tx.get(kind, name, namespace)
            if body is not None:
                self._delete(tx, kind, body, grace_s)
                tx.set_fact("due", 0)

    def evict(self, pod: str, namespace: str) -> None:
        """Evict a Pod, unless a disruption budget forbids it just now."""
        self._arrive()
        with self.store.transaction() as tx:
            body = tx.get(POD, pod, namespace)
            if body is None:
                return
            if not _may_be_disrupted(tx, body):
                msg = (
                    f"Cannot evict pod {namespace}/{pod} as it would violate the pod's"
                    " disruption budget."
                )
                raise BlockedError(msg)
            self._delete(tx, POD, body, None)
            tx.set_fact("due", 0)

    def read_log(self, pod: str, namespace: str) -> str:
        """Return what a Pod has printed."""
        self._arrive()
        with self.store.reading() as tx:
            body = _existing(tx, POD, pod, namespace)
            if body["status"]["phase"] == "Pending":
                msg = f'container "main" in pod "{pod}" is waiting to start: ContainerCreating'
                raise UnreachableError(msg)
            return tx.log_of(body["metadata"]["uid"])

    def set_fault(self, node: str, fault: str, *, on: bool) -> None:
        """Switch a fault on or off, for a node or for the API server (`*`)."""
        with self.store.transaction() as tx:
            faults = tx.fact("faults") or {}
            names = set(faults.get(node, []))
            names = names | {fault} if on else names - {fault}
            faults[node] = sorted(names)
            tx.set_fact("faults", faults)
            tx.set_fact("due", 0)
        if node != "*":
            self.files.set_faults(node, dict.fromkeys(names, True))

    def faults(self) -> Mapping[str, Sequence[str]]:
        """Return the faults that are on, by node."""
        with self.store.reading() as tx:
            found: Mapping[str, Sequence[str]] = tx.fact("faults") or {}
        return {node: names for node, names in found.items() if names}

    def _arrive(self) -> None:
        with self.store.reading() as tx:
            due = tx.fact("due") or 0
            faults = (tx.fact("faults") or {}).get("*", [])
        if "api_unreachable" in faults:
            msg = "the simulated API server does not answer (fault api_unreachable)"
            raise UnreachableError(msg)
        if "slow" in faults:
            time.sleep(self.pace)
        if due <= self.clock():
            self._advance()

    def _advance(self) -> None:
        for _step in range(_MAX_STEPS):
            with self.store.transaction() as tx:
                world = World(tx, self.files, self.clock(), self.pace)
                is_moving = world.step()
                # Scripts are due until their result is written: this process may die before that.
                due = 0.0 if is_moving or world.scripts else world.next_due()
                tx.set_fact("due", min(due, _LATER_THAN_EVERYTHING))
            for script in world.scripts:
                self._run(script)
            if not is_moving and not world.scripts:
                return

    def _run(self, script: kubelet.Script) -> None:
        code, output = kubelet.run_script(script, self._scratch)
        with self.store.transaction() as tx:
            pod = next((p for p in tx.select(POD) if p["metadata"]["uid"] == script.uid), None)
            if pod is None or hidden(pod).get("script") != "wanted":
                return
            hidden(pod)["script"] = "done"
            hidden(pod)["exit_code"] = code
            # A sleep at the end is as long as it says, whatever the pace.
            ends_in = SCRIPT_S * self.pace + kubelet.sleeps_after_s(pod)
            hidden(pod)["finish_at"] = self.clock() + ends_in
            tx.set_log(script.uid, output)
            tx.put(pod)
        kubelet.forget_script(script.uid, self._scratch)

    def _write(
        self,
        manifest: Manifest,
        write: Callable[[Transaction, Manifest], Manifest],
        *,
        dry_run: bool,
    ) -> Manifest:
        body = copy.deepcopy(manifest)
        body.pop(HIDDEN, None)
        kind, meta = kind_of(body), body["metadata"]
        admission.check_identity(kind, meta["name"], meta.get("namespace", ""))
        result: Manifest = {}
        try:
            with self.store.transaction() as tx:
                admission.check_namespace(tx, meta.get("namespace", ""))
                result = public(write(tx, body))
                tx.set_fact("due", 0)
                _undo_if(dry_run=dry_run)
        except _DryRunError:
            return result
        self._arrive()
        with self.store.reading() as tx:
            return public(tx.get(kind, meta["name"], meta.get("namespace", "")) or result)

    def _create(self, tx: Transaction, body: Manifest) -> Manifest:
        kind, meta = kind_of(body), body["metadata"]
        if tx.get(kind, meta["name"], meta.get("namespace", "")) is not None:
            msg = f'{kind.plural} "{meta["name"]}" already exists'
            raise AlreadyExistsError(msg)
        owners = {" ".join(path): FIELD_MANAGER for path, _value in fields.leaves(body)}
        meta["creationTimestamp"] = stamp(self.clock())
        if kind == POD:
            body = admission.with_defaults(tx, body)
            admission.check_quota(tx, body)
            body["status"] = {"phase": "Pending"}
        hidden(body)["owners"] = owners
        return tx.put(body)

    def _apply(self, tx: Transaction, body: Manifest, manager: str) -> Manifest:
        kind, meta = kind_of(body), body["metadata"]
        existing = tx.get(kind, meta["name"], meta.get("namespace", ""))
        if existing is None:
            made = self._create(tx, body)
            hidden(made)["owners"] = dict.fromkeys(hidden(made)["owners"], manager)
            return tx.put(made)
        owners: dict[str, str] = hidden(existing).get("owners", {})
        result = fields.merged(existing, body, owners, manager)
        hidden(result)["owners"] = owners
        return tx.put(result)

    def _delete(self, tx: Transaction, kind: Kind, body: Manifest, grace_s: int | None) -> None:
        if kind == NAMESPACE:
            for other in KINDS:
                if other.is_namespaced:
                    for item in tx.select(other, body["metadata"]["name"]):
                        tx.remove(item)
        if kind == JOB:
            for pod in tx.select(POD, body["metadata"]["namespace"]):
                if hidden(pod).get("job") == body["metadata"]["uid"]:
                    tx.remove(pod)
        if kind != POD:
            tx.remove(body)
            return
        seconds = _GRACE_S if grace_s is None else min(float(grace_s), _GRACE_S)
        due = self.clock() + seconds * self.pace
        body["metadata"]["deletionTimestamp"] = stamp(due)
        hidden(body)["delete_at"] = due
        tx.put(body)


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


def _event(change: str, body: Manifest, before: Manifest | None, scope: Scope) -> WatchEvent | None:
    was_in = before is not None and in_scope(before, scope)
    is_in = in_scope(body, scope) and change != EventType.DELETED
    if not was_in and not is_in:
        return None
    if was_in and not is_in:
        return WatchEvent(EventType.DELETED, body)
    return WatchEvent(EventType.MODIFIED if was_in else EventType.ADDED, body)


def _may_be_disrupted(tx: Transaction, pod: Manifest) -> bool:
    meta = pod["metadata"]
    pods = tx.select(POD, meta["namespace"])
    for budget in tx.select(POD_DISRUPTION_BUDGET, meta["namespace"]):
        selector = budget["spec"]["selector"]
        if not matches_selector(meta.get("labels") or {}, selector):
            continue
        healthy = [
            other
            for other in pods
            if matches_selector(other["metadata"].get("labels") or {}, selector)
            and other["status"]["phase"] == "Running"
            and "deletionTimestamp" not in other["metadata"]
        ]
        least = int(budget["spec"].get("minAvailable", 0))
        if "maxUnavailable" in budget["spec"]:
            least = len(healthy) - int(budget["spec"]["maxUnavailable"])
        if len(healthy) - 1 < least:
            return False
    return True
