"""Keeps the inventory in PostgreSQL like the cluster: list once, then follow the watches.

Two threads follow nodes and Pods and only put what they hear into a queue; one loop takes it out in
batches and writes. When a watch breaks or is too old, its kind is listed again.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from django.utils import timezone

from gpu.objects import NodeObject, PodObject
from gpu.ports import (
    EVERYTHING,
    NODE,
    POD,
    Cluster,
    ClusterError,
    EventType,
    GoneError,
    Kind,
    Listing,
    WatchEvent,
)
from gpu.services import inventory

_log = structlog.get_logger(__name__)

_BATCH_S = 0.2
_WATCH_S = 30.0
_BACK_OFF_S = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Quiet:
    """A watch came to its end without a break: what was heard until then is all there is."""


type News = Listing | WatchEvent
type Heard = News | Quiet


@dataclass(slots=True)
class Watcher:
    """Follows one cluster until told to stop."""

    cluster: Cluster
    on_beat: Callable[[], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    _heard: "queue.Queue[tuple[Kind, Heard]]" = field(default_factory=queue.Queue)

    def run(self) -> None:
        """Follow the cluster until `stopping` is set; errors are logged and waited out."""
        threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind.plural}")
            for kind in (NODE, POD)
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        while not self.stopping.is_set():
            self._write(self._batch())
            self.on_beat()

    def _follow(self, kind: Kind) -> None:
        failures = 0
        while not self.stopping.is_set():
            try:
                listing = self.cluster.list(kind, EVERYTHING)
                self._heard.put((kind, listing))
                failures = 0
                self._follow_from(kind, listing.resource_version)
            except GoneError:
                continue
            except ClusterError as error:
                _log.warning("watch.broken", kind=kind.plural, error=str(error))
                self.stopping.wait(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
                failures += 1

    def _follow_from(self, kind: Kind, version: str) -> None:
        while not self.stopping.is_set():
            for event in self.cluster.watch(kind, EVERYTHING, version, timeout_s=_WATCH_S):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != EventType.BOOKMARK:
                    self._heard.put((kind, event))
                if self.stopping.is_set():
                    return
            self._heard.put((kind, Quiet()))

    def _batch(self) -> list[tuple[Kind, Heard]]:
        try:
            batch = [self._heard.get(timeout=1.0)]
        except queue.Empty:
            return []
        end = time.monotonic() + _BATCH_S
        while (left := end - time.monotonic()) > 0:
            try:
                batch.append(self._heard.get(timeout=left))
            except queue.Empty:
                break
        return batch

    def _write(self, batch: list[tuple[Kind, Heard]]) -> None:
        for kind in (NODE, POD):
            heard = [item for of_kind, item in batch if of_kind == kind]
            news = [item for item in heard if not isinstance(item, Quiet)]
            if news:
                take_over(kind, news)
            if kind == NODE and len(news) < len(heard):
                inventory.confirm_nodes(now=timezone.now())


def take_over(kind: Kind, heard: list[News]) -> None:
    """Write what was heard of one kind, in order; later news of an object replace earlier ones."""
    complete = False
    present: dict[str, NodeObject | PodObject] = {}
    deleted: dict[str, str] = {}
    read = NodeObject.from_manifest if kind == NODE else PodObject.from_manifest
    for item in heard:
        if isinstance(item, Listing):
            complete = True
            deleted.clear()
            present = {m["metadata"]["uid"]: read(m) for m in item.items}
            continue
        meta = item.object["metadata"]
        if item.type == EventType.DELETED:
            present.pop(meta["uid"], None)
            deleted[meta["uid"]] = meta["name"]
        else:
            deleted.pop(meta["uid"], None)
            present[meta["uid"]] = read(item.object)
    if kind == NODE:
        _take_over_nodes(present, deleted, is_complete=complete)
    else:
        pods = [pod for pod in present.values() if isinstance(pod, PodObject)]
        if pods or complete:
            inventory.record_pods(pods, is_complete=complete)
        if deleted:
            inventory.forget_pods(deleted)


def _take_over_nodes(
    present: dict[str, NodeObject | PodObject], deleted: dict[str, str], *, is_complete: bool
) -> None:
    nodes = [node for node in present.values() if isinstance(node, NodeObject)]
    if nodes or is_complete:
        inventory.record_nodes(nodes, now=timezone.now(), is_complete=is_complete)
    alive = {node.name for node in nodes}
    for name in deleted.values():
        if name not in alive:
            inventory.forget_node(name)
