"""Gathering: how a cluster gives the wanted number of one kind, GPU by GPU, least harm first.

What is free is taken first; then GPUs are cut, where that disturbs least and the least room is
lost; and only when that is asked for is anything taken from those who have it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpu.planning.demands import Blocker, Demand, FitWhen, GpuChange, Isolation, Kind, Option, Site
from gpu.planning.geometry import Instance
from gpu.planning.snapshot import Beside, ClusterSnapshot, GpuSnapshot, NodeSnapshot
from gpu.planning.supply import (
    Cut,
    Force,
    cut_for,
    force_for,
    free_now,
    gives,
    isolation_of,
    obstacle,
    obstacle_to_change,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A GPU that could be cut for one slice more; `units` counts all that are planned on it."""

    node: str
    gpu: GpuSnapshot
    cut: Cut
    units: int


type Chooser = Callable[[Sequence[Candidate]], Candidate]


def least_room_lost(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that disturbs least, then loses least room, then has most in use."""
    return min(
        candidates,
        key=lambda item: (
            item.cut.effort,
            item.cut.room_lost,
            -len(item.gpu.in_use),
            item.node,
            item.gpu.index,
        ),
    )


@dataclass(slots=True)
class _Basket:
    """What is gathered so far, and what the nodes have left beside their GPUs."""

    kind: Kind
    demand: Demand
    left: dict[str, Beside | None]
    sites: list[Site] = field(default_factory=list)
    cuts: dict[str, Candidate] = field(default_factory=dict)
    forces: dict[str, tuple[NodeSnapshot, GpuSnapshot, Force, int]] = field(default_factory=dict)
    beside: Beside | None = None

    @property
    def missing(self) -> int:
        """Return how many slices are still to be found."""
        return self.demand.count - len(self.sites)

    def amounts(self, node: NodeSnapshot) -> Beside | None:
        """Return what goes with one slice on the node, ``None`` when unknown."""
        return self.demand.beside or node.part_of(self.kind.memory_mib)

    def holds(self, node: NodeSnapshot) -> bool:
        """Return whether the node still holds what goes with one more slice."""
        amounts, left = self.amounts(node), self.left[node.name]
        return amounts is None or left is None or left.holds(amounts)

    def add(self, node: NodeSnapshot, site: Site) -> None:
        """Put one slice in."""
        amounts, left = self.amounts(node), self.left[node.name]
        if amounts is not None:
            self.beside = amounts if self.beside is None else self.beside.least(amounts)
            self.left[node.name] = None if left is None else left.less(amounts)
        self.sites.append(site)


type Places = list[tuple[NodeSnapshot, GpuSnapshot]]


def gather(
    snapshot: ClusterSnapshot,
    demand: Demand,
    kind: Kind,
    *,
    upto: FitWhen,
    choose: Chooser = least_room_lost,
) -> Option | None:
    """Return how the demand is met with the kind, going no further than `upto`; None if not."""
    basket = _gathered(snapshot, demand, kind, upto=upto, choose=choose)
    return None if basket.missing else _as_option(basket)


def most_of(snapshot: ClusterSnapshot, demand: Demand, kind: Kind, *, upto: FitWhen) -> int:
    """Return how many of the wanted slices there are, going no further than `upto`."""
    return len(_gathered(snapshot, demand, kind, upto=upto, choose=least_room_lost).sites)


def best_option(
    snapshot: ClusterSnapshot,
    demand: Demand,
    kinds: Iterable[Kind],
    *,
    upto: FitWhen,
    choose: Chooser = least_room_lost,
) -> Option | None:
    """Return the soonest way over all kinds, then the one that gives least beyond what is asked."""
    found = [
        option
        for kind in kinds
        if (option := gather(snapshot, demand, kind, upto=upto, choose=choose)) is not None
    ]
    return min(found, key=_rank, default=None)


def _rank(option: Option) -> tuple[int, int, int, int, str, str]:
    return (
        option.when,
        len(option.blockers),
        option.kind.memory_mib,
        len(option.changes),
        option.kind.product,
        option.kind.resource_name,
    )


def _gathered(
    snapshot: ClusterSnapshot, demand: Demand, kind: Kind, *, upto: FitWhen, choose: Chooser
) -> _Basket:
    basket = _Basket(kind, demand, {node.name: node.left for node in snapshot.nodes})
    places = [(n, gpu) for n in snapshot.nodes for gpu in n.gpus if gives(gpu, kind)]
    _take_free(basket, places)
    if basket.missing and upto >= FitWhen.AFTER_CHANGE:
        _cut(basket, places, choose)
    if basket.missing and upto >= FitWhen.AFTER_DISRUPTION:
        _take_by_force(basket, places)
    return basket


def _take_free(basket: _Basket, places: Places) -> None:
    offers = [(node, gpu, _free(gpu, basket.kind)) for node, gpu in places]
    offers.sort(key=lambda offer: (len(offer[2]), offer[0].name, offer[1].index))
    for node, gpu, sites in offers:
        if obstacle(node, gpu) is None:
            for instance in sites:
                if basket.missing and basket.holds(node):
                    basket.add(node, Site(node.name, gpu.uuid, instance))


def _cut(basket: _Basket, places: Places, choose: Chooser) -> None:
    nodes = {gpu.uuid: node for node, gpu in places}
    candidates: dict[str, Candidate] = {}
    for node, gpu in places:
        if obstacle_to_change(node, gpu) is None:
            _consider(candidates, node, gpu, basket.kind, units=1)
    while basket.missing:
        able = [c for c in candidates.values() if basket.holds(nodes[c.gpu.uuid])]
        if not able:
            return
        chosen = _same_again(basket, able) or choose(able)
        uuid, node = chosen.gpu.uuid, nodes[chosen.gpu.uuid]
        basket.add(node, Site(node.name, uuid))
        basket.cuts[uuid] = chosen
        _consider(candidates, node, chosen.gpu, basket.kind, units=chosen.units + 1)


def _consider(
    candidates: dict[str, Candidate],
    node: NodeSnapshot,
    gpu: GpuSnapshot,
    kind: Kind,
    *,
    units: int,
) -> None:
    cut = cut_for(gpu, kind, units)
    candidates.pop(gpu.uuid, None)
    if cut is not None:
        candidates[gpu.uuid] = Candidate(node.name, gpu, cut, units)


def _same_again(basket: _Basket, able: Sequence[Candidate]) -> Candidate | None:
    """Return a GPU that is cut anyway and gives one more with no more effort: one change fewer."""
    for candidate in able:
        before = basket.cuts.get(candidate.gpu.uuid)
        if before is not None and candidate.cut.effort == before.cut.effort:
            return candidate
    return None


def _take_by_force(basket: _Basket, places: Places) -> None:
    taken = {site.gpu_uuid for site in basket.sites}
    is_whole = isolation_of(basket.kind) is Isolation.WHOLE
    able = [
        (node, gpu)
        for node, gpu in places
        if obstacle_to_change(node, gpu) is None and not (is_whole and gpu.uuid in taken)
    ]
    while basket.missing:
        best: tuple[tuple[int, int, str, int], NodeSnapshot, GpuSnapshot, Force, int] | None = None
        for node, gpu in able:
            if not basket.holds(node) or (is_whole and gpu.uuid in basket.forces):
                continue
            units = _planned(basket, gpu) + 1
            force = force_for(gpu, basket.kind, units)
            if force is not None:
                known = basket.forces.get(gpu.uuid)
                harm = _harm(gpu, force) - (_harm(gpu, known[2]) if known else 0)
                rank = (harm, len(force.plan.destroyed), node.name, gpu.index)
                if best is None or rank < best[0]:
                    best = (rank, node, gpu, force, units)
        if best is None:
            return
        _, node, gpu, force, units = best
        basket.add(node, Site(node.name, gpu.uuid))
        basket.forces[gpu.uuid] = (node, gpu, force, units)


def _planned(basket: _Basket, gpu: GpuSnapshot) -> int:
    """Return how many more slices are planned on the GPU, by cutting or by force."""
    if gpu.uuid in basket.forces:
        return basket.forces[gpu.uuid][3]
    return basket.cuts[gpu.uuid].units if gpu.uuid in basket.cuts else 0


def _harm(gpu: GpuSnapshot, force: Force) -> int:
    return max(1, len(gpu.holders)) if force.takes_whole else len(force.blockers)


def _free(gpu: GpuSnapshot, kind: Kind) -> list[Instance | None]:
    free = free_now(gpu, kind)
    return [None] * free if isinstance(free, int) else list(free)


def _as_option(basket: _Basket) -> Option:
    changes = [
        GpuChange(cut.node, uuid, cut.cut.plan, cut.units)
        for uuid, cut in basket.cuts.items()
        if uuid not in basket.forces
    ]
    blockers: list[Blocker] = []
    for uuid, (node, gpu, force, units) in basket.forces.items():
        if not force.plan.is_empty:
            changes.append(GpuChange(node.name, uuid, force.plan, units))
        blockers += _blockers(node, gpu, force)
    when = FitWhen.AFTER_CHANGE if changes else FitWhen.NOW
    return Option(
        kind=basket.kind,
        when=FitWhen.AFTER_DISRUPTION if blockers else when,
        sites=tuple(basket.sites),
        changes=tuple(changes),
        blockers=tuple(blockers),
        beside=basket.beside,
    )


def _blockers(node: NodeSnapshot, gpu: GpuSnapshot, force: Force) -> list[Blocker]:
    if force.takes_whole:
        return [Blocker(node.name, gpu.uuid, None, holder) for holder in gpu.holders or ("",)]
    return [
        Blocker(node.name, gpu.uuid, item.instance, item.holder or "")
        for item in gpu.instances
        if item.instance in force.blockers
    ]
