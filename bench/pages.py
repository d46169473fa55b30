"""B6: who has which GPU, for a cluster of 1,000 nodes, and for one of five times that size.

The page is asked for in this process, with sessions, database and broker, but without a network.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench import lab
from bench.report import Book, Scale
from bench.sync import SHORT, Length, first_syncs

_MOST_MS = 150.0
_MOST_RATIO = 1.5
_GROWTH = 5
_VIEWS = 60
_P95 = 0.95
_PAGES = ("/gpus/", "/gpus/?page=7", "/gpus/?state=in_use", "/gpus/?q=gpu-node-00123")

# Eight GPUs a node, each cut into seven; the first ten instances of a node are those that its Pods
# say they hold (`lab.running`).
_GPUS = """
INSERT INTO gpu_gpu (node_id, model_id, index, uuid, memory_mib, is_mig_enabled, sharing, replicas,
    drift_cause, is_in_service, service_note, is_present, observed_at)
SELECT n.id, %(model)s, i, 'GPU-' || n.name || '-' || i, 81920, true, 'none', 1,
    '', true, '', true, now()
FROM gpu_node n, generate_series(0, 7) i
WHERE NOT EXISTS (SELECT FROM gpu_gpu g WHERE g.node_id = n.id)
"""
_INSTANCES = """
INSERT INTO gpu_gpuinstance (gpu_id, profile, memory_slices, resource_name, memory_mib, gi_id,
    ci_id, mig_uuid)
SELECT g.id, '1g.10gb', int4range(s, s + 1), 'nvidia.com/mig-1g.10gb', 9728, s + 7, 0,
    'MIG-' || lpad(to_hex(right(n.name, 5)::int + 1000 * (g.index * 7 + s)), 16, '0')
FROM gpu_gpu g JOIN gpu_node n ON n.id = g.node_id, generate_series(0, 6) s
WHERE NOT EXISTS (SELECT FROM gpu_gpuinstance i WHERE i.gpu_id = g.id)
"""


def who_has_which(book: Book, _scale: Scale) -> None:
    """Measure cold start, warm page, requests to the API server for each view, and growth."""
    length = Length(SHORT.size, rounds=3, seconds=0)
    with lab.control_plane() as plane, lab.portal():
        lab.fill(plane, length.size)
        first = first_syncs(plane, length)
        cold = median(first["ours"]) / median(first["bare"])
        _cut_gpus()
        warm, asked = _views()
        _grow()
        large, _asked = _views()
    book.say(
        f"B6 cold start {cold:.2f} times the bare lists; warm page p95 {warm:.0f} ms, at"
        f" {_GROWTH} times the size {large:.0f} ms ({large / warm:.2f} times); {asked} requests"
        " to the API server"
    )
    book.results["B6"] = {
        "warm_p95_ms": round(warm, 1),
        "requests_per_view": asked,
        "cold_over_bare": round(cold, 3),
        "growth_x5": round(large / warm, 3),
    }
    book.expect(asked == 0, f"B6: {asked} requests to the API server")
    book.goal(warm <= _MOST_MS, f"B6: warm page {warm:.0f} ms")
    book.goal(cold <= _MOST_RATIO, f"B6: cold start {cold:.2f} times the bare lists")
    book.goal(large <= _MOST_RATIO * warm, f"B6: growth {large / warm:.2f}")


def _cut_gpus() -> None:
    from django.db import connection  # noqa: PLC0415  # Django is set up by now

    from gpu.models import GpuModel  # noqa: PLC0415

    model, _made = GpuModel.objects.get_or_create(
        product="NVIDIA-A100-SXM4-80GB",
        defaults={"name": "A100-SXM4-80GB", "memory_mib": 81920, "table_source": "none"},
    )
    with connection.cursor() as cursor:
        cursor.execute(_GPUS, {"model": model.pk})
        cursor.execute(_INSTANCES)
        cursor.execute("ANALYZE")


def _grow() -> None:
    """Multiply nodes, Pods and GPUs in the database; nothing but the page looks at it."""
    from gpu.models import GpuPod, Node  # noqa: PLC0415  # Django is set up by now

    nodes, pods = list(Node.objects.all()), list(GpuPod.objects.select_related("node"))
    for copy in range(1, _GROWTH):
        rename: Callable[[str], str] = f"x{copy}-{{}}".format
        by_name = {}
        for node in nodes:
            node.pk, node.name, node.uid = None, rename(node.name), rename(node.uid[:30])
        for node in Node.objects.bulk_create(nodes):
            by_name[node.name] = node.pk
        for pod in pods:
            name = rename(pod.node.name) if pod.node else ""
            pod.pk, pod.uid, pod.node_id = None, rename(pod.uid[-30:]), by_name.get(name)
            pod.devices = None
        GpuPod.objects.bulk_create(pods, batch_size=2000)
        nodes, pods = (
            list(Node.objects.filter(name__startswith="gpu-node")),
            list(GpuPod.objects.filter(node__name__startswith="gpu-node").select_related("node")),
        )
    _cut_gpus()


def _views() -> tuple[float, int]:
    """Return the p95 of a page in ms, and how often a view asked the API server for anything."""
    from django.test import Client  # noqa: PLC0415  # Django is set up by now

    from gpu import gateways  # noqa: PLC0415
    from tenants.models import User  # noqa: PLC0415

    asked: list[str] = []
    real: Any = gateways.cluster

    def counted() -> Any:  # noqa: ANN401
        asked.append("cluster")
        return real()

    gateways.cluster = counted  # type: ignore[assignment]  # counts, then does the same
    user, _made = User.objects.get_or_create(username="bench", defaults={"role": User.Role.ADMIN})
    client = Client()
    client.force_login(user)
    times = []
    try:
        for number in range(_VIEWS + len(_PAGES)):
            begun = time.perf_counter()
            answer = client.get(_PAGES[number % len(_PAGES)])
            took = (time.perf_counter() - begun) * 1000
            if answer.status_code != 200:  # noqa: PLR2004
                msg = f"{_PAGES[number % len(_PAGES)]} answers {answer.status_code}"
                raise RuntimeError(msg)
            if number >= len(_PAGES):
                times.append(took)
    finally:
        gateways.cluster = real
    return sorted(times)[int(_P95 * (len(times) - 1))], len(asked)
