"""Online placement: where a new GPU instance goes, so that room is kept for what comes next.

A GPU is worth what could still be placed on it: for every legal placement its memory slices, times
the patience with each instance that would have to leave first. A placement that is free counts in
full; one that a single departure would free still counts a little, so that instances gather where
others stay anyway and GPUs that drain are left to drain. Where it is known when an instance ends,
patience with it follows from that; else it is the same with all. Of all places that fit, a new
instance takes the one that lowers this worth least; ties go to the GPU with more memory in use,
then to the lower start. Nothing that fits anywhere is ever refused.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpu.planning.gathering import Candidate
from gpu.planning.geometry import (
    Geometry,
    Instance,
    Layout,
    Shape,
    geometry,
    layout_of,
    load_of,
    may_add,
)
from gpu.planning.tables import GpuTable

PATIENCE = 0.06
"""What a placement still counts for each instance that would have to leave before it."""

PATIENCE_WITH_MOVES = 0.2
"""The same where one instance may be moved away: what a single one blocks is less lost."""

type Weights = Mapping[str, float]
"""How much room for each profile counts.

One that is not named counts 1, or 0 if it has an attribute: such profiles lie where plain ones do,
and would only make small room count double.
"""

type Patiences = tuple[float, ...]
"""What a placement still counts behind each instance of a layout, in the layout's order."""

_HORIZON = 0.5
"""How far ahead, in mean times that are left, an end counts as near."""
_STEPS = 5
_SHARPNESS = 0.1
_REMEMBERED = 1 << 17


def patience_with(left: float, mean_left: float) -> float:
    """Return the patience with an instance that ends after `left`, in the unit of `mean_left`.

    Between 1 for one that is about to go and 0 for one that stays, in few steps, so that answers
    can be remembered; `mean_left` is the mean over all instances with an end.
    """
    near = math.exp(-max(0.0, left) / (_HORIZON * mean_left)) if mean_left > 0 else 1.0
    return round(near * _STEPS) / _STEPS


def weights_of(counts: Mapping[str, int]) -> dict[str, float]:
    """Return weights for profiles from how often each was asked for lately.

    They differ little: room for large profiles is worth its size even where they are rare, since
    it is what is lost first. A profile that nobody asks for counts somewhat less.
    """
    most = max(counts.values(), default=0)
    return {name: ((1 + n) / (1 + most)) ** _SHARPNESS for name, n in counts.items()}


@dataclass(frozen=True, slots=True)
class Move:
    """One way to take one more instance: from a layout to another, and the worth that it costs."""

    before: Layout
    instance: Instance
    after: Layout
    cost: float
    used: int


@dataclass(frozen=True, slots=True)
class Shift:
    """An instance that has been moved, with its holder's consent, from one GPU to another."""

    from_gpu: int
    from_instance: Instance
    to_gpu: int
    to_instance: Instance


class Worth:
    """What layouts of one GPU model are worth, and which moves they allow; remembers answers."""

    def __init__(
        self, table: GpuTable, weights: Weights | None = None, *, patience: float = PATIENCE
    ) -> None:
        self.shapes: Geometry = geometry(table)
        self._weights = {p.name: 0.0 if p.attribute else 1.0 for p in table.profiles}
        self._weights |= weights or {}
        self._patience = patience
        self._worth: dict[tuple[Layout, Patiences | None], float] = {}
        self._moves: dict[tuple[Layout, str], tuple[Move, ...]] = {}

    def of(self, layout: Layout, patiences: Patiences | None = None) -> float:
        """Return what could still be placed beside a layout, discounted by who must leave first."""
        key = (layout, patiences)
        if key not in self._worth:
            if len(self._worth) >= _REMEMBERED:
                self._worth.clear()
            masks = [self.shapes.slot_of(item)[1].mask for item in layout]
            taken = list(zip(masks, patiences or (self._patience,) * len(masks), strict=True))
            self._worth[key] = sum(self._shape_worth(s, taken) for s in self.shapes.shapes)
        return self._worth[key]

    def moves(self, layout: Layout, profile: str) -> tuple[Move, ...]:
        """Return every way to add an instance of a profile, the cheapest first."""
        key = (layout, profile)
        if key not in self._moves:
            self._moves[key] = tuple(sorted(self._all_moves(layout, profile), key=_cheapest))
        return self._moves[key]

    def cost(self, move: Move, patiences: Patiences, patience: float) -> float:
        """Return the worth that a move costs, with patience by instance and with the new one."""
        by_instance = dict(zip(move.before, patiences, strict=True))
        by_instance[move.instance] = patience
        after = tuple(by_instance[item] for item in move.after)
        return self.of(move.before, patiences) - self.of(move.after, after)

    def _shape_worth(self, shape: Shape, taken: Sequence[tuple[int, float]]) -> float:
        weight = self._weights[shape.name] * shape.size
        return weight * sum(
            math.prod(patience for mask, patience in taken if slot.mask & mask)
            for slot in shape.slots
        )

    def _all_moves(self, layout: Layout, profile: str) -> list[Move]:
        shape, load = self.shapes.shape_of(profile), load_of(self.shapes, layout)
        if not may_add(self.shapes, load, shape):
            return []
        before, used = self.of(layout), load.mask.bit_count()
        found = []
        for slot in shape.slots:
            if not slot.mask & load.mask:
                after = layout_of((*layout, slot.instance))
                found.append(Move(layout, slot.instance, after, before - self.of(after), used))
        return found


