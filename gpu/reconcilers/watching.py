"""Keeps the inventory in PostgreSQL like the cluster: list once, then follow the watches.

Two threads follow nodes and Pods and only put what they hear into a queue; one loop takes it out in
batches and writes. A database that is away is waited for with what was heard in hand.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from gpu.objects import NodeObject, PodObject, asks_for_gpu
from gpu.ports import NODE, POD, Cluster, EventType, Kind, Listing, Manifest
from gpu.reconcilers.following import BackOff, Follower, Heard, News, Quiet, no_collector
from gpu.services import inventory

_log = structlog.get_logger(__name__)

_BATCH_S = 0.01
_BEAT_S = 1.0


@dataclass(slots=True)
class Watcher:
    """Follows one cluster until told to stop."""

    cluster: Cluster
    on_beat: Callable[[], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    _heard: "queue.Queue[tuple[Kind, Heard]]" = field(default_factory=queue.Queue)
    _followers: dict[Kind, Follower] = field(default_factory=dict)
    _homeless: dict[str, PodObject] = field(default_factory=dict)
    """Pods whose node is not known yet, by uid: lists of nodes and Pods arrive in any order."""

    def run(self) -> None:
        """Follow the cluster until `stopping` is set; errors are logged and waited out."""
        for kind in (NODE, POD):
            follower = Follower(self.cluster, kind, self._heard, self.stopping)
            self._followers[kind] = follower
            name = f"watch-{kind.plural}"
            threading.Thread(target=follower.run, name=name, daemon=True).start()
        back_off = BackOff()
        batch: list[tuple[Kind, Heard]] = []
        while not self.stopping.is_set():
            batch = batch or self._batch()
            try:
                self.write(batch)
            except (OperationalError, InterfaceError) as error:
                _log.warning("watch.database_away", error=str(error).strip(), held=len(batch))
                connection.close()
                self.stopping.wait(back_off.after(error))
                continue
            except Exception as error:  # noqa: BLE001  # nothing may end the watcher
                # Whatever it was, the rows are brought right by a new list.
                _log.exception("watch.not_written", held=len(batch))
                self.stopping.wait(back_off.after(error))
                self._start_over()
            else:
                back_off.reset()
            batch = []
            self.on_beat()

    def write(self, batch: Iterable[tuple[Kind, Heard]]) -> None:
        """Write what was heard, nodes first; writing the same again does no harm."""
        heard = list(batch)
        for kind in (NODE, POD):
            of_kind = [item for each, item in heard if each == kind]
            news: list[News] = [item for item in of_kind if not isinstance(item, Quiet)]
            if news:
                self._take_over(kind, news)
            if kind == NODE and len(news) < len(of_kind):
                inventory.confirm_nodes(now=timezone.now())

    def _take_over(self, kind: Kind, news: list[News]) -> None:
        if any(isinstance(item, Listing) for item in news):
            with no_collector():
                self._write_sight(kind, gather(kind, news))
        else:
            self._write_sight(kind, gather(kind, news))

    def _write_sight(self, kind: Kind, sight: "Sight") -> None:
        if kind == NODE:
            take_over_nodes(sight)
            if self._homeless:
                self._record_pods(list(self._homeless.values()), is_complete=False)
            return
        for uid in (*sight.deleted, *sight.present):
            self._homeless.pop(uid, None)
        if sight.is_complete:
            self._homeless.clear()
        pods = [pod for pod in sight.present.values() if isinstance(pod, PodObject)]
        if pods or sight.is_complete:
            self._record_pods(pods, is_complete=sight.is_complete)
        if sight.deleted:
            inventory.forget_pods(sight.deleted)

    def _record_pods(self, pods: list[PodObject], *, is_complete: bool) -> None:
        homeless = inventory.record_pods(pods, is_complete=is_complete)
        by_uid = {pod.uid: pod for pod in pods}
        self._homeless = {
            **{uid: pod for uid, pod in self._homeless.items() if uid not in by_uid},
            **{uid: by_uid[uid] for uid in homeless},
        }

    def _batch(self) -> list[tuple[Kind, Heard]]:
        try:
            batch = [self._heard.get(timeout=_BEAT_S)]
        except queue.Empty:
            return []
        end = time.monotonic() + _BATCH_S
        while (left := end - time.monotonic()) > 0:
            try:
                batch.append(self._heard.get(timeout=left))
            except queue.Empty:
                break
        return batch

    def _start_over(self) -> None:
        for follower in self._followers.values():
            follower.start_over.set()


@dataclass(slots=True)
class Sight:
    """What a run of news comes to; `present` and `deleted` (names) are by uid."""

    present: dict[str, NodeObject | PodObject] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False


def gather(kind: Kind, heard: Iterable[News]) -> Sight:
    """Read news of one kind in order: later ones of an object replace earlier ones.

    An object that cannot be read is left out and logged: it must not keep back the others.
    """
    sight = Sight()
    latest: dict[str, Manifest] = {}
    for item in heard:
        if isinstance(item, Listing):
            sight.is_complete = True
            sight.deleted.clear()
            latest = {manifest["metadata"]["uid"]: manifest for manifest in item.items}
            continue
        uid, name = item.object["metadata"]["uid"], item.object["metadata"]["name"]
        if item.type == EventType.DELETED:
            latest.pop(uid, None)
            sight.deleted[uid] = name
        else:
            sight.deleted.pop(uid, None)
            latest[uid] = item.object
    for uid, manifest in latest.items():
        try:
            if kind == NODE:
                sight.present[uid] = NodeObject.from_manifest(manifest)
            elif asks_for_gpu(manifest):
                sight.present[uid] = PodObject.from_manifest(manifest)
        except (LookupError, TypeError, ValueError, AttributeError):
            _log.exception("watch.unreadable", kind=kind.name, name=manifest["metadata"]["name"])
    return sight


def take_over_nodes(sight: Sight) -> None:
    """Write nodes as they are now; one that was deleted and has joined again is present."""
    nodes = [node for node in sight.present.values() if isinstance(node, NodeObject)]
    if nodes or sight.is_complete:
        inventory.record_nodes(nodes, now=timezone.now(), is_complete=sight.is_complete)
    alive = {node.name for node in nodes}
    for name in sight.deleted.values():
        if name not in alive:
            inventory.forget_node(name)
