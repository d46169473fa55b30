"""What one GPU can give of a kind: at once, after a change that harms nobody, or by force."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from gpu.planning.arrangements import can_arrange
from gpu.planning.demands import FitReason, Isolation, Kind
from gpu.planning.geometry import Layout, geometry, load_of
from gpu.planning.layouts import room
from gpu.planning.plans import CurrentGpu, GpuPlan, plan_gpu
from gpu.planning.refusals import in_the_way, largest_part
from gpu.planning.snapshot import GpuMode, GpuSnapshot, NodeSnapshot
from gpu.planning.tables import GpuTable

_NOTHING = GpuPlan((), ())


@dataclass(frozen=True, slots=True)
class Cut:
    """A change that brings `units` more instances of a profile, and the room that it costs."""

    plan: GpuPlan
    room_lost: int

    @property
    def effort(self) -> tuple[bool, int]:
        """Return how much it disturbs: whether MIG mode is switched, free instances destroyed."""
        return self.plan.switches_mode, len(self.plan.destroyed)


@dataclass(frozen=True, slots=True)
class Force:
    """A change that takes from others: the instances in the way, or the whole GPU, and the plan."""

    blockers: Layout
    takes_whole: bool
    plan: GpuPlan


def isolation_of(kind: Kind) -> Isolation:
    """Return the isolation that a kind gives."""
    if kind.profile is not None:
        return Isolation.ISOLATED
    return Isolation.SHARED if kind.replicas > 1 else Isolation.WHOLE


def obstacle(node: NodeSnapshot, gpu: GpuSnapshot) -> FitReason | None:
    """Return what keeps everybody off the GPU, if anything does."""
    if not gpu.is_in_service:
        return FitReason.OUT_OF_SERVICE
    if not node.is_ready:
        return FitReason.NODE_NOT_READY
    if gpu.is_changing:
        return FitReason.CHANGING
    if not node.is_schedulable:
        return FitReason.NODE_CORDONED
    return None


def obstacle_to_change(node: NodeSnapshot, gpu: GpuSnapshot) -> FitReason | None:
    """Return what keeps the GPU from being changed: a node is changed one GPU at a time."""
    if any(other.is_changing for other in node.gpus):
        return FitReason.CHANGING
    if gpu.is_recut_whole:
        # Switching MIG on clears the instances of the node's other GPUs, too.
        cleared = (gpu,) if gpu.mode is GpuMode.MIG else node.gpus
        if any(other.in_use for other in cleared):
            return FitReason.FULL
    return obstacle(node, gpu)


def gives(gpu: GpuSnapshot, kind: Kind) -> bool:
    """Return whether the GPU is one that could give the kind, in whatever state it is."""
    if gpu.product != kind.product:
        return False
    isolation = isolation_of(kind)
    match isolation:
        case Isolation.ISOLATED:
            return gpu.table is not None and _offers(gpu.table, kind)
        case Isolation.WHOLE:
            return gpu.memory_mib >= kind.memory_mib
        case Isolation.SHARED:
            same = (kind.replicas, kind.resource_name) == (gpu.replicas, gpu.resource_name)
            return same and gpu.mode in {GpuMode.TIME_SLICING, GpuMode.MPS}
        case _:
            assert_never(isolation)


def free_now(gpu: GpuSnapshot, kind: Kind) -> Layout | int:
    """Return the free instances of the kind's profile, or how many replicas are free."""
    isolation = isolation_of(kind)
    match isolation:
        case Isolation.ISOLATED:
            if gpu.mode is not GpuMode.MIG or gpu.replicas > 1:
                return ()
            return tuple(item for item in gpu.free if item.profile == kind.profile)
        case Isolation.WHOLE:
            is_whole = gpu.mode is GpuMode.WHOLE and gpu.replicas == 1
            return gpu.free_replicas if is_whole else 0
        case Isolation.SHARED:
            return gpu.free_replicas
        case _:
            assert_never(isolation)


def free_count(gpu: GpuSnapshot, kind: Kind) -> int:
    """Return how many of the kind are free on the GPU; none on one that cannot give it."""
    if not gives(gpu, kind):
        return 0
    free = free_now(gpu, kind)
    return free if isinstance(free, int) else len(free)


def most_when_empty(gpu: GpuSnapshot, kind: Kind) -> int:
    """Return how many of the kind the GPU can give at most: nobody uses it, nothing shares it."""
    isolation = isolation_of(kind)
    match isolation:
        case Isolation.ISOLATED:
            return _most(gpu.table, kind.profile or "") if gpu.table else 0
        case Isolation.WHOLE:
            return 1
        case Isolation.SHARED:
            return gpu.replicas
        case _:
            assert_never(isolation)


