"""Placements: where on a GPU's memory slices a GPU instance lies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self, override

from gpu.planning.errors import PlanningError


class InvalidPlacementError(PlanningError):
    """The numbers do not name a run of memory slices."""


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A run of memory slices: the first one, and how many; written ``start:size`` by NVIDIA."""

    start: int
    size: int

    def __post_init__(self) -> None:
        """Refuse numbers that name no slice."""
        if self.start < 0 or self.size < 1:
            message = f"A placement starts at 0 or later and holds 1 slice or more, not {self}."
            raise InvalidPlacementError(message)

    @property
    def end(self) -> int:
        """Return the first memory slice after it."""
        return self.start + self.size

    @property
    def mask(self) -> int:
        """Return the slices as bits: bit n stands for memory slice n."""
        return ((1 << self.size) - 1) << self.start

    def overlaps(self, other: Self) -> bool:
        """Return whether the two share a memory slice."""
        return self.start < other.end and other.start < self.end

    @override
    def __str__(self) -> str:
        return f"{self.start}:{self.size}"


def occupied(placements: Iterable[Placement]) -> int:
    """Return the bitmask of all memory slices that the placements cover."""
    mask = 0
    for placement in placements:
        mask |= placement.mask
    return mask


def free_placements(placements: Iterable[Placement], taken: int) -> Iterator[Placement]:
    """Yield, in their order, the placements that touch no slice of the bitmask `taken`."""
    return (placement for placement in placements if not placement.mask & taken)
