"""How soon the portal's database is what the cluster is: at the start, and after each event.

The first sync is set against reading and parsing the very same lists with the bare client, in turn
within one run. An event counts from the moment at which the watch has delivered it to our process
until the transaction that holds it has been committed; events are made by another process.
"""

import gc
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, override

import orjson

from bench import lab
from bench.report import Book, Scale

if TYPE_CHECKING:
    from gpu.ports import Cluster, Kind, WatchEvent
    from tests.cluster.control_plane import ControlPlane

_LISTS = ("/api/v1/nodes", "/api/v1/pods")
_MOST_RATIO = 1.5
_MOST_EVENT_MS = 150.0
_RATE = 200
_PAGE = 500
_P95 = 0.95


@dataclass(frozen=True, slots=True)
class Length:
    """How much is measured."""

    size: lab.Size
    rounds: int
    seconds: int


SHORT = Length(lab.Size(1000, 10_000), rounds=5, seconds=20)
FULL = Length(lab.Size(1000, 10_000), rounds=11, seconds=120)


def syncing(book: Book, scale: Scale) -> None:
    """Measure the first sync and the events."""
    length = FULL if scale.seeds > 12 else SHORT  # noqa: PLR2004  # the full scale has more
    with lab.control_plane() as plane, lab.portal():
        begun = time.monotonic()
        lab.fill(plane, length.size)
        book.say(
            f"sync: {length.size.nodes} nodes and {length.size.pods} Pods made in"
            f" {time.monotonic() - begun:.0f} s"
        )
        measure(book, plane, length)


def measure(book: Book, plane: "ControlPlane", length: Length) -> None:
    """Measure on a filled control plane, and write the results down."""
    first = first_syncs(plane, length)
    medians = {name: median(values) for name, values in first.items()}
    ratio = medians["ours"] / medians["bare"]
    for name, values in first.items():
        book.say(
            f"sync {name:12} {median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})"
        )
    book.say(f"sync: the first sync costs {ratio:.2f} times the bare lists")
    delays = events(plane, length)
    at = {part: delays[int(part * (len(delays) - 1))] for part in (0.5, _P95, 0.99)}
    book.say(
        f"sync: {len(delays)} events at {_RATE}/s, delivered to committed: median"
        f" {at[0.5]:.0f} ms, p95 {at[_P95]:.0f} ms, p99 {at[0.99]:.0f} ms"
    )
    book.results["sync"] = {
        "first_sync_s": round(medians["ours"], 3),
        "bare_s": round(medians["bare"], 3),
        "bare_orjson_s": round(medians["bare, orjson"], 3),
        "first_sync_over_bare": round(ratio, 3),
        "event_p50_ms": round(at[0.5], 1),
        "event_p95_ms": round(at[_P95], 1),
        "events": len(delays),
    }
    book.details["sync"] = {"first": first, "event_p99_ms": round(at[0.99], 1)}
    book.goal(ratio <= _MOST_RATIO, f"sync: {ratio:.2f} times the bare lists")
    book.goal(at[_P95] <= _MOST_EVENT_MS, f"sync: p95 of events {at[_P95]:.0f} ms")


def first_syncs(plane: "ControlPlane", length: Length) -> dict[str, list[float]]:
    """Return the seconds of each round, the competitors in turn; the first round is not counted."""
    found: dict[str, list[float]] = {"bare": [], "bare, orjson": [], "ours": []}
    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: _bare(plane, json.loads),
        "bare, orjson": lambda: _bare(plane, orjson.loads),
        "ours": lambda: _first_sync(plane, length.size),
    }
    for number in range(length.rounds + 1):
        for name, way in ways.items():
            seconds = way()
            if number:
                found[name].append(round(seconds, 4))
    return found


def _bare(plane: "ControlPlane", parse: Callable[[bytes], Any]) -> float:
    """Read both lists whole and parse them, one after the other; return the seconds."""
    raw, begun = lab.Raw.of(plane), time.perf_counter()
    pool = raw.pool()
    for path in _LISTS:
        parse(raw.send(pool, "GET", path))
    return time.perf_counter() - begun


def _first_sync(plane: "ControlPlane", size: lab.Size) -> float:
    """Return the seconds from a watcher's start on an empty database until all has been written."""
    from gpu.models import GpuPod, Node  # noqa: PLC0415  # Django is set up by now

    _empty()
    begun = time.perf_counter()
    watcher = _watcher(_cluster(plane), lambda _batch: None)
    thread = _run(watcher)
    while GpuPod.objects.count() < size.pods or Node.objects.count() < size.nodes:
        time.sleep(0.02)
    seconds = time.perf_counter() - begun
    # A follower's thread ends when its watch does; it hears nothing and costs nothing until then.
    watcher.stopping.set()
    thread.join()
    return seconds


