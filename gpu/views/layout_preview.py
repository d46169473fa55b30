"""What a wanted layout means before anything is done: steps, Pods in the way, counts, grants."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpu.models import Allocation, Gpu, GpuPod, Operation, ResourcePool
from gpu.planning.geometry import Instance
from gpu.planning.profiles import ProfileName
from gpu.planning.resources import GpuSetup, node_resources
from gpu.planning.steps import (
    Create,
    Destroy,
    DisableMig,
    EnableMig,
    ResetGpu,
    Step,
    action_of,
    instance_of,
    nvidia_smi_commands,
)
from gpu.planning.tables import GpuTable
from gpu.selectors.executors import executor_for
from gpu.selectors.gpus import MapGpu, gpus_of_node
from gpu.selectors.occupancy import GpuOccupancy, Use, live_pods
from gpu.views.layout_wish import Wish, present_layout


class Fate(StrEnum):
    """What becomes of a Pod that is evicted."""

    COMES_BACK = "comes_back"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A Pod that holds, or may hold, what has to go."""

    pod: GpuPod
    devices: tuple[str, ...]
    fate: Fate
    is_certain: bool

    @property
    def key(self) -> str:
        """Return `namespace/name/uid`, by which an operation knows whom it may evict."""
        return f"{self.pod.namespace}/{self.pod.name}/{self.pod.uid}"


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step with the commands that carry it out."""

    action: str
    instance: Instance | None
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountChange:
    """Devices of one resource that the node offers, before and after."""

    key: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GrantShortage:
    """Rights to a resource that would have no device behind them, and who has such rights."""

    key: str
    missing: int
    tenants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """All that an admin should know before confirming a layout."""

    steps: tuple[StepLine, ...]
    pods: tuple[PodInTheWay, ...]
    bystanders: tuple[GpuPod, ...]
    counts: tuple[CountChange, ...]
    shortages: tuple[GrantShortage, ...]
    needs_reset: bool
    kept: tuple[Instance, ...]
    is_recut_whole: bool = False

    @property
    def is_empty(self) -> bool:
        """Say whether the GPU is as wanted already."""
        return not self.steps

    @property
    def named_pods(self) -> tuple[str, ...]:
        """Return the keys of the Pods in the way, in order."""
        return tuple(sorted(item.key for item in self.pods))


def preview_on_node(row: MapGpu, table: GpuTable, wish: Wish) -> Preview:
    """Return what bringing a GPU of the map to the wish would do, read with all of its node."""
    gpu = row.seen.gpu
    neighbours = [other.seen for other in gpus_of_node(gpu.node_id) if other.seen.gpu != gpu]
    return build_preview(
        row.seen, table, wish, neighbours=neighbours, node_pods=live_pods([gpu.node_id])
    )


def build_preview(
    seen: GpuOccupancy,
    table: GpuTable,
    wish: Wish,
    *,
    neighbours: Iterable[GpuOccupancy],
    node_pods: Iterable[GpuPod],
) -> Preview:
    """Return what bringing a GPU to the wish would do; `neighbours` are the node's other GPUs."""
    present, by_counts = present_layout(seen.gpu), recuts_whole(seen.gpu)
    steps = steps_to(table, present, wish, is_recut_whole=by_counts)
    pods = tuple(_pods_in_the_way(seen, steps))
    in_the_way = {item.pod.uid for item in pods}
    return Preview(
        steps=tuple(_lines(seen, table, steps, has_commands=not by_counts)),
        pods=pods,
        bystanders=tuple(pod for pod in node_pods if pod.uid not in in_the_way) if steps else (),
        counts=tuple(_count_changes(seen.gpu, wish, [n.gpu for n in neighbours])),
        shortages=tuple(_shortages(seen.gpu, wish)),
        needs_reset=any(isinstance(step, ResetGpu) for step in steps),
        kept=() if by_counts else tuple(i for i in wish.layout if i in present.layout),
        is_recut_whole=by_counts,
    )


def recuts_whole(gpu: Gpu) -> bool:
    """Say whether any change of the GPU destroys all of its instances: mig-manager's do."""
    return executor_for(gpu.node) == Operation.Executor.MIG_MANAGER


