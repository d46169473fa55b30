"""Rows of the inventory as glyphs: what is known of a GPU, piece by piece."""

from collections.abc import Iterable
from datetime import datetime

from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gpu.glyphs import GlyphGpu, Kind, Segment, SegmentState
from gpu.models import Gpu
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.layouts import unreachable_slices
from gpu.selectors.gpus import MapGpu, instances_of
from gpu.selectors.nodes import STALE_AFTER
from gpu.selectors.occupancy import GpuOccupancy, Hold, Use

_NAMED_PODS = 2
_MIB_PER_GIB = 1024
_STATES = {
    Use.IN_USE: SegmentState.IN_USE,
    Use.GRANTED: SegmentState.GRANTED_IDLE,
    Use.FREE: SegmentState.FREE_INSTANCE,
    Use.UNKNOWN: SegmentState.UNKNOWN,
}


def glyph_of(row: MapGpu, *, now: datetime) -> GlyphGpu:
    """Return a GPU of the map as a glyph."""
    seen, gpu = row.seen, row.seen.gpu
    kind, slices, segments = _drawn(row)
    return GlyphGpu(
        label=gpu_label(gpu),
        kind=kind,
        slices=slices,
        segments=segments,
        is_mig_capable=row.table is not None,
        is_in_service=gpu.is_in_service,
        service_note=gpu.service_note,
        sharing_words=_sharing_words(gpu),
        isolation_words=_isolation_words(gpu),
        stale_words=_stale_words(gpu, now),
        change_words=_change_words(seen),
    )


def gpu_label(gpu: Gpu) -> str:
    """Return `H200 · 0`: the model without its maker, and the index on the node."""
    return f"{gpu.model.name.removeprefix('NVIDIA ')} · {gpu.index}"


def _drawn(row: MapGpu) -> tuple[Kind, int, tuple[Segment, ...]]:
    seen, gpu = row.seen, row.seen.gpu
    if gpu.is_mig_enabled and row.table is not None and row.table.memory_slices:
        slices = row.table.memory_slices
        return Kind.MIG, slices, tuple(_mig_segments(row, slices))
    if gpu.replicas > 1:
        shares = enumerate(seen.shares)
        return Kind.SHARES, gpu.replicas, tuple(_plain(number, hold) for number, hold in shares)
    hold = seen.shares[0] if seen.shares else Hold(Use.UNKNOWN)
    whole = _plain(0, hold, memory=_gib(gpu.memory_mib), note=_change_words(seen))
    return Kind.WHOLE, 1, (whole,)


def _mig_segments(row: MapGpu, slices: int) -> Iterable[Segment]:
    """Yield the instances and the gaps between them, from slice 0 on."""
    gaps = _gap_states(row, slices)
    position = 0
    for item in row.seen.instances:
        start = item.instance.start
        yield from _gaps(gaps, position, start)
        yield _instance(row, Instance(item.instance.profile, start), item.instance.size, item.hold)
        position = start + item.instance.size
    yield from _gaps(gaps, position, slices)


def _instance(row: MapGpu, instance: Instance, size: int, hold: Hold) -> Segment:
    changes = row.seen.is_changing and instance not in _desired(row)
    state = SegmentState.CHANGING if changes else _STATES[hold.use]
    memory = {p.name: p.memory_mib for p in row.table.profiles} if row.table else {}
    return Segment(
        start=instance.start,
        size=size,
        state=state,
        profile=instance.profile,
        holder=hold.tenant.name if hold.tenant else "",
        palette=hold.tenant.palette_index if hold.tenant else None,
        memory=_gib(memory.get(instance.profile)),
        note=_change_words(row.seen) if changes else _pods(hold),
    )


def _plain(number: int, hold: Hold, *, memory: str = "", note: str = "") -> Segment:
    return Segment(
        start=number,
        size=1,
        state=SegmentState.CHANGING if note else _STATES[hold.use],
        holder=hold.tenant.name if hold.tenant else "",
        palette=hold.tenant.palette_index if hold.tenant else None,
        memory=memory,
        note=note or _pods(hold),
    )


def _gap_states(row: MapGpu, slices: int) -> list[SegmentState]:
    """Return the state of each memory slice, were it covered by no instance."""
    states = [SegmentState.UNCUT] * slices
    if row.table is None:
        return states
    try:
        lost = unreachable_slices(row.table, instances_of(row.seen))
    except PlanningError:  # the driver shows a layout that the table does not know
        lost = ()
    for index in lost:
        states[index] = SegmentState.UNREACHABLE
    if row.seen.is_changing:
        sizes = {p.name: p.placements[0].size for p in row.table.profiles if p.placements}
        for wanted in _desired(row):
            for index in range(wanted.start, wanted.start + sizes.get(wanted.profile, 1)):
                states[index] = SegmentState.CHANGING
    return states


def _gaps(states: list[SegmentState], first: int, end: int) -> Iterable[Segment]:
    """Yield the slices from `first` up to `end`, those of one state together."""
    start = first
    for index in range(first, end):
        if index + 1 == end or states[index + 1] != states[index]:
            note = ""
            if states[index] == SegmentState.UNREACHABLE:
                note = _("the instances beside it leave no legal place that covers it")
            yield Segment(start, index + 1 - start, states[index], note=note)
            start = index + 1


def _desired(row: MapGpu) -> tuple[Instance, ...]:
    operation = row.seen.operation
    if operation is None or not operation.desired.get("mig"):
        return ()
    return tuple(Instance(profile, start) for profile, start in operation.desired["instances"])


def _pods(hold: Hold) -> str:
    named = [f"{pod.namespace}/{pod.name}" for pod in hold.pods]
    rest = len(named) - _NAMED_PODS
    words = ", ".join(named[:_NAMED_PODS])
    if rest <= 0:
        return words
    return ngettext("%(pods)s and %(count)d more", "%(pods)s and %(count)d more", rest) % {
        "pods": words,
        "count": rest,
    }


def _sharing_words(gpu: Gpu) -> str:
    return str(gpu.get_sharing_display()) if gpu.replicas > 1 else ""


def _isolation_words(gpu: Gpu) -> str:
    if gpu.replicas == 1:
        return ""
    if gpu.sharing == Gpu.Sharing.MPS:
        return _("faults not isolated")
    return _("memory not isolated")


def _change_words(seen: GpuOccupancy) -> str:
    if seen.operation is None or not seen.is_changing:
        return ""
    return str(seen.operation.get_state_display())


def _stale_words(gpu: Gpu, now: datetime) -> str:
    at = gpu.node.observed_at
    if at is None:
        return _("an unknown time")
    return timesince(at, now, depth=1) if now - at > STALE_AFTER else ""


def _gib(mib: int | None) -> str:
    if mib is None:
        return ""
    return _("%(amount)s GiB") % {"amount": f"{mib / _MIB_PER_GIB:.1f}".removesuffix(".0")}
