"""Placement policies of the field, restated from their sources in our own words, and ours.

A policy holds the GPUs' state itself: `place` returns a token for `release`, or None.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from bench.model import (
    GPUS_PER_NODE,
    PROFILES,
    SLICES,
    free_starts,
    mask_of,
    sizes,
    starts,
    table,
)
from gpu.planning.geometry import Instance
from gpu.planning.placing import PlacementIndex, Shift, Worth

type Token = tuple[int, int]
_HIGH_FIRST = frozenset({0, 2})  # HAMi puts 1g and 3g at the highest legal start


class Policy(Protocol):
    """Places and releases instances by profile number."""

    def place(self, kind: int) -> Token | None:
        """Put an instance somewhere, or refuse."""
        ...

    def release(self, token: Token) -> None:
        """Take it away."""
        ...


type Pick = Callable[[list[int], int], tuple[int, int] | None]
"""From the masks of all GPUs and a profile to GPU and start."""


class Scan:
    """A policy that looks at every GPU's mask of taken slices."""

    def __init__(self, gpus: int, pick: Pick) -> None:
        self._masks = [0] * gpus
        self._pick = pick

    def place(self, kind: int) -> Token | None:
        """Ask the pick."""
        found = self._pick(self._masks, kind)
        if found is None:
            return None
        gpu, start = found
        mask = mask_of(kind, start)
        self._masks[gpu] |= mask
        return gpu, mask

    def release(self, token: Token) -> None:
        """Give the slices back."""
        gpu, mask = token
        self._masks[gpu] &= ~mask


def _start_like_hami(kind: int, free: Sequence[int]) -> int:
    return free[-1] if kind in _HIGH_FIRST else free[0]


def hami(masks: list[int], kind: int) -> tuple[int, int] | None:
    """HAMi's default: the node with least free memory that can, its emptiest GPU, its starts."""
    free_of = free_starts()[kind]
    best: tuple[int, int, int] | None = None
    for first in range(0, len(masks), GPUS_PER_NODE):
        members = range(first, min(first + GPUS_PER_NODE, len(masks)))
        able = [gpu for gpu in members if free_of[masks[gpu]]]
        if able:
            free = sum(SLICES - masks[gpu].bit_count() for gpu in members)
            emptiest = min(able, key=lambda gpu: (masks[gpu].bit_count(), gpu))
            if best is None or free < best[0]:
                best = (free, first, emptiest)
    if best is None:
        return None
    gpu = best[2]
    return gpu, _start_like_hami(kind, free_of[masks[gpu]])


def das(masks: list[int], kind: int) -> tuple[int, int] | None:
    """InstaSlice (DAS): the node with most free slices, its first GPU that can, lowest start."""
    free_of = free_starts()[kind]
    nodes = sorted(
        range(0, len(masks), GPUS_PER_NODE),
        key=lambda first: (
            sum(mask.bit_count() for mask in masks[first : first + GPUS_PER_NODE]),
            first,
        ),
    )
    for first in nodes:
        for gpu in range(first, min(first + GPUS_PER_NODE, len(masks))):
            if free_of[masks[gpu]]:
                return gpu, free_of[masks[gpu]][0]
    return None


def first_fit(masks: list[int], kind: int) -> tuple[int, int] | None:
    """Kubernetes' DRA allocator and plain first-fit: first GPU, first placement that matches."""
    free_of = free_starts()[kind]
    return next(((gpu, free_of[m][0]) for gpu, m in enumerate(masks) if free_of[m]), None)


def first_fit_hami_starts(masks: list[int], kind: int) -> tuple[int, int] | None:
    """First GPU that can, HAMi's starts."""
    free_of = free_starts()[kind]
    return next(
        ((gpu, _start_like_hami(kind, free_of[m])) for gpu, m in enumerate(masks) if free_of[m]),
        None,
    )


def best_fit(masks: list[int], kind: int) -> tuple[int, int] | None:
    """The fullest GPU that can, lowest start."""
    gpu = _fullest(masks, kind)
    return None if gpu is None else (gpu, free_starts()[kind][masks[gpu]][0])


def best_fit_hami_starts(masks: list[int], kind: int) -> tuple[int, int] | None:
    """The fullest GPU that can, HAMi's starts."""
    gpu = _fullest(masks, kind)
    if gpu is None:
        return None
    return gpu, _start_like_hami(kind, free_starts()[kind][masks[gpu]])


