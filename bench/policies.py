"""Placement policies of the field, restated from their sources in our own words, and ours.

A policy holds the GPUs' state itself: `place` returns a token for `release`, or None.
"""

import random
from collections.abc import Callable
from typing import Protocol, override

from bench.model import GPUS_PER_NODE, PROFILES, SLICES, free_starts, mask_of, table
from bench.ranks import TAKEN, Rank, Starts, lost_room, ranked_by, starts_by
from gpu.planning.geometry import Instance
from gpu.planning.placing import PATIENCE, PlacementIndex, Shift, Worth

type Token = tuple[int, int]
_HIGH_FIRST = frozenset({0, 2})  # HAMi puts 1g and 3g at the highest legal start

LOWEST = starts_by(lambda _kind, _mask, _start: 0)
LIKE_HAMI = starts_by(lambda kind, _mask, start: -start if kind in _HIGH_FIRST else start)
LEAST_LOST = starts_by(lost_room)
FIRST = ranked_by(lambda _kind, _mask: 0)
FULLEST = ranked_by(lambda _kind, mask: -TAKEN[mask])
EMPTIEST = ranked_by(lambda _kind, mask: TAKEN[mask])
FULLEST_LEAST_LOST = ranked_by(
    lambda kind, mask: lost_room(kind, mask, LEAST_LOST[kind][mask]) - 1000 * TAKEN[mask]
)


class Policy(Protocol):
    """Places and releases instances by profile number."""

    def place(self, kind: int) -> Token | None:
        """Put an instance somewhere, or refuse."""
        ...

    def release(self, token: Token) -> None:
        """Take it away."""
        ...


class Ranked:
    """The first GPU of the best rank, and there the start that a table names."""

    def __init__(self, gpus: int, rank: Rank, starts: Starts) -> None:
        self._masks = bytearray(gpus)
        self._rank = rank
        self._starts = starts

    def place(self, kind: int) -> Token | None:
        """Put an instance where the tables say, or refuse."""
        gpu = self.choose(kind)
        return None if gpu < 0 else self.put(gpu, kind, self._starts[kind][self._masks[gpu]])

    def release(self, token: Token) -> None:
        """Give the slices back."""
        gpu, mask = token
        self._masks[gpu] &= ~mask

    def choose(self, kind: int) -> int:
        """Return the GPU to take, -1 when none fits."""
        ranks = self._masks.translate(self._rank[kind])
        best = max(ranks)
        return ranks.find(best) if best else -1

    def put(self, gpu: int, kind: int, start: int) -> Token:
        """Take the slices of a placement."""
        mask = mask_of(kind, start)
        self._masks[gpu] |= mask
        return gpu, mask

    def _nodes(self, kind: int) -> list[tuple[int, int]]:
        """Return the first GPU of each node that can, and the node's free slices."""
        able = self._masks.translate(self._rank[kind])
        taken = self._masks.translate(TAKEN)
        found = []
        for first in range(0, len(able), GPUS_PER_NODE):
            if any(able[first : first + GPUS_PER_NODE]):
                of_node = taken[first : first + GPUS_PER_NODE]
                found.append((first, SLICES * len(of_node) - sum(of_node)))
        return found


class HamiDefault(Ranked):
    """HAMi's default: of the nodes that can that with least free memory, its emptiest GPU."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus, EMPTIEST, LIKE_HAMI)

    @override
    def choose(self, kind: int) -> int:
        """Return the GPU to take, -1 when none fits."""
        nodes = self._nodes(kind)
        if not nodes:
            return -1
        first = min(nodes, key=lambda node: (node[1], node[0]))[0]
        ranks = self._masks[first : first + GPUS_PER_NODE].translate(self._rank[kind])
        return first + ranks.find(max(ranks))


class Das(Ranked):
    """InstaSlice (DAS): of the nodes that can that with most free slices, its first GPU."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus, FIRST, LOWEST)

    @override
    def choose(self, kind: int) -> int:
        """Return the GPU to take, -1 when none fits."""
        nodes = self._nodes(kind)
        if not nodes:
            return -1
        first = max(nodes, key=lambda node: (node[1], -node[0]))[0]
        return self._masks.translate(self._rank[kind]).find(1, first)


class AtRandom(Ranked):
    """Any GPU that can, any start."""

    def __init__(self, gpus: int, seed: int) -> None:
        super().__init__(gpus, FIRST, LOWEST)
        self._chance = random.Random(seed)  # noqa: S311  # no secret

    @override
    def place(self, kind: int) -> Token | None:
        """Put an instance anywhere, or refuse."""
        able = [g for g, fits in enumerate(self._masks.translate(self._rank[kind])) if fits]
        if not able:
            return None
        gpu = self._chance.choice(able)
        return self.put(gpu, kind, self._chance.choice(free_starts()[kind][self._masks[gpu]]))


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

    def __init__(self, gpus: int, *, patience: float = PATIENCE) -> None:
        self.index = PlacementIndex(Worth(table(), patience=patience), [()] * gpus)

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


MAKERS: dict[str, Callable[[int], Policy]] = {
    "hami": HamiDefault,
    "das": Das,
    "dra": lambda gpus: Ranked(gpus, FIRST, LOWEST),
    "first-fit": lambda gpus: Ranked(gpus, FIRST, LIKE_HAMI),
    "best-fit": lambda gpus: Ranked(gpus, FULLEST, LOWEST),
    "best-fit-hami-starts": lambda gpus: Ranked(gpus, FULLEST, LIKE_HAMI),
    "best-fit-least-lost": lambda gpus: Ranked(gpus, FULLEST_LEAST_LOST, LEAST_LOST),
    "emptiest": lambda gpus: Ranked(gpus, EMPTIEST, LOWEST),
    "static-balanced": StaticBalanced,
}
"""The peers; first-fit differs from Kubernetes' DRA allocator in HAMi's starts, ``emptiest`` is
spreading over all GPUs."""
BASELINES = (*MAKERS, "random")


def make(name: str, gpus: int, seed: int = 0) -> Policy:
    """Return a fresh policy by its name in the results."""
    if name == "ours":
        return Ours(gpus)
    return AtRandom(gpus, seed) if name == "random" else MAKERS[name](gpus)
