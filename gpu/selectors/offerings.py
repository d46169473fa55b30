"""What each offering gives: the kinds of slices, their real memory, and what of them is free."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from django.db.models import Case, IntegerField, Value, When

from gpu.models import GpuModel, Offering
from gpu.models.requests import Isolation as IsolationChoice
from gpu.planning.demands import Demand, FitWhen, Isolation, Kind
from gpu.planning.gathering import most_of
from gpu.planning.kinds import instance_kind, kinds_for, plain_profiles, tables_of
from gpu.planning.snapshot import ClusterSnapshot
from gpu.selectors.fit import demand_of

_EVERY = 1_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """A wish without a purpose: what fitting needs, and nothing that is written down."""

    offering: Offering
    memory_mib: int
    count: int = 1
    gpu_model: GpuModel | None = None


@dataclass(frozen=True, slots=True)
class Availability:
    """How many slices of a kind there are for one person at this moment.

    `after_change` counts those that are free or could be cut without harm to anybody, at most as
    many more as one request may ask for; `is_capped` says that there may be even more.
    """

    kind: Kind
    free_now: int
    after_change: int
    is_capped: bool


@dataclass(frozen=True, slots=True)
class Offered:
    """An offering with the kinds that the cluster has of it, smallest first."""

    offering: Offering
    kinds: tuple[Kind, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the real amounts of memory, in MiB, that can be had here, smallest first."""
        return tuple(sorted({kind.memory_mib for kind in self.kinds}))


def active_offerings() -> list[Offering]:
    """Return what is offered, best isolated first; with their models, in 2 queries."""
    order = Case(
        *(When(isolation=value, then=Value(place)) for place, value in enumerate(_ORDER)),
        output_field=IntegerField(),
    )
    rows = Offering.objects.filter(is_active=True).prefetch_related("gpu_models")
    return list(rows.order_by(order, "name"))


def offered(snapshot: ClusterSnapshot, offerings: Iterable[Offering]) -> list[Offered]:
    """Return each offering with its kinds; asks the database nothing if their models are there."""
    return [
        Offered(offering, tuple(sorted(_kinds(snapshot, offering), key=_size)))
        for offering in offerings
    ]


def availability(snapshot: ClusterSnapshot, item: Offered) -> list[Availability]:
    """Return how much of each kind is free now, and how much after a harmless change; 1 query."""
    base = demand_of(Ask(item.offering, memory_mib=0))
    return [
        _availability(snapshot, item.offering, _demand(base, kind), kind) for kind in item.kinds
    ]


def model_names() -> dict[str, str]:
    """Return the name of each GPU product as people say it."""
    return dict(GpuModel.objects.values_list("product", "name"))


def models_in(snapshot: ClusterSnapshot) -> Sequence[GpuModel]:
    """Return the models that the cluster has, by name."""
    return list(GpuModel.objects.filter(product__in=snapshot.products).order_by("name"))


_ORDER = (IsolationChoice.ISOLATED, IsolationChoice.SHARED, IsolationChoice.WHOLE)


def _kinds(snapshot: ClusterSnapshot, offering: Offering) -> Iterator[Kind]:
    products = frozenset(model.product for model in offering.gpu_models.all()) or None
    if offering.isolation != IsolationChoice.ISOLATED:
        kinds, _reasons = kinds_for(
            snapshot, Demand(Isolation(offering.isolation), products=products)
        )
        yield from kinds
        return
    for product in snapshot.products:
        if products is not None and product not in products:
            continue
        gpus = [gpu for node in snapshot.nodes for gpu in node.gpus if gpu.product == product]
        for table in tables_of(gpus):
            if table.is_published:
                for profile in plain_profiles(table):
                    yield instance_kind(table, profile, product)


def _availability(
    snapshot: ClusterSnapshot, offering: Offering, demand: Demand, kind: Kind
) -> Availability:
    free = most_of(snapshot, demand, kind, upto=FitWhen.NOW)
    most = free + offering.max_count
    some = replace(demand, count=most)
    after = most_of(snapshot, some, kind, upto=FitWhen.AFTER_CHANGE)
    return Availability(kind, free, after, is_capped=after >= most)


def _demand(base: Demand, kind: Kind) -> Demand:
    return replace(
        base,
        profile=kind.profile,
        memory_mib=0 if kind.profile else kind.memory_mib,
        products=frozenset({kind.product}),
        count=_EVERY,
    )


def _size(kind: Kind) -> tuple[int, int, str]:
    return kind.memory_mib, kind.compute, kind.product
