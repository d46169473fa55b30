"""Layouts: the GPU instances that one GPU holds, with their placements.

Everything here follows from the model's table; nothing about a model is written down twice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpu.planning.arrangements import best_arrangement
from gpu.planning.geometry import (
    Geometry,
    Instance,
    InvalidLayoutError,
    Layout,
    Load,
    Shape,
    Slot,
    empty_load,
    geometry,
    layout_of,
    load_of,
    may_add,
    room_of,
    with_instance,
)
from gpu.planning.tables import GpuTable

_SMALL_GPU = 4  # compute slices from which mig-parted's balanced layout has no 3g
_BALANCED = {1: 2, 2: 1, 3: 1}


@dataclass(frozen=True, slots=True)
class Preset:
    """A layout with a name: ``all-1g.10gb``, or ``all-balanced`` as mig-parted calls it."""

    name: str
    layout: Layout


def check_layout(table: GpuTable, instances: Iterable[Instance]) -> Layout:
    """Return the layout of the instances, with their profiles' own names, if they may coexist.

    Raises `InvalidLayoutError`, or what `GpuTable.profile` raises for a name.
    """
    shapes = geometry(table)
    named = [Instance(table.profile(item.profile).name, item.start) for item in instances]
    layout = layout_of(named)
    load = empty_load(shapes)
    for position, item in enumerate(layout):
        shape, slot = shapes.slot_of(item)
        if slot.mask & load.mask:
            others = ((other, shapes.slot_of(other)[1].mask) for other in layout[:position])
            other = next(other for other, mask in others if mask & slot.mask)
            message = f"{other} and {item} overlap."
            raise InvalidLayoutError(message)
        if not may_add(shapes, load, shape):
            message = f"{table.marketing} has no {item.profile} left beside the other instances."
            raise InvalidLayoutError(message)
        load = with_instance(load, shape, slot.mask)
    return layout


def free_starts(table: GpuTable, layout: Iterable[Instance], profile: str) -> tuple[int, ...]:
    """Return where one more instance of the profile may start, given what is there."""
    shapes = geometry(table)
    load = load_of(shapes, layout)
    shape = shapes.shape_of(table.profile(profile).name)
    if not may_add(shapes, load, shape):
        return ()
    return tuple(slot.instance.start for slot in shape.slots if not slot.mask & load.mask)


def room(table: GpuTable, layout: Iterable[Instance]) -> int:
    """Return the room left: memory slices times free places, summed over the profiles."""
    shapes = geometry(table)
    return room_of(shapes, load_of(shapes, layout))[0]


def free_slices(table: GpuTable, layout: Iterable[Instance]) -> tuple[int, ...]:
    """Return the memory slices that no instance covers."""
    shapes = geometry(table)
    mask = load_of(shapes, layout).mask
    return tuple(index for index in range(shapes.memory_slices) if not mask >> index & 1)


def unreachable_slices(table: GpuTable, layout: Iterable[Instance]) -> tuple[int, ...]:
    """Return the free memory slices that no further instance can cover."""
    shapes = geometry(table)
    load = load_of(shapes, layout)
    reachable = load.mask
    for shape in shapes.shapes:
        if may_add(shapes, load, shape):
            for slot in shape.slots:
                reachable |= 0 if slot.mask & load.mask else slot.mask
    return tuple(index for index in range(shapes.memory_slices) if not reachable >> index & 1)


@lru_cache(maxsize=64)
def maximal_layouts(table: GpuTable) -> tuple[Layout, ...]:
    """Return every layout to which no instance can be added, in a fixed order."""
    shapes = geometry(table)
    found: list[Layout] = []
    slots = [(shape, slot) for shape in shapes.shapes for slot in shape.slots]

    def extend(first: int, load: Load, chosen: tuple[Slot, ...]) -> None:
        if not any(_fits(shapes, load, *pair) for pair in slots):
            found.append(layout_of(slot.instance for slot in chosen))
            return
        for position in range(first, len(slots)):
            shape, slot = slots[position]
            if _fits(shapes, load, shape, slot):
                extend(position + 1, with_instance(load, shape, slot.mask), (*chosen, slot))

    extend(0, empty_load(shapes), ())
    return tuple(sorted(found, key=lambda layout: [(i.start, i.profile) for i in layout]))


@lru_cache(maxsize=64)
def presets(table: GpuTable) -> tuple[Preset, ...]:
    """Return the layouts that are usually asked for: all of one profile, and the balanced one."""
    found = [
        Preset(f"all-{shape.name}", _most_of(table, shape)) for shape in geometry(table).shapes
    ]
    balanced = _balanced(table)
    if balanced is not None:
        found.append(Preset("all-balanced", balanced))
    return tuple(found)


def _most_of(table: GpuTable, shape: Shape) -> Layout:
    tried = (
        best_arrangement(table, (), Counter({shape.name: count}))
        for count in range(shape.limit, 0, -1)
    )
    return next((layout for layout in tried if layout is not None), ())


def _balanced(table: GpuTable) -> Layout | None:
    """Return mig-parted's all-balanced: 3g, 2g and two 1g, or 2g and two 1g on small GPUs."""
    shapes = geometry(table)
    largest = 2 if shapes.compute_slices <= _SMALL_GPU else 3
    want: Counter[str] = Counter()
    for compute in range(1, largest + 1):
        plain = [s for s in shapes.shapes if s.compute == compute and s.name.endswith("gb")]
        if not plain:
            return None
        want[min(plain, key=lambda shape: shape.size).name] = _BALANCED[compute]
    return best_arrangement(table, (), want)


def _fits(shapes: Geometry, load: Load, shape: Shape, slot: Slot) -> bool:
    return not slot.mask & load.mask and may_add(shapes, load, shape)
