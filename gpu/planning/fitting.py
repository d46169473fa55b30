"""Fitting: whether a cluster meets a demand now, after a change, later or never, and what instead.

Decisions see the snapshot alone; `gathering` says how slices are found, `waiting` when rights end.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpu.planning.demands import (
    Demand,
    Ending,
    Estimate,
    Fit,
    FitReason,
    FitWhen,
    Kind,
    Option,
    Reason,
    worst_first,
)
from gpu.planning.gathering import Chooser, best_option, least_room_lost
from gpu.planning.kinds import kinds_for
from gpu.planning.offers import counter_offers
from gpu.planning.snapshot import ClusterSnapshot, GpuSnapshot, NodeSnapshot
from gpu.planning.supply import free_count, gives, most_when_empty, obstacle, why_not_now
from gpu.planning.waiting import estimate


def fit(
    snapshot: ClusterSnapshot,
    demand: Demand,
    *,
    endings: Iterable[Ending] = (),
    choose: Chooser = least_room_lost,
    with_offers: bool = True,
) -> Fit:
    """Return when and how the cluster meets the demand, why not sooner, and what instead.

    `endings` are the rights with an end, for the estimate; `choose` picks the GPU to cut. Without
    `with_offers` no counter-offers are looked for.
    """
    kinds, reasons = kinds_for(snapshot, demand)
    option = best_option(snapshot, demand, kinds, upto=FitWhen.AFTER_CHANGE, choose=choose)
    later: Estimate | None = None
    disruptive: Option | None = None
    if option is None:
        later = estimate(snapshot, demand, kinds, endings, choose)
        disruptive = best_option(
            snapshot, demand, kinds, upto=FitWhen.AFTER_DISRUPTION, choose=choose
        )
    possible = [kind for kind in kinds if _could_ever(snapshot, demand, kind)]
    when = _when(option, later, disruptive, is_possible=bool(possible))
    if when is not FitWhen.NOW:
        reasons = worst_first((*reasons, *_why_not(snapshot, demand, kinds, possible)))
    offers = with_offers and when is not FitWhen.NOW
    return Fit(
        demand=demand,
        when=when,
        option=option,
        later=later,
        disruptive=disruptive,
        reasons=() if when is FitWhen.NOW else reasons,
        counter_offers=counter_offers(snapshot, demand, kinds, when) if offers else (),
    )


def _when(
    option: Option | None,
    later: Estimate | None,
    disruptive: Option | None,
    *,
    is_possible: bool,
) -> FitWhen:
    if option is not None:
        return option.when
    if later is None and disruptive is not None:
        return FitWhen.AFTER_DISRUPTION
    return FitWhen.LATER if later is not None or is_possible else FitWhen.NEVER


def _could_ever(snapshot: ClusterSnapshot, demand: Demand, kind: Kind) -> bool:
    """Return whether the cluster meets the demand once all its nodes are ready and empty."""
    most = sum(
        most_when_empty(gpu, kind)
        for node, gpu in _places(snapshot, kind)
        if gpu.is_in_service and _is_large_enough(node, demand)
    )
    return most >= demand.count


def _why_not(
    snapshot: ClusterSnapshot, demand: Demand, kinds: Sequence[Kind], possible: Sequence[Kind]
) -> Iterator[Reason]:
    for kind in kinds:
        if kind not in possible:
            yield Reason(FitReason.TOO_MANY, kind.product)
        for node, gpu in _places(snapshot, kind):
            code = _why_not_here(node, gpu, demand, kind)
            if code is not None:
                yield Reason(code, kind.product, 1)


def _why_not_here(
    node: NodeSnapshot, gpu: GpuSnapshot, demand: Demand, kind: Kind
) -> FitReason | None:
    """Return why the GPU gives nothing of the kind at once, or no more; None if it gives all."""
    if not _is_large_enough(node, demand):
        return FitReason.NODE_TOO_SMALL
    blocked = obstacle(node, gpu)
    if blocked is not None:
        return blocked
    if free_count(gpu, kind):
        wanted = min(demand.count, sum(free_count(other, kind) for other in node.gpus))
        amounts = demand.beside or node.part_of(kind.memory_mib)
        if amounts and node.left and not node.left.holds(amounts.part(wanted, 1)):
            return FitReason.NODE_FULL
        if gpu.is_idle:
            return None
    return why_not_now(gpu, kind)


def _is_large_enough(node: NodeSnapshot, demand: Demand) -> bool:
    return demand.beside is None or node.total is None or node.total.holds(demand.beside)


def _places(snapshot: ClusterSnapshot, kind: Kind) -> Iterator[tuple[NodeSnapshot, GpuSnapshot]]:
    return ((node, gpu) for node in snapshot.nodes for gpu in node.gpus if gives(gpu, kind))