def _empty() -> None:
    from django.db import connection  # noqa: PLC0415  # Django is set up by now

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE gpu_node, gpu_gpupod CASCADE")


def events(plane: "ControlPlane", length: Length) -> list[float]:
    """Return how long each event took from the watch to the database, in ms, in order of size."""
    delivered: dict[tuple[str, str], float] = {}
    delays: list[float] = []

    def written(versions: list[tuple[str, str]]) -> None:
        now = time.monotonic()
        known = [version for version in versions if version in delivered]
        delays.extend((now - delivered.pop(version)) * 1000 for version in known)

    _empty()
    cluster = _Stamping(_cluster(plane), delivered)
    watcher = _watcher(cluster, written)
    thread = _run(watcher)
    _wait_until_listed(length.size)
    made = _make_events(plane, length)
    end = time.monotonic() + 30
    while len(delays) < made and time.monotonic() < end:
        time.sleep(0.1)
    watcher.stopping.set()
    thread.join()
    if len(delays) < made:
        msg = f"of {made} events only {len(delays)} were written"
        raise RuntimeError(msg)
    return sorted(delays)


def _wait_until_listed(size: lab.Size) -> None:
    from gpu.models import GpuPod  # noqa: PLC0415  # Django is set up by now

    while GpuPod.objects.count() < size.pods:
        time.sleep(0.1)
    time.sleep(1)  # the watches have begun


def _make_events(plane: "ControlPlane", length: Length) -> int:
    """Let another process change Pods and nodes at the rate; return how many changes it made."""
    context = multiprocessing.get_context("spawn")
    count = _RATE * length.seconds
    maker = context.Process(target=make_events, args=(lab.Raw.of(plane), length.size, count))
    maker.start()
    maker.join()
    if maker.exitcode:
        msg = "the process that makes events failed"
        raise RuntimeError(msg)
    return count


def make_events(raw: lab.Raw, size: lab.Size, count: int) -> None:
    """Change a Pod's status nine times of ten and a node's the tenth, evenly in time."""
    pool, begun = raw.pool(), time.monotonic()
    due = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(due, None)
            if number is None:
                return
            time.sleep(max(0.0, begun + number / _RATE - time.monotonic()))
            if number % 10:
                path, body = lab.pod_path(number % size.pods), lab.running(number, f"at {number}")
            else:
                path = f"/api/v1/nodes/{lab.node_name(number % size.nodes)}"
                amounts = {"cpu": "128", "memory": f"{1000 + number}Gi"}
                body = {"status": {"allocatable": amounts}}
            raw.send(pool, "PATCH", f"{path}/status", body)

    threads = [threading.Thread(target=work) for _number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cluster(plane: "ControlPlane") -> "Cluster":
    from gpu.adapters.kubernetes import KubernetesCluster  # noqa: PLC0415  # imports for 1.3 s

    return KubernetesCluster.from_kubeconfig(str(plane.kubeconfig))


def _watcher(cluster: "Cluster", written: Callable[[list[tuple[str, str]]], None]) -> Any:  # noqa: ANN401
    """Return the portal's watcher, which tells which versions it has committed."""
    from gpu.ports import WatchEvent  # noqa: PLC0415  # Django is set up by now
    from gpu.reconcilers.watching import Watcher  # noqa: PLC0415

    class Telling(Watcher):
        @override
        def write(self, batch: Any) -> None:
            heard = list(batch)
            super().write(heard)
            written(
                [
                    (kind.plural, item.object["metadata"]["resourceVersion"])
                    for kind, item in heard
                    if isinstance(item, WatchEvent)
                ]
            )

    gc.freeze()  # as watch_cluster does
    return Telling(cluster, on_beat=lambda: None)


class _Stamping:
    """A cluster that notes when each event of a watch was delivered."""

    def __init__(self, cluster: "Cluster", delivered: dict[tuple[str, str], float]) -> None:
        self._cluster = cluster
        self._delivered = delivered

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._cluster, name)

    def watch(self, kind: "Kind", *args: Any, **kwargs: Any) -> Iterator["WatchEvent"]:  # noqa: ANN401
        for event in self._cluster.watch(kind, *args, **kwargs):
            version = event.object["metadata"]["resourceVersion"]
            if event.type != "BOOKMARK":
                self._delivered[kind.plural, version] = time.monotonic()
            yield event


def _run(watcher: Any) -> threading.Thread:  # noqa: ANN401
    from django.db import connection  # noqa: PLC0415  # Django is set up by now

    def run() -> None:
        try:
            watcher.run()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
