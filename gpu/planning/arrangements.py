"""The search for places: how wanted profiles are laid beside what a GPU holds already."""

from collections import Counter
from collections.abc import Iterator

from gpu.planning.geometry import (
    Geometry,
    Layout,
    Load,
    Shape,
    Slot,
    geometry,
    layout_of,
    load_of,
    may_add,
    room_of,
    with_instance,
)
from gpu.planning.tables import GpuTable

type Rank = tuple[int, int, list[tuple[int, str]]]


def best_arrangement(table: GpuTable, fixed: Layout, want: Counter[str]) -> Layout | None:
    """Return the layout of `fixed` and the wanted profiles that leaves the most room.

    Among equals the first by starts and names, so that the answer depends on nothing else; ``None``
    when there is no such layout.
    """
    shapes = geometry(table)
    best: tuple[Rank, Layout] | None = None
    for load, added in arrangements(shapes, load_of(shapes, fixed), want):
        layout = layout_of((*fixed, *(slot.instance for slot in added)))
        rank = rank_of(shapes, load, layout)
        if best is None or rank < best[0]:
            best = (rank, layout)
    return None if best is None else best[1]


def can_arrange(table: GpuTable, fixed: Layout, want: Counter[str]) -> bool:
    """Return whether the wanted profiles fit beside `fixed` at all."""
    shapes = geometry(table)
    return next(arrangements(shapes, load_of(shapes, fixed), want), None) is not None


def rank_of(shapes: Geometry, load: Load, layout: Layout) -> Rank:
    """Return the key by which layouts are compared: most room first, then a fixed order."""
    room, ignoring_limits = room_of(shapes, load)
    return -room, -ignoring_limits, [(item.start, item.profile) for item in layout]


def arrangements(
    shapes: Geometry, load: Load, want: Counter[str]
) -> Iterator[tuple[Load, tuple[Slot, ...]]]:
    """Yield every way to lay the wanted profiles beside `load`: the new load and the new slots."""
    if load.total + want.total() > shapes.max_instances:
        return iter(())
    wanted = [shapes.shape_of(name) for name, count in want.items() for _ in range(count)]
    # The hardest to place come first; equal shapes stand together, so that none is swapped in vain.
    wanted.sort(key=lambda shape: (-shape.size, len(shape.slots), shape.index))
    return _extend(shapes, load, wanted, 0, ())


def _extend(
    shapes: Geometry, load: Load, wanted: list[Shape], first: int, chosen: tuple[Slot, ...]
) -> Iterator[tuple[Load, tuple[Slot, ...]]]:
    if len(chosen) == len(wanted):
        yield load, chosen
        return
    shape = wanted[len(chosen)]
    if not may_add(shapes, load, shape):
        return
    for position in range(first, len(shape.slots)):
        slot = shape.slots[position]
        if slot.mask & load.mask:
            continue
        is_last_of_kind = len(chosen) + 1 == len(wanted) or wanted[len(chosen) + 1] is not shape
        following = 0 if is_last_of_kind else position + 1
        more = with_instance(load, shape, slot.mask)
        yield from _extend(shapes, more, wanted, following, (*chosen, slot))
