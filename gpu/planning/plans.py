"""The plan for one GPU: from what it holds to what it is to hold, with the least destruction."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Self

from gpu.planning.arrangements import Rank, arrangements, rank_of
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Geometry, Instance, Layout, geometry, layout_of, load_of
from gpu.planning.layouts import check_layout
from gpu.planning.refusals import NoPlan, NoPlanReason, refuse
from gpu.planning.steps import Create, Destroy, DisableMig, EnableMig, ResetGpu, Step
from gpu.planning.tables import GpuTable


class ContradictionError(PlanningError):
    """Two things are asked for that exclude each other."""


@dataclass(frozen=True, slots=True)
class CurrentGpu:
    """What a GPU holds now: MIG off, or on with instances that are free or in use.

    `is_whole_in_use` is for a GPU with MIG off; `is_mode_pending` says that a switched mode waits
    for a reset.
    """

    is_mig_enabled: bool
    free: Layout = ()
    in_use: Layout = ()
    is_whole_in_use: bool = False
    is_mode_pending: bool = False

    @classmethod
    def off(cls, *, in_use: bool = False, is_mode_pending: bool = False) -> Self:
        """Return a GPU with MIG off."""
        return cls(is_mig_enabled=False, is_whole_in_use=in_use, is_mode_pending=is_mode_pending)

    @classmethod
    def on(cls, *, free: Iterable[Instance] = (), in_use: Iterable[Instance] = ()) -> Self:
        """Return a GPU with MIG on."""
        return cls(is_mig_enabled=True, free=layout_of(free), in_use=layout_of(in_use))


@dataclass(frozen=True, slots=True)
class PlannedInstance:
    """An instance that the GPU will hold; `is_kept` if it holds it already."""

    instance: Instance
    is_kept: bool


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """Steps in their order, and what the GPU holds after them, those in use included."""

    steps: tuple[Step, ...]
    result: tuple[PlannedInstance, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.steps

    @property
    def layout(self) -> Layout:
        """Return the layout after the steps."""
        return tuple(item.instance for item in self.result)

    @property
    def destroyed(self) -> Layout:
        """Return the instances that go."""
        return tuple(Instance(s.profile, s.start) for s in self.steps if isinstance(s, Destroy))

    @property
    def created(self) -> Layout:
        """Return the instances that come."""
        return tuple(item.instance for item in self.result if not item.is_kept)

    @property
    def switches_mode(self) -> bool:
        """Return whether MIG mode is switched."""
        return any(isinstance(step, EnableMig | DisableMig) for step in self.steps)


def plan_gpu(
    table: GpuTable,
    current: CurrentGpu,
    want: Iterable[str] | Mapping[str, int],
    *,
    evict: Collection[Instance] = (),
    disable: bool = False,
) -> GpuPlan | NoPlan:
    """Return how the GPU comes to hold `want` besides its instances in use, no more and no less.

    `want` is a multiset of profile names. Of all ways the plan destroys the fewest instances, then
    the fewest memory slices, and of those it leaves the most room. Instances in use stay where they
    are, but those in `evict` count as free. An empty `want` leaves MIG mode as it is, or switches
    it off with `disable`.

    Raises a `PlanningError` when the input itself is wrong: an unknown profile, an impossible
    current layout, `disable` with something wanted, a table without placements.
    """
    wanted = _canonical(table, want)
    if disable and wanted:
        message = "MIG cannot be switched off and hold instances: ask for the one or the other."
        raise ContradictionError(message)
    current = _checked(table, current, evict)
    if not current.is_mig_enabled:
        return _plan_from_off(table, current, wanted, disable=disable)
    if disable:
        return _plan_disable(table, current)
    found = _least_destruction(geometry(table), current, wanted)
    if found is None:
        return refuse(table, current.in_use, wanted)
    kept, layout = found
    return _as_plan(layout, (*current.in_use, *kept), current.free)


def _plan_from_off(
    table: GpuTable, current: CurrentGpu, wanted: Counter[str], *, disable: bool
) -> GpuPlan | NoPlan:
    # None is a model whose mode nobody has described: a reset too many is only announced in vain.
    reset: tuple[Step, ...] = (ResetGpu(),) if table.mode_change_needs_reset is not False else ()
    if not wanted:
        undo = disable and current.is_mode_pending
        return GpuPlan((DisableMig(), *reset) if undo else (), ())
    found = _least_destruction(geometry(table), CurrentGpu.on(), wanted)
    if found is None:
        return refuse(table, (), wanted)
    if current.is_whole_in_use:
        sentence = (
            "The whole GPU is in use, so MIG mode cannot be switched on; wait or evict first."
        )
        return NoPlan((NoPlanReason.GPU_IN_USE,), sentence)
    plan = _as_plan(found[1], (), ())
    switch: tuple[Step, ...] = () if current.is_mode_pending else (EnableMig(),)
    return replace(plan, steps=(*switch, *reset, *plan.steps))


def _plan_disable(table: GpuTable, current: CurrentGpu) -> GpuPlan | NoPlan:
    if current.in_use:
        names = ", ".join(map(str, current.in_use))
        sentence = f"MIG cannot be switched off while {names} is in use."
        return NoPlan((NoPlanReason.INSTANCES_IN_USE,), sentence, blockers=current.in_use)
    destroys = [Destroy(item.profile, item.start) for item in current.free]
    reset: list[Step] = [ResetGpu()] if table.mode_change_needs_reset is not False else []
    return GpuPlan((*destroys, DisableMig(), *reset), ())


def _least_destruction(
    shapes: Geometry, current: CurrentGpu, wanted: Counter[str]
) -> tuple[Layout, Layout] | None:
    """Return the free instances that stay and the whole layout, or None when nothing fits."""
    for _, group in groupby(_keepable(shapes, current.free, wanted), key=lambda pair: pair[0]):
        best: tuple[Rank, Layout, Layout] | None = None
        for _, kept in group:
            fixed = (*current.in_use, *kept)
            missing = wanted - Counter(item.profile for item in kept)
            for load, added in arrangements(shapes, load_of(shapes, fixed), missing):
                layout = layout_of((*fixed, *(slot.instance for slot in added)))
                rank = rank_of(shapes, load, layout)
                if best is None or rank < best[0]:
                    best = (rank, kept, layout)
        if best is not None:
            return best[1:]
    return None


def _keepable(
    shapes: Geometry, free: Layout, wanted: Counter[str]
) -> Iterator[tuple[tuple[int, int], Layout]]:
    """Yield what may stay, with the instances and slices that go; least destruction first."""
    options = []
    for count in range(len(free) + 1):
        for kept in combinations(free, count):
            if Counter(item.profile for item in kept) <= wanted:
                gone = [shapes.shape_of(i.profile).size for i in free if i not in kept]
                options.append(((len(gone), sum(gone)), kept))
    return iter(sorted(options, key=lambda option: option[0]))


def _as_plan(layout: Layout, kept: Layout, free: Layout) -> GpuPlan:
    gone = [Destroy(item.profile, item.start) for item in free if item not in kept]
    come = [Create(item.profile, item.start) for item in layout if item not in kept]
    result = tuple(PlannedInstance(item, is_kept=item in kept) for item in layout)
    return GpuPlan((*gone, *come), result)


def _canonical(table: GpuTable, want: Iterable[str] | Mapping[str, int]) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for name, count in Counter(want).items():
        wanted[table.profile(name).name] += count
    return +wanted


def _checked(table: GpuTable, current: CurrentGpu, evict: Collection[Instance]) -> CurrentGpu:
    """Return the state with canonical names, evicted instances free; refuse an impossible one."""
    geometry(table)
    check_layout(table, (*current.free, *current.in_use))
    free, in_use, gone = (
        check_layout(table, items) for items in (current.free, current.in_use, evict)
    )
    return replace(
        current,
        free=layout_of((*free, *(item for item in in_use if item in gone))),
        in_use=tuple(item for item in in_use if item not in gone),
    )
