"""Tables over masks of taken slices: policies look at 100 GPUs with one `bytes.translate`."""

from collections.abc import Callable

from bench.model import FULL, PROFILES, free_starts, mask_of, sizes

MASKS = range(FULL + 1)
TAKEN = bytes(mask.bit_count() for mask in MASKS)
"""How many memory slices a mask takes."""

type Rank = tuple[bytes, ...]
"""By profile and mask: 0 where the profile does not fit, else the larger the better."""
type Starts = tuple[tuple[int, ...], ...]
"""By profile and mask: the start to take, -1 where there is none."""


def ranked_by(cost: Callable[[int, int], float]) -> Rank:
    """Return the rank of each mask by its cost, of profile and mask: the least ranks highest."""
    tables = []
    for kind in range(len(PROFILES)):
        costs = {mask: cost(kind, mask) for mask in MASKS if free_starts()[kind][mask]}
        order = sorted(set(costs.values()), reverse=True)
        place = {value: index + 1 for index, value in enumerate(order)}
        tables.append(bytes(place[costs[mask]] if mask in costs else 0 for mask in MASKS))
    return tuple(tables)


def starts_by(cost: Callable[[int, int, int], float]) -> Starts:
    """Return the start of least cost, of profile, mask and start; the lowest of equals."""
    return tuple(
        tuple(_cheapest(cost, kind, mask) for mask in MASKS) for kind in range(len(PROFILES))
    )


def _cheapest(cost: Callable[[int, int, int], float], kind: int, mask: int) -> int:
    starts = free_starts()[kind][mask]
    return min(starts, key=lambda start: (cost(kind, mask, start), start), default=-1)


def lost_room(kind: int, mask: int, start: int) -> int:
    """Return the placements, times their slices, that an instance would take from what is free."""
    after = mask | mask_of(kind, start)
    return sum(
        size * (len(free_starts()[other][mask]) - len(free_starts()[other][after]))
        for other, size in enumerate(sizes())
    )
