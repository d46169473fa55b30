"""When a demand can be met, if rights end as they are due."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpu.planning.demands import Demand, Ending, Estimate, FitWhen, Kind
from gpu.planning.gathering import Chooser, best_option
from gpu.planning.snapshot import (
    Beside,
    ClusterSnapshot,
    GpuSnapshot,
    InstanceSnapshot,
    NodeSnapshot,
)


def estimate(
    snapshot: ClusterSnapshot,
    demand: Demand,
    kinds: Sequence[Kind],
    endings: Iterable[Ending],
    choose: Chooser,
) -> Estimate | None:
    """Return when enough has ended to meet the demand without harm; None if that never comes.

    More that has ended never makes it harder, so the earliest moment is found by halving.
    """
    due = sorted(endings, key=lambda ending: (ending.at, ending.gpu_uuid))
    low, high = 0, len(due)
    option = None
    while low < high:
        middle = (low + high) // 2
        then = released(snapshot, due[: middle + 1])
        found = best_option(then, demand, kinds, upto=FitWhen.AFTER_CHANGE, choose=choose)
        if found is None:
            low = middle + 1
        else:
            high, option = middle, found
    return None if option is None else Estimate(due[low].at, low + 1, option)


def released(snapshot: ClusterSnapshot, endings: Iterable[Ending]) -> ClusterSnapshot:
    """Return the snapshot as it is once these rights have ended and their Pods are gone."""
    by_gpu: dict[str, list[Ending]] = {}
    for ending in endings:
        by_gpu.setdefault(ending.gpu_uuid, []).append(ending)
    nodes = []
    for node in snapshot.nodes:
        ended = [ending for gpu in node.gpus for ending in by_gpu.get(gpu.uuid, ())]
        if ended:
            gpus = tuple(_released(gpu, by_gpu.get(gpu.uuid, [])) for gpu in node.gpus)
            nodes.append(replace(node, gpus=gpus, left=_left(node, ended)))
        else:
            nodes.append(node)
    return ClusterSnapshot(tuple(nodes))


def _left(node: NodeSnapshot, ended: Iterable[Ending]) -> Beside | None:
    left = node.left
    for ending in ended:
        if left is not None and ending.beside is not None:
            left = left.more(ending.beside)
    return left


def _released(gpu: GpuSnapshot, endings: list[Ending]) -> GpuSnapshot:
    gone = {ending.instance for ending in endings}
    replicas = sum(ending.count for ending in endings if ending.instance is None)
    return replace(
        gpu,
        instances=tuple(
            InstanceSnapshot(item.instance) if item.instance in gone else item
            for item in gpu.instances
        ),
        granted=max(0, gpu.granted - replicas),
        holders=gpu.holders[replicas:],
    )