def best_fit_least_lost(masks: list[int], kind: int) -> tuple[int, int] | None:
    """The fullest GPUs that can; among them where the fewest placements, by size, are lost."""
    free_of = free_starts()[kind]
    able = [gpu for gpu, mask in enumerate(masks) if free_of[mask]]
    if not able:
        return None
    most = max(masks[gpu].bit_count() for gpu in able)
    places = {
        (masks[gpu], start): gpu
        for gpu in reversed(able)
        if masks[gpu].bit_count() == most
        for start in free_of[masks[gpu]]
    }
    mask, start = min(places, key=lambda place: (_lost(kind, *place), place[1], places[place]))
    return places[mask, start], start


def spread(masks: list[int], kind: int) -> tuple[int, int] | None:
    """The emptiest GPU that can, lowest start."""
    free_of = free_starts()[kind]
    able = [gpu for gpu, mask in enumerate(masks) if free_of[mask]]
    if not able:
        return None
    gpu = min(able, key=lambda item: (masks[item].bit_count(), item))
    return gpu, free_of[masks[gpu]][0]


def at_random(seed: int) -> Pick:
    """Any GPU that can, any start."""
    chance = random.Random(seed)  # noqa: S311  # no secret

    def pick(masks: list[int], kind: int) -> tuple[int, int] | None:
        free_of = free_starts()[kind]
        able = [gpu for gpu, mask in enumerate(masks) if free_of[mask]]
        if not able:
            return None
        gpu = chance.choice(able)
        return gpu, chance.choice(free_of[masks[gpu]])

    return pick


class StaticBalanced:
    """Every GPU cut once as mig-parted's all-balanced: 2x1g + 2g + 3g; nothing else ever fits."""

    def __init__(self, gpus: int) -> None:
        self._free = [2 * gpus, gpus, gpus, 0, 0]

    def place(self, kind: int) -> Token | None:
        """Take a free instance of just that profile."""
        if not self._free[kind]:
            return None
        self._free[kind] -= 1
        return 0, kind

    def release(self, token: Token) -> None:
        """Put it back."""
        self._free[token[1]] += 1


class Ours:
    """The product's own online placement."""

    def __init__(self, gpus: int) -> None:
        self.index = PlacementIndex(Worth(table()), [()] * gpus)

    def place(self, kind: int) -> Token | None:
        """Ask the index."""
        found = self.index.place(PROFILES[kind])
        return None if found is None else self._token(*found, kind)

    def place_with_one_move(self, kind: int) -> tuple[Token, Shift] | None:
        """Ask the index to move one smaller instance."""
        found = self.index.place_with_one_move(PROFILES[kind])
        if found is None:
            return None
        gpu, instance, shift = found
        return self._token(gpu, instance, kind), shift

    def release(self, token: Token) -> None:
        """Give it back to the index."""
        gpu, code = token
        self.index.release(gpu, Instance(PROFILES[code // SLICES], code % SLICES))

    @staticmethod
    def _token(gpu: int, instance: Instance, kind: int) -> Token:
        return gpu, kind * SLICES + instance.start


SCANS: dict[str, Pick] = {
    "hami": hami,
    "das": das,
    "dra": first_fit,
    "first-fit": first_fit_hami_starts,
    "best-fit": best_fit,
    "best-fit-hami-starts": best_fit_hami_starts,
    "best-fit-least-lost": best_fit_least_lost,
    "spread": spread,
}
BASELINES = (*SCANS, "random", "static-balanced")


def make(name: str, gpus: int, *, seed: int = 0) -> Policy:
    """Return a fresh policy by its name in the results."""
    if name == "ours":
        return Ours(gpus)
    if name == "static-balanced":
        return StaticBalanced(gpus)
    return Scan(gpus, at_random(seed) if name == "random" else SCANS[name])


def _fullest(masks: list[int], kind: int) -> int | None:
    free_of = free_starts()[kind]
    able = [gpu for gpu, mask in enumerate(masks) if free_of[mask]]
    return max(able, key=lambda gpu: (masks[gpu].bit_count(), -gpu)) if able else None


def _lost(kind: int, taken: int, start: int) -> int:
    after = taken | mask_of(kind, start)
    return sum(
        sizes()[other] * (len(free_starts()[other][taken]) - len(free_starts()[other][after]))
        for other in range(len(starts()))
    )
