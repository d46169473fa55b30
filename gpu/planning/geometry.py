"""A published MIG table in the form that searches need: slots as bitmasks, limits, engines.

What may lie on a GPU together follows from the table alone: placements may not overlap, a profile
has a most, and so have engines that all instances share. Compute slices need no rule of their own:
placements imply them on every model whose placements are published.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import override

from gpu.planning.errors import PlanningError
from gpu.planning.profiles import ENGINE_NAMES
from gpu.planning.tables import GpuTable

_NO_LIMIT = 1 << 16


class InvalidLayoutError(PlanningError):
    """The instances cannot lie on the GPU together."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance on a GPU: its profile's name, and the memory slice that it starts at."""

    profile: str
    start: int

    @override
    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


type Layout = tuple[Instance, ...]


def layout_of(instances: Iterable[Instance]) -> Layout:
    """Return the instances in the order in which they lie on the GPU."""
    return tuple(sorted(instances, key=lambda item: (item.start, item.profile)))


@dataclass(frozen=True, slots=True)
class Slot:
    """One legal place of a profile, and the memory slices that it covers as bits."""

    instance: Instance
    mask: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A profile with its places; `size` in memory slices, `engines` as in `Geometry.totals`."""

    name: str
    index: int
    size: int
    compute: int
    limit: int
    engines: tuple[int, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shapes of a model, and the totals that all its instances share."""

    shapes: tuple[Shape, ...]
    by_name: dict[str, Shape]
    totals: tuple[int, ...]
    engine_names: tuple[str, ...]
    max_instances: int
    memory_slices: int
    compute_slices: int

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a profile's name or alias; raise `InvalidLayoutError` if unknown."""
        shape = self.by_name.get(name)
        if shape is None:
            message = f"There is no profile {name} here, only {_listed(list(self.by_name))}."
            raise InvalidLayoutError(message)
        return shape

    def slot_of(self, instance: Instance) -> tuple[Shape, Slot]:
        """Return an instance's shape and place; raise `InvalidLayoutError` where it has none."""
        shape = self.shape_of(instance.profile)
        for slot in shape.slots:
            if slot.instance.start == instance.start:
                return shape, slot
        starts = _listed([str(slot.instance.start) for slot in shape.slots])
        message = f"{shape.name} cannot start at memory slice {instance.start}, only at {starts}."
        raise InvalidLayoutError(message)


@dataclass(frozen=True, slots=True)
class Load:
    """What lies on a GPU: slices as bits, instances of each shape, and shared engines taken."""

    mask: int
    counts: tuple[int, ...]
    engines: tuple[int, ...]

    @property
    def total(self) -> int:
        """Return the number of instances."""
        return sum(self.counts)


@lru_cache(maxsize=256)
def geometry(table: GpuTable) -> Geometry:
    """Return the searchable form of a table; raise `UnpublishedTableError` if it cannot be cut."""
    table.require_published()
    totals = tuple(table.engine_totals) if table.engine_totals else (None,) * len(ENGINE_NAMES)
    shared = [index for index, total in enumerate(totals) if total is not None]
    shapes = []
    for index, profile in enumerate(table.profiles):
        engines = tuple(profile.engines)
        slots = [Slot(Instance(profile.name, p.start), p.mask) for p in profile.placements]
        limit = len(slots) if profile.max_instances is None else profile.max_instances
        shapes.append(
            Shape(
                name=profile.name,
                index=index,
                size=profile.placements[0].size,
                compute=profile.compute_slices,
                limit=limit,
                engines=tuple(engines[i] or 0 for i in shared),
                slots=tuple(slots),
            )
        )
    by_name = {shape.name: shape for shape in shapes}
    for shape, profile in zip(shapes, table.profiles, strict=True):
        by_name |= dict.fromkeys(profile.aliases, shape)
    ends = [place.end for profile in table.profiles for place in profile.placements]
    return Geometry(
        shapes=tuple(shapes),
        by_name=by_name,
        totals=tuple(total for total in totals if total is not None),
        engine_names=tuple(ENGINE_NAMES[index] for index in shared),
        max_instances=_NO_LIMIT if table.max_instances is None else table.max_instances,
        memory_slices=table.memory_slices or max(ends),
        compute_slices=table.compute_slices or max(shape.compute for shape in shapes),
    )


def empty_load(shapes: Geometry) -> Load:
    """Return the load of a GPU with no instance."""
    return Load(0, (0,) * len(shapes.shapes), (0,) * len(shapes.totals))


def with_instance(load: Load, shape: Shape, mask: int) -> Load:
    """Return the load with one more instance, legal or not."""
    counts = list(load.counts)
    counts[shape.index] += 1
    engines = tuple(a + b for a, b in zip(load.engines, shape.engines, strict=True))
    return Load(load.mask | mask, tuple(counts), engines)


def load_of(shapes: Geometry, layout: Iterable[Instance]) -> Load:
    """Return what the instances take; raise `InvalidLayoutError` for one that has no place."""
    load = empty_load(shapes)
    for item in layout:
        shape, slot = shapes.slot_of(item)
        load = with_instance(load, shape, slot.mask)
    return load


def may_add(shapes: Geometry, load: Load, shape: Shape) -> bool:
    """Return whether limits and engines allow one more of the shape, wherever it would lie."""
    return (
        load.counts[shape.index] < shape.limit
        and load.total < shapes.max_instances
        and all(
            taken + more <= total
            for taken, more, total in zip(load.engines, shape.engines, shapes.totals, strict=True)
        )
    )


def room_of(shapes: Geometry, load: Load) -> tuple[int, int]:
    """Return how much can still come: memory slices times places free, summed over the profiles.

    The first number counts places where an instance may be made now; the second, which only breaks
    ties, also those that lie free while a limit or an engine is used up.
    """
    room = ignoring_limits = 0
    for shape in shapes.shapes:
        free = sum(1 for slot in shape.slots if not slot.mask & load.mask) * shape.size
        ignoring_limits += free
        if free and may_add(shapes, load, shape):
            room += free
    return room, ignoring_limits


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
