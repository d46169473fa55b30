"""What of each GPU product would meet a demand: which profile, which share, the whole GPU."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from gpu.planning.demands import Demand, FitReason, Isolation, Kind, Reason
from gpu.planning.profiles import MigProfile
from gpu.planning.sharing import instance_units, share_units, whole_units
from gpu.planning.snapshot import ClusterSnapshot, GpuMode, GpuSnapshot
from gpu.planning.tables import GpuTable, UnknownProfileError

_SHARED_MODES = (GpuMode.TIME_SLICING, GpuMode.MPS)


def kinds_for(
    snapshot: ClusterSnapshot, demand: Demand
) -> tuple[tuple[Kind, ...], tuple[Reason, ...]]:
    """Return what would meet the demand, one or more for a product, and why other products cannot.

    Whether any of it is free plays no part here.
    """
    kinds: list[Kind] = []
    reasons: list[Reason] = []
    by_product = _by_product(snapshot, demand.products)
    if not by_product:
        missing = FitReason.NO_GPU if demand.products is None else FitReason.NO_SUCH_PRODUCT
        reasons.append(Reason(missing))
    for product, gpus in by_product.items():
        for found in _of_product(demand, gpus):
            if isinstance(found, Kind):
                kinds.append(found)
            else:
                reasons.append(Reason(found, product, len(gpus)))
    return tuple(kinds), tuple(reasons)


def tables_of(gpus: Iterable[GpuSnapshot]) -> tuple[GpuTable, ...]:
    """Return the tables that GPUs of one product have: drivers differ from node to node."""
    return tuple(dict.fromkeys(gpu.table for gpu in gpus if gpu.table is not None))


def instance_kind(table: GpuTable, profile: MigProfile, product: str) -> Kind:
    """Return a GPU instance as a kind; its memory must be known."""
    units = instance_units(table, profile.name)
    return Kind(
        product=product,
        resource_name=profile.resource_name,
        memory_mib=units.memory_mib,
        compute=units.millisevenths,
        profile=profile.name,
    )


def plain_profiles(table: GpuTable) -> tuple[MigProfile, ...]:
    """Return the profiles of known memory without attributes, smallest first."""
    plain = [item for item in table.profiles if item.memory_mib and not item.attribute]
    return tuple(sorted(plain, key=_size))


def _by_product(
    snapshot: ClusterSnapshot, products: frozenset[str] | None
) -> dict[str, list[GpuSnapshot]]:
    found: dict[str, list[GpuSnapshot]] = {}
    for node in snapshot.nodes:
        for gpu in node.gpus:
            if products is None or gpu.product in products:
                found.setdefault(gpu.product, []).append(gpu)
    return dict(sorted(found.items()))


def _of_product(demand: Demand, gpus: list[GpuSnapshot]) -> Iterator[Kind | FitReason]:
    isolation = demand.isolation
    match isolation:
        case Isolation.ISOLATED:
            yield from _isolated(demand, gpus)
        case Isolation.WHOLE:
            yield _whole(demand, gpus[0])
        case Isolation.SHARED:
            yield from _shared(demand, gpus)
        case _:
            assert_never(isolation)


def _isolated(demand: Demand, gpus: list[GpuSnapshot]) -> Iterator[Kind | FitReason]:
    tables = tables_of(gpus)
    if not tables:
        yield FitReason.NOT_MIG_CAPABLE
        return
    found = [_smallest(table, demand, gpus[0].product) for table in tables]
    kinds = [item for item in found if isinstance(item, Kind)]
    yield from dict.fromkeys(kinds or found)


def _smallest(table: GpuTable, demand: Demand, product: str) -> Kind | FitReason:
    """Return the smallest profile that really holds what is asked, or the one that is named."""
    if not table.is_published:
        return FitReason.TABLE_UNKNOWN
    if demand.profile is not None:
        try:
            named = table.profile(demand.profile)
        except UnknownProfileError:
            return FitReason.PROFILE_UNKNOWN
        return (
            instance_kind(table, named, product) if named.memory_mib else FitReason.MEMORY_UNKNOWN
        )
    for profile in plain_profiles(table):
        if (profile.memory_mib or 0) >= demand.memory_mib:
            return instance_kind(table, profile, product)
    has_unknown = any(not item.memory_mib for item in table.profiles)
    return FitReason.MEMORY_UNKNOWN if has_unknown else FitReason.MEMORY_TOO_LARGE


def _whole(demand: Demand, gpu: GpuSnapshot) -> Kind | FitReason:
    if gpu.memory_mib < demand.memory_mib:
        return FitReason.MEMORY_TOO_LARGE
    units = whole_units(gpu.memory_mib)
    return Kind(gpu.product, "nvidia.com/gpu", units.memory_mib, units.millisevenths)


def _shared(demand: Demand, gpus: list[GpuSnapshot]) -> Iterator[Kind | FitReason]:
    shared = [gpu for gpu in gpus if gpu.mode in _SHARED_MODES]
    if not shared:
        yield FitReason.NOT_SHARED
        return
    kinds = {_share_kind(gpu) for gpu in shared}
    enough = [kind for kind in kinds if kind.memory_mib >= demand.memory_mib]
    if not enough:
        yield FitReason.MEMORY_TOO_LARGE
    yield from sorted(enough, key=lambda kind: (kind.memory_mib, kind.resource_name))


def _share_kind(gpu: GpuSnapshot) -> Kind:
    units = share_units(whole_units(gpu.memory_mib), gpu.replicas)
    return Kind(
        product=gpu.product,
        resource_name=gpu.resource_name,
        memory_mib=units.memory_mib,
        compute=units.millisevenths,
        replicas=gpu.replicas,
    )


def _size(profile: MigProfile) -> tuple[int, int, int]:
    return profile.memory_slices or 0, profile.compute_slices, profile.memory_mib or 0
