"""Why a GPU cannot hold what is wanted, and what comes nearest to it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from gpu.planning.arrangements import can_arrange
from gpu.planning.geometry import Geometry, Layout, Shape, geometry, load_of
from gpu.planning.tables import GpuTable


class NoPlanReason(StrEnum):
    """Why there is no plan."""

    GPU_IN_USE = "gpu_in_use"
    TOO_MANY_OF_PROFILE = "too_many_of_profile"
    TOO_MANY_INSTANCES = "too_many_instances"
    NOT_ENOUGH_MEMORY_SLICES = "not_enough_memory_slices"
    NOT_ENOUGH_COMPUTE_SLICES = "not_enough_compute_slices"
    NOT_ENOUGH_ENGINES = "not_enough_engines"
    NO_PLACEMENT = "no_placement"
    INSTANCES_IN_USE = "instances_in_use"


@dataclass(frozen=True, slots=True)
class NoPlan:
    """A refusal: reason codes, worst first, and a sentence in plain English.

    `nearest` is the largest part of what was wanted that can be had; `blockers` are the fewest
    instances in use without which all of it could be had, empty when that would not help.
    """

    reasons: tuple[NoPlanReason, ...]
    sentence: str
    nearest: tuple[str, ...] = ()
    blockers: Layout = ()


def refuse(table: GpuTable, in_use: Layout, want: Counter[str]) -> NoPlan:
    """Return why the wanted profiles cannot lie beside the instances in use."""
    shapes = geometry(table)
    nearest = tuple((largest_part(table, in_use, want) or Counter()).elements())
    impossible = list(_impossible(table, shapes, want))
    if not impossible and not can_arrange(table, (), want):
        sentence = f"The places of {named(want)} do not fit together on {table.marketing}."
        impossible = [(NoPlanReason.NO_PLACEMENT, sentence)]
    if impossible:
        reasons = tuple(reason for reason, _ in impossible)
        sentence = impossible[0][1]
        return NoPlan(reasons, f"{sentence} {_nearest(nearest)}", nearest)
    blockers = in_the_way(table, in_use, want)
    sentence = (
        f"{named(want)} {_do(want)} not fit beside what is in use; in the way:"
        f" {', '.join(map(str, blockers))}. {_nearest(nearest)}"
    )
    return NoPlan((NoPlanReason.INSTANCES_IN_USE,), sentence, nearest, blockers)


def in_the_way(table: GpuTable, in_use: Layout, want: Counter[str]) -> Layout:
    """Return the fewest instances, then fewest memory slices, without which `want` would fit."""
    shapes = geometry(table)
    for count in range(len(in_use) + 1):
        groups = sorted(
            combinations(in_use, count),
            key=lambda group: sum(shapes.shape_of(item.profile).size for item in group),
        )
        for group in groups:
            if can_arrange(table, tuple(item for item in in_use if item not in group), want):
                return group
    return ()


def largest_part(
    table: GpuTable, in_use: Layout, want: Counter[str], must: Counter[str] | None = None
) -> Counter[str] | None:
    """Return the part of the wanted profiles that fits: most memory slices, compute, instances.

    `must` are profiles that have to fit beside that part; ``None`` when even they do not.
    """
    shapes = geometry(table)
    taken = load_of(shapes, in_use)
    kinds = [shapes.shape_of(name) for name in want]
    free = shapes.memory_slices - taken.mask.bit_count(), shapes.max_instances - taken.total
    parts = sorted(_parts(kinds, want, *free), key=lambda part: _weight(kinds, part), reverse=True)
    must = must or Counter()
    for part in parts:
        names = Counter({kind.name: count for kind, count in zip(kinds, part, strict=True)})
        if can_arrange(table, in_use, names + must):
            return +names
    return None


def named(want: Counter[str]) -> str:
    """Return a multiset in words: ``2 x 3g.20gb and 1g.5gb``."""
    words = [f"{count} x {name}" if count > 1 else name for name, count in want.items()]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _parts(
    kinds: Sequence[Shape], want: Counter[str], slices: int, instances: int
) -> Iterator[tuple[int, ...]]:
    """Yield, as counts of each kind, every part that could fit by slices and limits alone."""
    if not kinds:
        yield ()
        return
    shape, *others = kinds
    most = min(want[shape.name], shape.limit, slices // shape.size, instances)
    for count in range(most + 1):
        for rest in _parts(others, want, slices - count * shape.size, instances - count):
            yield (count, *rest)


def _weight(kinds: Sequence[Shape], counts: Sequence[int]) -> tuple[int, int, int]:
    memory = sum(shape.size * count for shape, count in zip(kinds, counts, strict=True))
    compute = sum(shape.compute * count for shape, count in zip(kinds, counts, strict=True))
    return memory, compute, sum(counts)


def _impossible(
    table: GpuTable, shapes: Geometry, want: Counter[str]
) -> Iterator[tuple[NoPlanReason, str]]:
    """Yield what no empty GPU of the model could give, with a sentence each."""
    words, do, model = named(want), "needs" if want.total() == 1 else "need", table.marketing
    items = [(shapes.shape_of(name), count) for name, count in want.items()]
    for shape, count in items:
        if count > shape.limit:
            sentence = f"{model} holds at most {shape.limit} x {shape.name}, not {count}."
            yield NoPlanReason.TOO_MANY_OF_PROFILE, sentence
    if want.total() > shapes.max_instances:
        sentence = f"{model} holds at most {shapes.max_instances} instances, not {want.total()}."
        yield NoPlanReason.TOO_MANY_INSTANCES, sentence
    memory, compute, _ = _weight([shape for shape, _ in items], list(want.values()))
    if memory > shapes.memory_slices:
        sentence = f"{words} {do} {memory} memory slices; {model} has {shapes.memory_slices}."
        yield NoPlanReason.NOT_ENOUGH_MEMORY_SLICES, sentence
    if compute > shapes.compute_slices:
        sentence = f"{words} {do} {compute} compute slices; {model} has {shapes.compute_slices}."
        yield NoPlanReason.NOT_ENOUGH_COMPUTE_SLICES, sentence
    for index, (engine, total) in enumerate(zip(shapes.engine_names, shapes.totals, strict=True)):
        taken = sum(shape.engines[index] * count for shape, count in items)
        if taken > total:
            sentence = f"{words} {do} {taken} {engine} engines; {model} has {total}."
            yield NoPlanReason.NOT_ENOUGH_ENGINES, sentence


def _nearest(nearest: Iterable[str]) -> str:
    part = Counter(nearest)
    return f"The nearest that fits: {named(part)}." if part else "Nothing of it fits."


def _do(want: Counter[str]) -> str:
    return "does" if want.total() == 1 else "do"