def cut_for(gpu: GpuSnapshot, kind: Kind, units: int) -> Cut | None:
    """Return how the GPU comes to give `units` more than now with nobody in the way, if it can."""
    if gpu.table is None or gpu.replicas > 1 or gpu.granted or gpu.holders:
        return None
    if kind.profile is None:
        if units > 1 or gpu.mode is not GpuMode.MIG or gpu.in_use:
            return None
        return Cut(_to_whole(gpu.table, gpu.free, ()), room_lost=room(gpu.table, ()))
    is_mig_enabled = gpu.mode is GpuMode.MIG
    return _cut(gpu.table, (is_mig_enabled, gpu.free, gpu.in_use), kind.profile, units)


def force_for(gpu: GpuSnapshot, kind: Kind, units: int) -> Force | None:
    """Return how the GPU comes to give `units` more by taking from who has it, if it can."""
    isolation = isolation_of(kind)
    match isolation:
        case Isolation.SHARED:
            return None
        case Isolation.WHOLE:
            if gpu.mode is GpuMode.MIG and gpu.table is not None:
                plan = _to_whole(gpu.table, gpu.free, gpu.in_use)
                return Force(gpu.in_use, takes_whole=False, plan=plan)
            return Force((), takes_whole=True, plan=_NOTHING) if gpu.replicas == 1 else None
        case Isolation.ISOLATED:
            if gpu.table is None or kind.profile is None or gpu.replicas > 1:
                return None
            if gpu.mode is GpuMode.WHOLE:
                cut = _cut(gpu.table, (False, (), ()), kind.profile, units)
                return None if cut is None else Force((), takes_whole=True, plan=cut.plan)
            return _force(gpu.table, (gpu.free, gpu.in_use), kind.profile, units)
        case _:
            assert_never(isolation)


def why_not_now(gpu: GpuSnapshot, kind: Kind) -> FitReason:
    """Return why a GPU without an obstacle gives nothing of the kind at once."""
    isolation = isolation_of(kind)
    if isolation is not Isolation.SHARED and gpu.replicas > 1:
        return FitReason.GPU_SHARED
    if cut_for(gpu, kind, 1) is not None:
        return FitReason.NEEDS_CHANGE
    if isolation is Isolation.ISOLATED and gpu.mode is GpuMode.MIG and gpu.table is not None:
        shapes = geometry(gpu.table)
        taken = load_of(shapes, gpu.in_use).mask.bit_count()
        if shapes.memory_slices - taken >= shapes.shape_of(kind.profile or "").size:
            return FitReason.FRAGMENTED
    return FitReason.FULL


def _offers(table: GpuTable, kind: Kind) -> bool:
    """Return whether the table has the kind's very profile: names move with the driver."""
    return table.is_published and any(
        (item.name, item.memory_mib) == (kind.profile, kind.memory_mib) for item in table.profiles
    )


@lru_cache(maxsize=4096)
def _most(table: GpuTable, profile: str) -> int:
    shapes = geometry(table)
    many = Counter({profile: shapes.shape_of(profile).limit})
    return (largest_part(table, (), many) or Counter()).total()


@lru_cache(maxsize=65536)
def _cut(
    table: GpuTable, state: tuple[bool, Layout, Layout], profile: str, units: int
) -> Cut | None:
    """Find the change for `units` more of a profile; free instances that need not go stay."""
    is_mig_enabled, free, in_use = state
    want = _wanted(table, free, in_use, profile, units=units)
    if want is None:
        return None
    current = CurrentGpu.on(free=free, in_use=in_use) if is_mig_enabled else CurrentGpu.off()
    plan = plan_gpu(table, current, want)
    before = room(table, (*free, *in_use))
    return Cut(plan, before - room(table, plan.layout)) if isinstance(plan, GpuPlan) else None


@lru_cache(maxsize=65536)
def _force(table: GpuTable, state: tuple[Layout, Layout], profile: str, units: int) -> Force | None:
    """Find the fewest instances in the way of `units` more of a profile, and the plan then."""
    free, in_use = state
    must = Counter(item.profile for item in free if item.profile == profile)
    must[profile] += units
    if not can_arrange(table, (), must):
        return None
    blockers = in_the_way(table, in_use, must)
    rest = tuple(item for item in in_use if item not in blockers)
    want = _wanted(table, free, rest, profile, units=units)
    current = CurrentGpu.on(free=free, in_use=in_use)
    plan = plan_gpu(table, current, want or must, evict=blockers)
    return Force(blockers, takes_whole=False, plan=plan) if isinstance(plan, GpuPlan) else None


@lru_cache(maxsize=4096)
def _to_whole(table: GpuTable, free: Layout, in_use: Layout) -> GpuPlan:
    current = CurrentGpu.on(free=free, in_use=in_use)
    plan = plan_gpu(table, current, (), evict=in_use, disable=True)
    return plan if isinstance(plan, GpuPlan) else _NOTHING


def _wanted(
    table: GpuTable, free: Layout, in_use: Layout, profile: str, *, units: int
) -> Counter[str] | None:
    """Return what is wanted: `units` more of the profile, and of the free what fits beside that."""
    same = sum(1 for item in free if item.profile == profile)
    must = Counter({profile: same + units})
    others = Counter(item.profile for item in free if item.profile != profile)
    kept = largest_part(table, in_use, others, must)
    return None if kept is None else must + kept