def _cheapest(move: Move) -> tuple[float, int, int]:
    return round(move.cost, 9), -move.used, move.instance.start


def _victim(item: tuple[int, float, int, Instance, Instance]) -> tuple[int, float, int, str]:
    size, cost, number, victim, instance = item
    return size, round(cost, 9), number, f"{victim} {instance}"


class PlacementIndex:
    """Many GPUs of one model, gathered by their layout, so that a decision looks at layouts only.

    For each profile the moves from all layouts seen so far stand in one order; a bit says whether
    some GPU has the layout that the move starts from, and the lowest bit is the decision. Layouts
    are numbered as they are first seen.
    """

    def __init__(self, worth: Worth, layouts: Sequence[Layout]) -> None:
        self._worth = worth
        self._numbers: dict[Layout, int] = {}
        self._seen: list[Layout] = []
        self._members: list[list[int]] = []
        self._without: list[dict[Instance, int]] = []
        self._rankings: dict[str, _Ranking] = {}
        self._layout_of = [self._number(layout) for layout in layouts]
        self._position = [0] * len(layouts)
        for gpu, number in enumerate(self._layout_of):
            self._join(gpu, number)

    def layout(self, gpu: int) -> Layout:
        """Return what a GPU holds."""
        return self._seen[self._layout_of[gpu]]

    def place(self, profile: str) -> tuple[int, Instance] | None:
        """Put an instance where it costs least; None when it fits nowhere."""
        ranking = self._rankings.get(profile) or self._rank(profile)
        ready = ranking.ready
        if not ready:
            return None
        place = (ready & -ready).bit_length() - 1
        move, after = ranking.moves[place], ranking.after[place]
        gpu = self._members[ranking.before[place]][-1]
        # A layout that nobody had before makes new rankings, in which this one has its number.
        self._change(gpu, self._number(move.after) if after is None else after)
        return gpu, move.instance

    def release(self, gpu: int, instance: Instance) -> None:
        """Take an instance away again."""
        number = self._layout_of[gpu]
        left = self._without[number].get(instance)
        if left is None:
            layout = tuple(item for item in self._seen[number] if item != instance)
            left = self._without[number][instance] = self._number(layout)
        self._change(gpu, left)

    def place_with_one_move(self, profile: str) -> tuple[int, Instance, Shift] | None:
        """Make room by moving one smaller instance to another place; None when that is not enough.

        To be asked when `place` found nothing, and only where the holder agreed. The smallest
        instance is moved, then the one whose going and coming costs least.
        """
        for _size, _cost, number, victim, instance in sorted(self._victims(profile), key=_victim):
            if not self._is_ready(victim.profile):
                continue
            gpu = self._members[number][-1]
            rest = tuple(item for item in self._seen[number] if item != victim)
            self._change(gpu, self._number(layout_of((*rest, instance))))
            found = self.place(victim.profile)
            if found is not None:
                return gpu, instance, Shift(gpu, victim, *found)
            self._change(gpu, number)
        return None

    def _is_ready(self, profile: str) -> bool:
        ranking = self._rankings.get(profile) or self._rank(profile)
        return bool(ranking.ready)

    def _victims(self, profile: str) -> Iterator[tuple[int, float, int, Instance, Instance]]:
        """Yield size and cost, number of layout, who would go, and what would come instead."""
        shapes = self._worth.shapes
        shape = shapes.shape_of(profile)
        for number, members in enumerate(self._members):
            layout = self._seen[number] if members else ()
            for slot in shape.slots:
                inside = [i for i in layout if shapes.slot_of(i)[1].mask & slot.mask]
                if len(inside) != 1 or shapes.shape_of(inside[0].profile).size >= shape.size:
                    continue
                rest = tuple(item for item in layout if item != inside[0])
                if may_add(shapes, load_of(shapes, rest), shape):
                    after = layout_of((*rest, slot.instance))
                    cost = self._worth.of(layout) - self._worth.of(after)
                    size = shapes.shape_of(inside[0].profile).size
                    yield size, cost, number, inside[0], slot.instance

    def _change(self, gpu: int, number: int) -> None:
        old = self._layout_of[gpu]
        members, position = self._members[old], self._position[gpu]
        last = members.pop()
        if last != gpu:
            members[position] = last
            self._position[last] = position
        if not members:
            for ranking in self._rankings.values():
                ranking.ready &= ~ranking.bits[old]
        self._layout_of[gpu] = number
        self._join(gpu, number)

    def _join(self, gpu: int, number: int) -> None:
        members = self._members[number]
        self._position[gpu] = len(members)
        members.append(gpu)
        if len(members) == 1:
            for ranking in self._rankings.values():
                ranking.ready |= ranking.bits[number]

    def _number(self, layout: Layout) -> int:
        """Return a layout's number; a new layout changes all rankings."""
        if layout not in self._numbers:
            self._numbers[layout] = len(self._seen)
            self._seen.append(layout)
            self._members.append([])
            self._without.append({})
            for profile in self._rankings:
                self._rank(profile)
        return self._numbers[layout]

    def _rank(self, profile: str) -> "_Ranking":
        """Order the moves of a profile from all layouts seen so far."""
        moves = [move for seen in self._seen for move in self._worth.moves(seen, profile)]
        moves.sort(key=lambda move: (*_cheapest(move), str(move.before)))
        bits = [0] * len(self._seen)
        for place, move in enumerate(moves):
            bits[self._numbers[move.before]] |= 1 << place
        ready = 0
        for members, of_layout in zip(self._members, bits, strict=True):
            ready |= of_layout if members else 0
        ranking = _Ranking(
            moves,
            [self._numbers[move.before] for move in moves],
            [self._numbers.get(move.after) for move in moves],
            bits,
            ready,
        )
        self._rankings[profile] = ranking
        return ranking


