"""What is granted, to whom, of what: the manager's figures, in GiB and in sevenths of a GPU.

Rights come from the ledger and the rest from the cluster as last observed; nothing is guessed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Min, Q

from gpu.models import Allocation, GpuModel, GpuPod, Node, ResourcePool, SliceRequest
from gpu.planning.demands import FitReason
from gpu.planning.errors import PlanningError
from gpu.planning.layouts import free_slices, unreachable_slices
from gpu.planning.profiles import InvalidProfileError, profile_from_resource_name
from gpu.planning.quotas import Amounts
from gpu.planning.sharing import Units, instance_units, share_units, whole_units
from gpu.planning.snapshot import ClusterSnapshot, GpuMode, GpuSnapshot, NodeSnapshot
from gpu.planning.supply import obstacle
from gpu.planning.tables import GpuTable
from gpu.selectors.snapshot import cluster_snapshot
from gpu.selectors.tables import table_of
from tenants.models import Tenant

_NOTHING = Amounts()
_FINISHED_PODS = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Split:
    """Where a capacity goes; every part is told, so that they add up to it.

    `foreign` is held by Pods without a right; `changing` is being made or about to be; `closed`
    is out of service or on a node that takes no new work; `unknown` is on nodes that do not
    answer; `lost` is what no further instance can reach beside those that are there.
    """

    capacity: Amounts = _NOTHING
    granted: Amounts = _NOTHING
    foreign: Amounts = _NOTHING
    changing: Amounts = _NOTHING
    closed: Amounts = _NOTHING
    unknown: Amounts = _NOTHING
    free: Amounts = _NOTHING
    lost: Amounts = _NOTHING

    def __add__(self, other: "Split") -> "Split":
        """Return the sum, part by part."""
        return Split(
            *(getattr(self, name) + getattr(other, name) for name in Split.__dataclass_fields__)
        )


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """One GPU model: how many GPUs, and where their capacity goes."""

    model: GpuModel
    gpus: int
    split: Split


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant: its rights, its quota, and how many of its devices no Pod holds now."""

    tenant: Tenant
    granted: Amounts
    promised: Amounts
    slices: int
    without_pod: int
    waiting: int

    @property
    def limit(self) -> Amounts:
        """Return the quota."""
        return Amounts(self.tenant.memory_limit_mib, self.tenant.compute_limit)


