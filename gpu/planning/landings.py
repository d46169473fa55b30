"""Where instances land that are made by counts: the driver chooses the places."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations

from gpu.planning.geometry import Instance
from gpu.planning.layouts import free_starts
from gpu.planning.tables import GpuTable

type Pairs = frozenset[tuple[str, int]]
"""Instances as pairs of profile and start."""


@lru_cache(maxsize=256)
def landings(table: GpuTable, names: tuple[str, ...]) -> frozenset[Pairs]:
    """Return the layouts that these profiles, by counts, may end in.

    The order in which mig-parted tries profiles is not told, and a driver takes the first free
    start of its own list; what it really did is read from the devices afterwards.
    """
    found = set()
    for order in dict.fromkeys(permutations(names)):
        pairs = _land(table, order)
        if pairs is not None:
            found.add(pairs)
    return frozenset(found)


def likely_landing(table: GpuTable, pairs: Iterable[tuple[str, int]]) -> Pairs | None:
    """Return where these profiles most likely land; None when no order of them fits."""
    names = profiles_of(pairs)
    return next(
        (found for order in dict.fromkeys(permutations(names)) if (found := _land(table, order))),
        None if names else frozenset(),
    )


def profiles_of(pairs: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Return the profiles of instances, small ones first, so that equal counts are equal."""
    return tuple(sorted((profile for profile, _start in pairs), key=_by_size))


def _by_size(name: str) -> tuple[int, str]:
    slices = name.partition("g.")[0]
    return (int(slices) if slices.isdecimal() else 0, name)


def _land(table: GpuTable, order: Iterable[str]) -> Pairs | None:
    made: list[Instance] = []
    for name in order:
        starts = free_starts(table, made, name)
        if not starts:
            return None
        made.append(Instance(name, starts[0]))
    return frozenset((item.profile, item.start) for item in made)
