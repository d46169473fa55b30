"""Offline packing: the fewest GPUs of one model for a multiset of instances, and their layouts.

What one GPU can hold at most are its columns: counts by profile to which nothing can be added. The
fewest columns that cover the wanted counts are found exactly: a linear relaxation (by the simplex
method on its dual, whose start is known) bounds from below, and its rounded answer branches first,
so that the search mostly ends at its first leaf.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import ceil

from gpu.planning.arrangements import best_arrangement, can_arrange
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Layout, geometry
from gpu.planning.tables import GpuTable

type Column = tuple[int, ...]
"""How many of each wanted profile one GPU holds, in the order of the wanted profiles."""

_TINY = 1e-9


class UnpackableError(PlanningError):
    """No number of GPUs of the model holds what is wanted."""


def pack(table: GpuTable, want: Mapping[str, int]) -> tuple[Layout, ...]:
    """Return one layout for each GPU, of the fewest that hold `want`: how many of each profile.

    Raises `UnpackableError` for a count below zero, `GpuTable.profile`'s errors for a name and
    `UnpublishedTableError` where nobody knows the placements.
    """
    counts = _counts(table, want)
    names = tuple(counts)
    if not names:
        return ()
    columns = columns_of(table, names)
    left = tuple(counts.values())
    layouts: list[Layout] = []
    for column, times in zip(columns, _fewest(columns, left), strict=True):
        for _ in range(times):
            used = tuple(map(min, column, left))
            left = tuple(a - b for a, b in zip(left, used, strict=True))
            layouts.append(_layout(table, names, used))
    return tuple(layouts)


def fewest_gpus(table: GpuTable, want: Mapping[str, int]) -> int:
    """Return how many GPUs of the model `want` needs at least; raises what `pack` raises."""
    counts = _counts(table, want)
    names = tuple(counts)
    return sum(_fewest(columns_of(table, names), tuple(counts.values()))) if names else 0


@lru_cache(maxsize=1024)
def columns_of(table: GpuTable, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the most that one GPU holds of these profiles: every column that cannot be added to.

    The columns that cover most memory come first.
    """
    found: set[Column] = set()
    seen: set[Column] = set()
    waiting: list[Column] = [(0,) * len(names)]
    while waiting:
        column = waiting.pop()
        larger = [more for more in _one_more(column) if _is_possible(table, names, more)]
        if not larger and any(column):
            found.add(column)
        waiting += [more for more in larger if more not in seen]
        seen.update(larger)
    sizes = [geometry(table).shape_of(name).size for name in names]
    return tuple(sorted(found, key=lambda column: (-_dot(sizes, column), column)))


def _counts(table: GpuTable, want: Mapping[str, int]) -> Counter[str]:
    table.require_published()
    counts: Counter[str] = Counter()
    for name, count in want.items():
        if count < 0:
            message = f"{count} instances of {name} cannot be packed: ask for 0 or more."
            raise UnpackableError(message)
        counts[table.profile(name).name] += count
    return Counter({name: counts[name] for name in sorted(counts) if counts[name]})


def _one_more(column: Column) -> Iterator[Column]:
    return ((*column[:i], column[i] + 1, *column[i + 1 :]) for i in range(len(column)))


def _is_possible(table: GpuTable, names: tuple[str, ...], column: Column) -> bool:
    want = Counter({name: count for name, count in zip(names, column, strict=True) if count})
    shapes = geometry(table)
    if any(count > shapes.shape_of(name).limit for name, count in want.items()):
        return False
    return can_arrange(table, (), want)


@lru_cache(maxsize=4096)
def _layout(table: GpuTable, names: tuple[str, ...], column: Column) -> Layout:
    want = Counter({name: count for name, count in zip(names, column, strict=True) if count})
    layout = best_arrangement(table, (), want)
    # Columns come from the same search, and what is left out of one only makes room.
    assert layout is not None  # noqa: S101
    return layout


def _fewest(columns: tuple[Column, ...], want: Column) -> tuple[int, ...]:
    """Return how often each column is taken, of the fewest columns that cover `want`."""
    target = ceil(_relaxed(columns, want)[0] - _TINY)
    while True:
        found = _cover(columns, want, target)
        if found is not None:
            return found
        target += 1


def _cover(columns: tuple[Column, ...], want: Column, most: int) -> tuple[int, ...] | None:
    """Return how often to take each column so that at most `most` cover `want`, if they can."""
    if not any(want):
        return (0,) * len(columns)
    if not columns or most <= 0:
        return None
    bound, relaxed = _relaxed(columns, want)
    if bound > most + _TINY:
        return None
    first, rest = columns[0], columns[1:]
    useful = max(ceil(w / c) for w, c in zip(want, first, strict=True) if c)
    near = round(relaxed[0])
    for times in sorted(range(min(useful, most) + 1), key=lambda n: (abs(n - near), n)):
        left = tuple(max(0, w - times * c) for w, c in zip(want, first, strict=True))
        found = _cover(rest, left, most - times)
        if found is not None:
            return (times, *found)
    return None


@lru_cache(maxsize=1 << 14)
def _relaxed(columns: tuple[Column, ...], want: Column) -> tuple[float, list[float]]:
    """Return the least sum of columns, parts allowed, that covers `want`, and the parts.

    Solves the dual, ``max want·y`` with ``column·y <= 1``, whose answer at 0 is feasible; the
    columns' parts are the prices of its rows. No finite answer is infinity.
    """
    rows = [
        [*map(float, column), *(float(i == j) for j in range(len(columns))), 1.0]
        for i, column in enumerate(columns)
    ]
    costs = [*(-float(w) for w in want), *[0.0] * len(columns), 0.0]
    while True:
        # Bland's rule: the first of the choices, so that no tie is gone round in circles.
        enter = next((j for j, cost in enumerate(costs[:-1]) if cost < -_TINY), None)
        if enter is None:
            return costs[-1], costs[len(want) : -1]
        ratios = [(row[-1] / row[enter], i) for i, row in enumerate(rows) if row[enter] > _TINY]
        if not ratios:
            return float("inf"), []
        _pivot(rows, costs, min(ratios)[1], enter)


def _pivot(rows: list[list[float]], costs: list[float], leave: int, enter: int) -> None:
    head = rows[leave][enter]
    rows[leave] = pivot = [value / head for value in rows[leave]]
    for row in (*rows[:leave], *rows[leave + 1 :], costs):
        factor = row[enter]
        if factor:
            row[:] = [value - factor * p for value, p in zip(row, pivot, strict=True)]


def _dot(left: list[int], right: Column) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))
