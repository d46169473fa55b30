"""Counter-offers: demands near the one made that can be met at once."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from gpu.planning.demands import CounterOffer, Demand, FitWhen, Isolation, Kind, OfferKind, Option
from gpu.planning.gathering import best_option, most_of
from gpu.planning.kinds import kinds_for, plain_profiles, tables_of
from gpu.planning.snapshot import ClusterSnapshot


def counter_offers(
    snapshot: ClusterSnapshot, demand: Demand, kinds: Iterable[Kind], when: FitWhen
) -> tuple[CounterOffer, ...]:
    """Return what could be had instead sooner: at once, or after a change that harms nobody.

    The order is fixed: fewer of the same, the next smaller, the next larger, another product,
    another isolation. Each of these appears once at most.
    """
    found = []
    for kind, demands in (
        (OfferKind.FEWER, _fewer(snapshot, demand, kinds)),
        (OfferKind.SMALLER, _smaller(snapshot, demand)),
        (OfferKind.LARGER, _larger(snapshot, demand)),
        (OfferKind.OTHER_PRODUCT, _other_product(demand)),
        (OfferKind.SHARE, _as(demand, Isolation.SHARED)),
        (OfferKind.ISOLATED, _as(demand, Isolation.ISOLATED)),
        (OfferKind.WHOLE, _as(demand, Isolation.WHOLE)),
    ):
        offer = _first(snapshot, kind, demands, when)
        if offer is not None:
            found.append(offer)
    return tuple(found)


def _first(
    snapshot: ClusterSnapshot, kind: OfferKind, demands: Iterable[Demand], when: FitWhen
) -> CounterOffer | None:
    """Return the first of the demands that is met sooner than the one made."""
    upto = FitWhen.NOW if when is FitWhen.AFTER_CHANGE else FitWhen.AFTER_CHANGE
    for demand in demands:
        option = _met(snapshot, demand, upto)
        if option is not None:
            return CounterOffer(kind, demand, option)
    return None


def _met(snapshot: ClusterSnapshot, demand: Demand, upto: FitWhen) -> Option | None:
    kinds, _ = kinds_for(snapshot, demand)
    return best_option(snapshot, demand, kinds, upto=upto)


def _fewer(snapshot: ClusterSnapshot, demand: Demand, kinds: Iterable[Kind]) -> Iterator[Demand]:
    """Yield the demand for as many as there are: after changes, then at once."""
    known = tuple(kinds)
    for upto in (FitWhen.AFTER_CHANGE, FitWhen.NOW):
        most = max((most_of(snapshot, demand, kind, upto=upto) for kind in known), default=0)
        if 0 < most < demand.count:
            yield replace(demand, count=most)


def _smaller(snapshot: ClusterSnapshot, demand: Demand) -> Iterator[Demand]:
    """Yield demands for less memory, largest first: what other profiles or shares really hold."""
    asked = _asked(snapshot, demand)
    sizes = {size for size in _sizes(snapshot, demand) if size < asked}
    for size in sorted(sizes, reverse=True):
        yield replace(demand, memory_mib=size, profile=None)


def _larger(snapshot: ClusterSnapshot, demand: Demand) -> Iterator[Demand]:
    """Yield demands for more memory, smallest first."""
    asked = _asked(snapshot, demand)
    for size in sorted(size for size in _sizes(snapshot, demand) if size > asked):
        yield replace(demand, memory_mib=size, profile=None)


def _other_product(demand: Demand) -> Iterator[Demand]:
    if demand.products is not None:
        yield replace(demand, products=None)


def _as(demand: Demand, isolation: Isolation) -> Iterator[Demand]:
    if demand.isolation is not isolation and demand.profile is None:
        yield replace(demand, isolation=isolation)


def _asked(snapshot: ClusterSnapshot, demand: Demand) -> int:
    """Return the memory asked for; of a named profile the least that it holds here."""
    if demand.profile is None:
        return demand.memory_mib
    kinds, _ = kinds_for(snapshot, demand)
    return min((kind.memory_mib for kind in kinds), default=0)


def _sizes(snapshot: ClusterSnapshot, demand: Demand) -> set[int]:
    """Return the amounts of memory that slices of the wanted isolation have here."""
    gpus = [
        gpu
        for node in snapshot.nodes
        for gpu in node.gpus
        if demand.products is None or gpu.product in demand.products
    ]
    isolation = demand.isolation
    match isolation:
        case Isolation.WHOLE:
            return {gpu.memory_mib for gpu in gpus}
        case Isolation.SHARED:
            return {gpu.memory_mib // gpu.replicas for gpu in gpus if gpu.replicas > 1}
        case Isolation.ISOLATED:
            published = [table for table in tables_of(gpus) if table.is_published]
            return {item.memory_mib or 0 for table in published for item in plain_profiles(table)}
        case _:
            assert_never(isolation)