def steps_to(
    table: GpuTable, present: Wish, wish: Wish, *, is_recut_whole: bool = False
) -> tuple[Step, ...]:
    """Return the steps from one layout to another; instances in both stay, if anything does."""
    mode: list[Step] = []
    if present.is_mig_on != wish.is_mig_on:
        mode.append(EnableMig() if wish.is_mig_on else DisableMig())
        if table.mode_change_needs_reset is not False:
            mode.append(ResetGpu())
    kept = present.layout if wish.is_mig_on else ()
    if is_recut_whole and present != wish:
        kept = ()
    gone = [i for i in present.layout if i not in kept or i not in wish.layout]
    come = [i for i in wish.layout if i not in kept]
    return (
        *(Destroy(item.profile, item.start) for item in gone),
        *mode,
        *(Create(item.profile, item.start) for item in come),
    )


def _lines(
    seen: GpuOccupancy, table: GpuTable, steps: Iterable[Step], *, has_commands: bool
) -> Iterable[StepLine]:
    ids = {
        Instance(item.instance.profile, item.instance.start): item.instance.gi_id
        for item in seen.instances
    }
    for step in steps:
        commands: tuple[str, ...] = ()
        if has_commands:
            commands = nvidia_smi_commands([step], table, gpu_index=seen.gpu.index, gi_ids=ids)
        yield StepLine(action_of(step), instance_of(step), commands)


def _pods_in_the_way(seen: GpuOccupancy, steps: Iterable[Step]) -> Iterable[PodInTheWay]:
    """Yield who holds an instance that goes, or the whole GPU when its mode changes."""
    gone = {instance_of(step) for step in steps if isinstance(step, Destroy)}
    switches = any(isinstance(step, EnableMig | DisableMig) for step in steps)
    devices: dict[str, list[str]] = {}
    pods: dict[str, tuple[GpuPod, bool]] = {}
    for item in seen.instances:
        instance = Instance(item.instance.profile, item.instance.start)
        if switches or instance in gone:
            for pod in item.hold.pods:
                devices.setdefault(pod.uid, []).append(str(instance))
                pods[pod.uid] = (pod, item.hold.use == Use.IN_USE)
    for hold in seen.shares if switches else ():
        for pod in hold.pods:
            devices.setdefault(pod.uid, [])
            pods[pod.uid] = (pod, hold.use == Use.IN_USE)
    for uid, (pod, is_certain) in pods.items():
        fate = Fate.COMES_BACK if pod.owner_kind else Fate.LOST
        yield PodInTheWay(pod, tuple(devices[uid]), fate, is_certain)


def _count_changes(gpu: Gpu, wish: Wish, others: Iterable[Gpu]) -> Iterable[CountChange]:
    rest = [_setup(other) for other in others]
    before = node_resources([*rest, _setup(gpu)])
    after = node_resources([*rest, _wished_setup(gpu, wish)])
    for key in sorted(before.keys() | after.keys()):
        if before.get(key, 0) != after.get(key, 0):
            yield CountChange(key, before.get(key, 0), after.get(key, 0))


def _shortages(gpu: Gpu, wish: Wish) -> Iterable[GrantShortage]:
    """Yield the pools whose grants would exceed what is left; at most 2 queries."""
    change: Counter[str] = Counter(node_resources([_wished_setup(gpu, wish)]))
    change.subtract(node_resources([_setup(gpu)]))
    shrinking = [key for key, difference in change.items() if difference < 0]
    pools = ResourcePool.objects.filter(model_id=gpu.model_id, resource_name__in=shrinking)
    missing: dict[ResourcePool, int] = {}
    for pool in pools.order_by("resource_name"):
        left = pool.capacity + change[pool.resource_name] - pool.foreign
        missing[pool] = pool.granted + pool.reserved - max(0, left)
    short = {pool: count for pool, count in missing.items() if count > 0}
    holders = Allocation.objects.filter(pool__in=short).exclude(state=Allocation.State.ENDED)
    names = set(holders.values_list("pool_id", "tenant__name")) if short else set()
    for pool, count in short.items():
        tenants = tuple(sorted(name for pool_id, name in names if pool_id == pool.pk))
        yield GrantShortage(pool.resource_name, count, tenants)


def _setup(gpu: Gpu) -> GpuSetup:
    names = tuple(item.resource_name for item in gpu.instances.all())
    return GpuSetup(gpu.is_mig_enabled, names, gpu.replicas)


def _wished_setup(gpu: Gpu, wish: Wish) -> GpuSetup:
    names = tuple(ProfileName.parse(item.profile).resource_name for item in wish.layout)
    return GpuSetup(wish.is_mig_on, names, gpu.replicas)