@dataclass(frozen=True, slots=True)
class KindFigures:
    """One kind of isolation: what is granted of it, to how many tenants."""

    isolation: str
    granted: Amounts
    slices: int
    tenants: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that the manager's page shows; `seen_at` is the age of the oldest node's news."""

    total: Split
    gpus: int
    models: tuple[ModelFigures, ...]
    tenants: tuple[TenantFigures, ...]
    kinds: tuple[KindFigures, ...]
    seen_at: datetime | None


def overview() -> Overview:
    """Return the figures of this moment; a constant number of queries."""
    snapshot = cluster_snapshot()
    rights = list(
        Allocation.objects.exclude(state=Allocation.State.ENDED).select_related(
            "pool", "slice_request__offering"
        )
    )
    models = _models(snapshot, rights)
    total = Split()
    for figures in models:
        total += figures.split
    present = Node.objects.filter(is_present=True)
    return Overview(
        total=total,
        gpus=sum(figures.gpus for figures in models),
        models=models,
        tenants=_tenants(rights),
        kinds=_kinds(rights),
        seen_at=present.aggregate(at=Min("observed_at"))["at"],
    )


@dataclass(slots=True)
class _Tally:
    """Amounts of one model, added up GPU by GPU."""

    gpus: int = 0
    capacity: Amounts = _NOTHING
    held: Amounts = _NOTHING
    unheld: dict[str, Amounts] = field(default_factory=lambda: defaultdict(Amounts))


def _models(snapshot: ClusterSnapshot, rights: Iterable[Allocation]) -> tuple[ModelFigures, ...]:
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    for node in snapshot.nodes:
        for gpu in node.gpus:
            _count(tallies[gpu.product], node, gpu)
    rows = {model.pk: model for model in GpuModel.objects.all()}
    granted: defaultdict[int, Amounts] = defaultdict(Amounts)
    for right in rights:
        if right.state == Allocation.State.ACTIVE:
            granted[right.pool.model_id] += amounts_of(right)
    claims = _claims(snapshot, rows)
    return tuple(
        ModelFigures(model, tally.gpus, _split(tally, granted[model.pk], claims[model.pk]))
        for model in sorted(rows.values(), key=lambda row: row.name)
        if (tally := tallies.get(model.product)) is not None
    )


def amounts_of(right: Allocation) -> Amounts:
    """Return what a right amounts to, all its slices together."""
    return Amounts(right.memory_mib, right.compute).times(right.count)


def _count(tally: _Tally, node: NodeSnapshot, gpu: GpuSnapshot) -> None:
    whole = _amounts(whole_units(gpu.memory_mib))
    held, free = _held(gpu), _free(gpu)
    rest = _less(whole, held)
    tally.gpus += 1
    tally.capacity += whole
    tally.held += held
    match obstacle(node, gpu):
        case None:
            tally.unheld["free"] += free
            tally.unheld["lost"] += _less(rest, free)
        case FitReason.CHANGING:
            tally.unheld["changing"] += rest
        case FitReason.NODE_NOT_READY:
            tally.unheld["unknown"] += rest
        case _:
            tally.unheld["closed"] += rest


def _held(gpu: GpuSnapshot) -> Amounts:
    """Return what of a GPU somebody holds or has a right to."""
    if gpu.mode is not GpuMode.MIG:
        whole = whole_units(gpu.memory_mib)
        return _amounts(share_units(whole, gpu.replicas)).times(gpu.replicas - gpu.free_replicas)
    taken = (item.instance.profile for item in gpu.instances if not item.is_free)
    return _sum_of_instances(gpu.table, taken)


def _free(gpu: GpuSnapshot) -> Amounts:
    """Return what of a GPU can still be given: free devices, and slices that can be cut."""
    if gpu.mode is not GpuMode.MIG:
        whole = whole_units(gpu.memory_mib)
        return _amounts(share_units(whole, gpu.replicas)).times(gpu.free_replicas)
    if gpu.table is None or not gpu.table.memory_slices:
        return _NOTHING
    ready = _sum_of_instances(gpu.table, (item.profile for item in gpu.free))
    blank = len(free_slices(gpu.table, gpu.layout))
    blank -= len(unreachable_slices(gpu.table, gpu.layout))
    if not blank:
        return ready
    there = _sum_of_instances(gpu.table, (item.profile for item in gpu.layout))
    compute = whole_units(gpu.memory_mib).millisevenths - there.millisevenths
    memory = gpu.memory_mib * blank // gpu.table.memory_slices
    return ready + Amounts(memory, max(0, compute))


def _sum_of_instances(table: GpuTable | None, profiles: Iterable[str]) -> Amounts:
    total = _NOTHING
    for profile in profiles:
        try:
            total += _amounts(instance_units(table, profile)) if table else _NOTHING
        except PlanningError:
            continue  # an instance of unknown size: its memory counts with what is lost
    return total


@dataclass(slots=True)
class _Claims:
    """What of a model is held without a right, and whether devices are kept for slices to come."""

    foreign: Amounts = _NOTHING
    has_reserved: bool = False


def _split(tally: _Tally, granted: Amounts, claims: _Claims) -> Split:
    rest = _less(tally.held, granted)
    # What is held and not granted is foreign or kept for a slice that is being made; where
    # nothing is kept, all of it is foreign, whatever share or instance it is.
    foreign = _NOTHING
    if claims.foreign != _NOTHING:
        foreign = _least(rest, claims.foreign) if claims.has_reserved else rest
    rest = _less(rest, foreign)
    kept, odd = (rest, _NOTHING) if claims.has_reserved else (_NOTHING, rest)
    return Split(
        capacity=tally.capacity,
        granted=granted,
        foreign=foreign,
        changing=tally.unheld["changing"] + kept,
        closed=tally.unheld["closed"],
        unknown=tally.unheld["unknown"],
        free=tally.unheld["free"],
        lost=tally.unheld["lost"] + odd,
    )


def _claims(snapshot: ClusterSnapshot, models: Mapping[int, GpuModel]) -> defaultdict[int, _Claims]:
    """Return who claims what besides the grants, by model; 1 query."""
    replicas = {
        gpu.product: gpu.replicas
        for node in snapshot.nodes
        for gpu in node.gpus
        if gpu.mode is not GpuMode.MIG
    }
    found: defaultdict[int, _Claims] = defaultdict(_Claims)
    for pool in ResourcePool.objects.filter(Q(foreign__gt=0) | Q(reserved__gt=0)):
        model, claims = models[pool.model_id], found[pool.model_id]
        each = _unit(model, pool.resource_name, replicas.get(model.product, 1))
        claims.foreign += each.times(pool.foreign)
        claims.has_reserved = claims.has_reserved or pool.reserved > 0
    return found


def _unit(model: GpuModel, resource_name: str, replicas: int) -> Amounts:
    try:
        profile = profile_from_resource_name(resource_name)
    except InvalidProfileError:
        return _amounts(share_units(whole_units(model.memory_mib), replicas))
    return _sum_of_instances(table_of(model), [profile])


def _tenants(rights: Iterable[Allocation]) -> tuple[TenantFigures, ...]:
    granted: defaultdict[int, Amounts] = defaultdict(Amounts)
    promised: defaultdict[int, Amounts] = defaultdict(Amounts)
    devices: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for right in rights:
        if right.state != Allocation.State.ACTIVE:
            promised[right.tenant_id] += amounts_of(right)
            continue
        granted[right.tenant_id] += amounts_of(right)
        devices[right.tenant_id][right.pool.resource_name] += right.count
    held = _held_by_pods()
    waiting = _open_requests()
    return tuple(
        TenantFigures(
            tenant=tenant,
            granted=granted[tenant.pk],
            promised=promised[tenant.pk],
            slices=devices[tenant.pk].total(),
            without_pod=(devices[tenant.pk] - held[tenant.pk]).total(),
            waiting=waiting[tenant.pk],
        )
        for tenant in Tenant.objects.order_by("name")
    )


def _open_requests() -> Counter[int]:
    """Return how many requests of each tenant are not ready yet; 1 query."""
    rows = SliceRequest.objects.filter(state__in=SliceRequest.OPEN_STATES).order_by()
    counts = rows.values_list("tenant_id").annotate(number=Count("pk"))
    return Counter(dict(counts.values_list("tenant_id", "number")))


def _held_by_pods() -> defaultdict[int, Counter[str]]:
    """Return how many devices of each kind the Pods of each tenant hold; 1 query."""
    held: defaultdict[int, Counter[str]] = defaultdict(Counter)
    pods = GpuPod.objects.filter(tenant__isnull=False, node__isnull=False)
    for tenant_id, resources in pods.exclude(phase__in=_FINISHED_PODS).values_list(
        "tenant_id", "resources"
    ):
        if tenant_id is not None:
            held[tenant_id].update(resources)
    return held


def _kinds(rights: Iterable[Allocation]) -> tuple[KindFigures, ...]:
    granted: defaultdict[str, Amounts] = defaultdict(Amounts)
    slices: Counter[str] = Counter()
    tenants: defaultdict[str, set[int]] = defaultdict(set)
    for right in rights:
        if right.state == Allocation.State.ACTIVE:
            isolation = right.slice_request.offering.isolation
            granted[isolation] += amounts_of(right)
            slices[isolation] += right.count
            tenants[isolation].add(right.tenant_id)
    order = ("isolated", "shared", "whole")
    return tuple(
        KindFigures(isolation, granted[isolation], slices[isolation], len(tenants[isolation]))
        for isolation in order
    )


def _amounts(units: Units) -> Amounts:
    return Amounts(units.memory_mib, units.millisevenths)


def _less(whole: Amounts, part: Amounts) -> Amounts:
    return Amounts(
        max(0, whole.memory_mib - part.memory_mib),
        max(0, whole.millisevenths - part.millisevenths),
    )


def _least(one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        min(one.memory_mib, other.memory_mib), min(one.millisevenths, other.millisevenths)
    )
