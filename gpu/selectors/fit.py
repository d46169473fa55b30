"""Asking planning whether, when and where a wish can be met."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from django.utils import timezone

from gpu.models import Allocation, GpuModel, Offering, SliceRequest
from gpu.planning.demands import Demand, Ending, Fit, FitWhen, Isolation
from gpu.planning.fitting import fit
from gpu.planning.gathering import Chooser
from gpu.planning.geometry import Instance
from gpu.planning.placing import Leaving, chooser, weights_of
from gpu.planning.snapshot import Beside, ClusterSnapshot
from gpu.selectors.snapshot import cluster_snapshot


class WishLike(Protocol):
    """What fitting needs of a wish or a request."""

    @property
    def offering(self) -> Offering:
        """Return the offering chosen."""
        ...

    @property
    def memory_mib(self) -> int:
        """Return the GPU memory of each slice."""
        ...

    @property
    def count(self) -> int:
        """Return how many slices."""
        ...

    @property
    def gpu_model(self) -> GpuModel | None:
        """Return the only model wanted, or None for any."""
        ...


def fit_wish(wish: WishLike, snapshot: ClusterSnapshot | None = None) -> Fit:
    """Return the answer for a wish or a request on the cluster as last observed."""
    seen = snapshot or cluster_snapshot()
    ends = tuple(endings(seen))
    return fit(seen, demand_of(wish), endings=ends, choose=_chooser(seen, ends))


def fit_request(slice_request: SliceRequest, *, avoid_gpus: Collection[str] = ()) -> Fit:
    """Return the answer for a request, planning nothing on the GPUs to avoid."""
    return fit_wish(slice_request, cluster_snapshot(avoid_gpus=avoid_gpus))


def fit_wishes(wishes: Sequence[WishLike]) -> list[Fit]:
    """Return the answer for each wish by itself, on one picture; the queries do not grow.

    No counter-offers are looked for.
    """
    seen = cluster_snapshot()
    ends = tuple(endings(seen))
    offerings = Offering.objects.filter(pk__in={wish.offering.pk for wish in wishes})
    allowed = {
        offering.pk: frozenset(model.product for model in offering.gpu_models.all()) or None
        for offering in offerings.prefetch_related("gpu_models")
    }
    choose = _chooser(seen, ends)
    demands = (
        _demand(wish, products=_wanted(wish) or allowed[wish.offering.pk]) for wish in wishes
    )
    return [fit(seen, demand, endings=ends, choose=choose, with_offers=False) for demand in demands]


def demand_of(wish: WishLike) -> Demand:
    """Return the wish in the words of planning."""
    return _demand(wish, products=_wanted(wish) or _allowed(wish.offering))


def endings(snapshot: ClusterSnapshot) -> Iterator[Ending]:
    """Yield when which devices become free, as far as rights with known places tell."""
    nodes = {gpu.uuid: node for node in snapshot.nodes for gpu in node.gpus}
    rows = Allocation.objects.filter(state=Allocation.State.ACTIVE, ends_at__isnull=False)
    for ends_at, placements, memory_mib in rows.values_list("ends_at", "placements", "memory_mib"):
        for place in placements:
            node = nodes.get(place["gpu"])
            if ends_at is None or node is None:
                continue
            instance = None
            if place["profile"]:
                instance = Instance(profile=place["profile"], start=place["start"])
            # The node gets back what the snapshot took for it: without that nothing new fits there.
            beside = node.part_of(memory_mib)
            yield Ending(at=ends_at, gpu_uuid=place["gpu"], instance=instance, beside=beside)


def _chooser(snapshot: ClusterSnapshot, ends: Iterable[Ending]) -> Chooser:
    """Return how GPUs are picked: room is kept for what is held now, near ends are waited for."""
    gpus = [gpu for node in snapshot.nodes for gpu in node.gpus if gpu.table]
    tables = {gpu.table for gpu in gpus if gpu.table}
    held = Counter({p.name: 0 for table in tables for p in table.profiles if not p.attribute})
    held.update(item.profile for gpu in gpus for item in gpu.in_use)
    now = timezone.now()
    left = {
        (end.gpu_uuid, end.instance): (end.at - now).total_seconds()
        for end in ends
        if end.instance is not None
    }
    return chooser(weights_of(held), Leaving(left) if left else None)


def memory_that_needs_a_change() -> int:
    """Return a size, in MiB, for which some idle part of a GPU has to be cut first.

    Falls back to the smallest size that can be had at all.
    """
    snapshot = cluster_snapshot()
    sizes = sorted(
        {
            profile.memory_mib
            for node in snapshot.nodes
            for gpu in node.gpus
            if gpu.table
            for profile in gpu.table.profiles
            if profile.memory_mib and not profile.attribute
        }
    )
    offering = Offering.objects.get(isolation="isolated", is_active=True)
    products = _allowed(offering)
    answers = [
        (size, fit(snapshot, Demand(Isolation.ISOLATED, memory_mib=size, products=products)))
        for size in sizes
    ]
    for when in (FitWhen.AFTER_CHANGE, FitWhen.NOW):
        for size, answer in answers:
            if answer.when is when:
                return size
    return sizes[0] if sizes else 1024


def _demand(wish: WishLike, *, products: frozenset[str] | None) -> Demand:
    return Demand(
        isolation=Isolation(wish.offering.isolation),
        memory_mib=wish.memory_mib,
        count=wish.count,
        products=products,
        beside=_beside(wish.offering),
    )


def _wanted(wish: WishLike) -> frozenset[str] | None:
    return frozenset({wish.gpu_model.product}) if wish.gpu_model else None


def _allowed(offering: Offering) -> frozenset[str] | None:
    return frozenset(offering.gpu_models.values_list("product", flat=True)) or None


def _beside(offering: Offering) -> Beside | None:
    amounts = (offering.cpu_milli, offering.memory_mib, offering.storage_mib)
    if None in amounts:
        return None
    return Beside(*(amount or 0 for amount in amounts))
