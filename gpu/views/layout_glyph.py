"""The wanted layout as a glyph: what stays keeps its holder, what comes is free."""

import copy
from dataclasses import replace

from django.db.backends.postgresql.psycopg_any import NumericRange

from gpu.models import GpuInstance
from gpu.planning.geometry import Instance, geometry
from gpu.planning.tables import GpuTable
from gpu.selectors.gpus import MapGpu
from gpu.selectors.occupancy import Hold, InstanceHold, Use
from gpu.views.layout_wish import Wish


def wished_row(row: MapGpu, table: GpuTable, wish: Wish) -> MapGpu:
    """Return a GPU as it would be once the wish is carried out; nothing of it is stored."""
    seen = row.seen
    gpu = copy.copy(seen.gpu)
    if not wish.is_mig_on:
        shares = seen.shares if not gpu.is_mig_enabled else (Hold(Use.FREE),) * gpu.replicas
        gpu.is_mig_enabled = False
        return replace(row, seen=replace(seen, gpu=gpu, instances=(), shares=shares))
    gpu.is_mig_enabled = True
    there = {Instance(i.instance.profile, i.instance.start): i for i in seen.instances}
    instances = tuple(
        there.get(item) or _to_come(table, item)
        for item in sorted(wish.layout, key=lambda item: item.start)
    )
    return replace(row, seen=replace(seen, gpu=gpu, instances=instances, shares=()))


def _to_come(table: GpuTable, item: Instance) -> InstanceHold:
    _shape, slot = geometry(table).slot_of(item)
    end = slot.mask.bit_length()
    instance = GpuInstance(profile=item.profile, memory_slices=NumericRange(item.start, end))
    return InstanceHold(instance, Hold(Use.FREE))
