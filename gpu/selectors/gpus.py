"""GPUs as the map and their own pages show them, and the filters of the map."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from django.db.models import QuerySet

from gpu.models import Gpu, GpuModel
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.layouts import free_slices, free_starts, unreachable_slices
from gpu.planning.tables import GpuTable
from gpu.selectors.occupancy import GpuOccupancy, Use, occupancy
from gpu.selectors.tables import table_of


class GpuState(StrEnum):
    """What can be said of a GPU; several may hold at once."""

    ROOM = "room"
    IN_USE = "in_use"
    IDLE = "idle"
    CHANGING = "changing"
    OUT_OF_SERVICE = "out_of_service"
    DRIFTED = "drifted"
    UNKNOWN = "unknown"
    NO_MIG = "no_mig"


@dataclass(frozen=True, slots=True)
class MapFilter:
    """Which GPUs the map shows; empty means all. `fits` is a profile for which there is room."""

    model: str = ""
    node: str = ""
    tenant: str = ""
    state: str = ""
    fits: str = ""


@dataclass(frozen=True, slots=True)
class MapGpu:
    """A GPU on the map with its words and its model's table, None where MIG cannot be done."""

    seen: GpuOccupancy
    states: frozenset[GpuState]
    table: GpuTable | None


@dataclass(frozen=True, slots=True)
class GpuMap:
    """The GPUs that pass the filter, and how many there would be for other choices."""

    gpus: tuple[MapGpu, ...]
    total: int
    by_state: Mapping[str, int]
    by_model: Mapping[str, int]
    models: tuple[GpuModel, ...]
    tenants: tuple[tuple[str, str], ...]
    profiles: tuple[str, ...]


def gpu_map(wanted: MapFilter) -> GpuMap:
    """Return the whole cluster through a filter; 5 queries, however many GPUs there are."""
    rows = _all_gpus(present_gpus())
    without_state = replace(wanted, state="")
    others = [row for row in rows if _passes(row, without_state)]
    products = {row.seen.gpu.model_id: row.seen.gpu.model for row in rows}
    return GpuMap(
        gpus=tuple(row for row in others if not wanted.state or wanted.state in row.states),
        total=len(rows),
        by_state=Counter(state for row in others for state in row.states),
        by_model=Counter(row.seen.gpu.model.product for row in rows),
        models=tuple(sorted(products.values(), key=lambda model: model.product)),
        tenants=_tenants(rows),
        profiles=_profiles(rows),
    )


def gpu_seen(gpu_id: int) -> MapGpu | None:
    """Return one GPU, with the rights of all of its model weighed up; None if it is not there."""
    model_id = present_gpus().filter(pk=gpu_id).values_list("model_id", flat=True).first()
    rows = _all_gpus(present_gpus().filter(model_id=model_id))
    return next((row for row in rows if row.seen.gpu.pk == gpu_id), None)


def gpus_of_node(node_id: int) -> list[MapGpu]:
    """Return a node's GPUs, with the rights of all of their models weighed up."""
    model_ids = present_gpus().filter(node_id=node_id).values_list("model_id", flat=True)
    rows = _all_gpus(present_gpus().filter(model_id__in=list(model_ids)))
    return [row for row in rows if row.seen.gpu.node_id == node_id]


def present_gpus() -> QuerySet[Gpu]:
    """Return the GPUs that are in the cluster, by node and index."""
    return Gpu.objects.filter(is_present=True).order_by("node__name", "index")


def states_of(seen: GpuOccupancy, table: GpuTable | None) -> frozenset[GpuState]:
    """Return all that holds of a GPU."""
    gpu, uses = seen.gpu, {hold.use for hold in seen.holds}
    found = {
        GpuState.IN_USE: Use.IN_USE in uses,
        GpuState.IDLE: Use.GRANTED in uses,
        GpuState.UNKNOWN: Use.UNKNOWN in uses or gpu.observed_at is None,
        GpuState.CHANGING: seen.is_changing,
        GpuState.OUT_OF_SERVICE: not gpu.is_in_service,
        GpuState.DRIFTED: gpu.drift_since is not None,
        GpuState.NO_MIG: table is None,
        GpuState.ROOM: gpu.is_in_service and (Use.FREE in uses or _has_uncut_slices(seen, table)),
    }
    return frozenset(state for state, holds in found.items() if holds)


def has_room_for(row: MapGpu, profile: str) -> bool:
    """Say whether one more instance of a profile is free, or could be cut without moving any."""
    seen, table = row.seen, row.table
    if table is None or not seen.gpu.is_in_service:
        return False
    if not seen.gpu.is_mig_enabled:
        return all(hold.use == Use.FREE for hold in seen.shares) and _knows(table, profile)
    free = (i for i in seen.instances if i.hold.use == Use.FREE)
    if any(item.instance.profile == profile for item in free):
        return True
    try:
        return bool(free_starts(table, instances_of(seen), profile))
    except PlanningError:
        return False


def instances_of(seen: GpuOccupancy) -> tuple[Instance, ...]:
    """Return what is cut on a GPU, in the planner's terms."""
    return tuple(Instance(i.instance.profile, i.instance.start) for i in seen.instances)


def _all_gpus(gpus: QuerySet[Gpu]) -> list[MapGpu]:
    tables: dict[int, GpuTable | None] = {}
    found = []
    for seen in occupancy(gpus):
        model = seen.gpu.model
        if model.pk not in tables:
            tables[model.pk] = table_of(model)
        table = tables[model.pk]
        found.append(MapGpu(seen, states_of(seen, table), table))
    return found


def _passes(row: MapGpu, wanted: MapFilter) -> bool:
    gpu = row.seen.gpu
    return (
        (not wanted.model or gpu.model.product == wanted.model)
        and (not wanted.node or wanted.node.lower() in gpu.node.name)
        and (not wanted.tenant or wanted.tenant in _slugs(row))
        and (not wanted.fits or has_room_for(row, wanted.fits))
    )


def _slugs(row: MapGpu) -> set[str]:
    return {hold.tenant.slug for hold in row.seen.holds if hold.tenant}


def _tenants(rows: Iterable[MapGpu]) -> tuple[tuple[str, str], ...]:
    found = {
        (hold.tenant.slug, hold.tenant.name)
        for row in rows
        for hold in row.seen.holds
        if hold.tenant
    }
    return tuple(sorted(found, key=lambda pair: pair[1].lower()))


def _profiles(rows: Iterable[MapGpu]) -> tuple[str, ...]:
    """Return every profile that some GPU could have, small ones first."""
    names = {profile.name for row in rows if row.table for profile in row.table.profiles}
    return tuple(sorted(names, key=_profile_order))


def _profile_order(name: str) -> tuple[int, int, str]:
    slices, _dot, rest = name.partition("g.")
    digits = rest.partition("gb")[0]
    return int(slices), int(digits), name


def _has_uncut_slices(seen: GpuOccupancy, table: GpuTable | None) -> bool:
    if table is None or not seen.gpu.is_mig_enabled:
        return False
    try:
        layout = instances_of(seen)
        return set(free_slices(table, layout)) > set(unreachable_slices(table, layout))
    except PlanningError:
        return False


def _knows(table: GpuTable, profile: str) -> bool:
    return any(item.name == profile for item in table.profiles)