@dataclass(slots=True)
class _Ranking:
    """The moves of a profile, the cheapest first, by number of layout before and after.

    `bits` has, by layout, the bits of its moves; `ready` those of all moves that are possible now.
    """

    moves: list[Move]
    before: list[int]
    after: list[int | None]
    bits: list[int]
    ready: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """When instances end: how long each still has, by GPU and instance, in one unit."""

    left: Mapping[tuple[str, Instance], float]

    def patiences(self, gpu_uuid: str, layout: Layout) -> Patiences:
        """Return the patience with each instance of a GPU; none with those that have no end."""
        mean_left = sum(self.left.values()) / len(self.left) if self.left else 0.0
        known = (self.left.get((gpu_uuid, item)) for item in layout)
        return tuple(0.0 if left is None else patience_with(left, mean_left) for left in known)


def chooser(
    weights: Weights | None = None, leaving: Leaving | None = None
) -> Callable[[Sequence[Candidate]], Candidate]:
    """Return how fitting picks the GPU to cut: the least effort first, then the least worth lost.

    `weights` are `weights_of` what has been asked for lately; `leaving` says when instances end.
    """
    frozen = tuple(sorted((weights or {}).items()))

    def rank(item: Candidate) -> tuple[object, ...]:
        return (
            item.cut.effort,
            round(_lost(item, frozen, leaving), 9),
            -len(item.gpu.in_use),
            item.node,
            item.gpu.index,
        )

    return lambda candidates: min(candidates, key=rank)


def _lost(
    item: Candidate, weights: tuple[tuple[str, float], ...], leaving: Leaving | None
) -> float:
    """Return the worth that a cut costs; what lies free and unused has no end and no patience."""
    if item.gpu.table is None:
        return 0.0
    worth = _worth_for(item.gpu.table, weights)
    before, after = item.gpu.layout, item.cut.plan.layout
    if leaving is None:
        return worth.of(before) - worth.of(after)
    uuid = item.gpu.uuid
    return worth.of(before, leaving.patiences(uuid, before)) - worth.of(
        after, leaving.patiences(uuid, after)
    )


@lru_cache(maxsize=256)
def _worth_for(table: GpuTable, weights: tuple[tuple[str, float], ...]) -> Worth:
    return Worth(table, dict(weights))
