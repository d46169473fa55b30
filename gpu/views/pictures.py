"""The GPU that a wish would get, drawn as it would be: the slices asked for, and the rest.

What others hold is drawn without their names: a researcher sees how much there is, not whose.
"""

from collections.abc import Iterable, Iterator, Mapping

from django.utils.translation import gettext as _

from gpu.glyphs import GlyphGpu, Kind, Segment, SegmentState
from gpu.planning.demands import Option
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance, Layout
from gpu.planning.layouts import unreachable_slices
from gpu.planning.snapshot import ClusterSnapshot, GpuMode, GpuSnapshot
from gpu.planning.tables import GpuTable
from gpu.views.amounts import gib
from tenants.models import Tenant


def picture_of(
    option: Option, snapshot: ClusterSnapshot, models: Mapping[str, str], *, tenant: Tenant
) -> GlyphGpu | None:
    """Return the first GPU of an option as it would be; None where that cannot be drawn."""
    uuid = option.sites[0].gpu_uuid
    gpu = next((g for node in snapshot.nodes for g in node.gpus if g.uuid == uuid), None)
    if gpu is None:
        return None
    label = f"{models.get(gpu.product, gpu.product)} · {gpu.index}"
    if option.kind.profile is not None:
        return _mig(option, gpu, tenant, label)
    if option.kind.replicas > 1:
        return _shares(option, gpu, tenant, label)
    whole = _mine(tenant, start=0, size=1, memory=gib(gpu.memory_mib))
    return GlyphGpu(label, Kind.WHOLE, 1, (whole,), is_mig_capable=gpu.table is not None)


def _mine(tenant: Tenant, *, start: int, size: int, memory: str, profile: str = "") -> Segment:
    return Segment(
        start=start,
        size=size,
        state=SegmentState.GRANTED_IDLE,
        profile=profile,
        holder=tenant.name,
        palette=tenant.palette_index,
        memory=memory,
    )


def _mig(option: Option, gpu: GpuSnapshot, tenant: Tenant, label: str) -> GlyphGpu | None:
    table = gpu.table
    if table is None or not table.memory_slices:
        return None
    layout, mine = _layout(option, gpu)
    try:
        segments = tuple(_segments(table, gpu, tenant, layout, mine))
    except PlanningError:  # a layout that the table does not know
        return None
    return GlyphGpu(label, Kind.MIG, table.memory_slices, segments)


def _layout(option: Option, gpu: GpuSnapshot) -> tuple[Layout, set[Instance]]:
    """Return the instances of the GPU after the option, and which of them are asked for."""
    here = [site for site in option.sites if site.gpu_uuid == gpu.uuid]
    mine = {site.instance for site in here if site.instance is not None}
    change = next((one for one in option.changes if one.gpu_uuid == gpu.uuid), None)
    if change is None:
        return gpu.layout, mine
    fitting = [item for item in change.plan.created if item.profile == option.kind.profile]
    return change.plan.layout, mine | set(fitting[: change.creates])


def _segments(
    table: GpuTable, gpu: GpuSnapshot, tenant: Tenant, layout: Layout, mine: set[Instance]
) -> Iterator[Segment]:
    """Yield the instances and the gaps between them, from slice 0 on."""
    slices = table.memory_slices or 0
    lost = set(unreachable_slices(table, layout))
    position = 0
    for item in sorted(layout, key=lambda one: one.start):
        profile = table.profile(item.profile)
        placement = profile.placement_at(item.start)
        size = placement.size if placement else 1
        yield from _gaps(range(position, item.start), lost)
        memory = gib(profile.memory_mib) if profile.memory_mib else ""
        if item in mine:
            yield _mine(tenant, start=item.start, size=size, memory=memory, profile=item.profile)
        else:
            is_free = item not in gpu.in_use
            state = SegmentState.FREE_INSTANCE if is_free else SegmentState.IN_USE
            yield Segment(item.start, size, state, profile=item.profile, memory=memory)
        position = item.start + size
    yield from _gaps(range(position, slices), lost)


def _gaps(slices: Iterable[int], lost: set[int]) -> Iterator[Segment]:
    for index in slices:
        state = SegmentState.UNREACHABLE if index in lost else SegmentState.UNCUT
        yield Segment(index, 1, state)


def _shares(option: Option, gpu: GpuSnapshot, tenant: Tenant, label: str) -> GlyphGpu:
    asked = sum(1 for site in option.sites if site.gpu_uuid == gpu.uuid)
    memory = gib(option.kind.memory_mib)
    segments = []
    for number in range(gpu.replicas):
        used = number - (gpu.replicas - gpu.free_replicas)
        if used < 0:
            segments.append(Segment(number, 1, SegmentState.IN_USE, memory=memory))
        elif used < asked:
            segments.append(_mine(tenant, start=number, size=1, memory=memory))
        else:
            segments.append(Segment(number, 1, SegmentState.FREE_INSTANCE, memory=memory))
    is_mps = gpu.mode is GpuMode.MPS
    return GlyphGpu(
        label,
        Kind.SHARES,
        gpu.replicas,
        tuple(segments),
        sharing_words=_("MPS") if is_mps else _("time-slicing"),
        isolation_words=_("faults not isolated") if is_mps else _("memory not isolated"),
    )
