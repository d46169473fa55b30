"""B1 and B2: placement under churn, and with one consented move."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, stdev

from bench.bound import RepackingBound
from bench.ends import EndsKnown
from bench.model import PROFILES, SLICES, Arrival, Churn, sizes
from bench.policies import Ours, Token, make
from gpu.planning.geometry import Instance
from gpu.planning.placing import PATIENCE_WITH_MOVES

_WHOLE = len(PROFILES) - 1
MOST_MOVES = 0.048
"""Moves that are allowed for each request that was let in, so that they stay below 5 %."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run let in after its warm-up, in percent; `moves` in percent of what came in.

    `slices` weighs requests by memory slices, `whole` is of those for 7g, `used` is the part of
    all slice time that instances took.
    """

    slices: float
    requests: float
    whole: float
    used: float
    moves: float = 0.0


@dataclass(slots=True)
class _Tally:
    """Counts what comes after the warm-up, between `begin` and `end`."""

    begin: float
    end: float
    gpus: int
    offered: list[int] = field(default_factory=lambda: [0] * len(PROFILES))
    accepted: list[int] = field(default_factory=lambda: [0] * len(PROFILES))
    used: float = 0.0
    moves: int = 0

    def add(self, arrival: Arrival, *, is_in: bool) -> None:
        counts = arrival.at >= self.begin
        self.offered[arrival.kind] += counts
        if is_in:
            self.accepted[arrival.kind] += counts
            lived = min(arrival.at + arrival.life, self.end) - max(arrival.at, self.begin)
            self.used += sizes()[arrival.kind] * max(0.0, lived)

    def outcome(self) -> Outcome:
        capacity = SLICES * self.gpus * (self.end - self.begin)
        return Outcome(
            slices=_percent(_weigh(self.accepted), _weigh(self.offered)),
            requests=_percent(sum(self.accepted), sum(self.offered)),
            whole=_percent(self.accepted[_WHOLE], self.offered[_WHOLE]),
            used=_percent(self.used, capacity),
            moves=_percent(self.moves, sum(self.accepted)),
        )


def run(name: str, churn: Churn) -> Outcome:
    """Play the arrivals through a policy by name, or through the bound."""
    if name == "ours+move":
        return _run_with_moves(churn)
    if name == "ours+ends":
        knowing = EndsKnown(churn.gpus)
        return _run(churn, knowing.place_until, knowing.release)
    policy = RepackingBound(churn.gpus) if name == "bound" else make(name, churn.gpus, churn.seed)
    return _run(churn, lambda arrival: policy.place(arrival.kind), policy.release)


def _run[Held](
    churn: Churn, place: Callable[[Arrival], Held | None], release: Callable[[Held], None]
) -> Outcome:
    ends: list[tuple[float, int, Held]] = []
    arrivals = churn.events()
    tally = _Tally(arrivals[churn.warm_up].at, arrivals[-1].at, churn.gpus)
    for number, arrival in enumerate(arrivals):
        while ends and ends[0][0] <= arrival.at:
            release(heapq.heappop(ends)[2])
        held = place(arrival)
        if held is not None:
            heapq.heappush(ends, (arrival.at + arrival.life, number, held))
        tally.add(arrival, is_in=held is not None)
    return tally.outcome()


@dataclass(slots=True)
class _Moving:
    """Our policy, who holds which instance, and how many moves there were."""

    policy: Ours
    where: dict[int, Token] = field(default_factory=dict)
    holders: dict[Token, int] = field(default_factory=dict)
    moves: int = 0
    accepted: int = 0

    def place(self, number: int, kind: int) -> bool:
        """Place a request's instance, moving another one where that is needed and allowed."""
        found = self.policy.place(kind)
        if found is None and self.moves < MOST_MOVES * self.accepted:
            found = self._move(kind)
        if found is None:
            return False
        self.where[number] = found
        self.holders[found] = number
        self.accepted += 1
        return True

    def release(self, number: int) -> None:
        """Let a request's instance go, wherever it is now."""
        token = self.where.pop(number)
        del self.holders[token]
        self.policy.release(token)

    def _move(self, kind: int) -> Token | None:
        moved = self.policy.place_with_one_move(kind)
        if moved is None:
            return None
        found, shift = moved
        holder = self.holders.pop(_token(shift.from_gpu, shift.from_instance))
        self.where[holder] = _token(shift.to_gpu, shift.to_instance)
        self.holders[self.where[holder]] = holder
        self.moves += 1
        return found


def _run_with_moves(churn: Churn) -> Outcome:
    moving = _Moving(Ours(churn.gpus, patience=PATIENCE_WITH_MOVES))
    ends: list[tuple[float, int]] = []
    arrivals = churn.events()
    tally = _Tally(arrivals[churn.warm_up].at, arrivals[-1].at, churn.gpus)
    for number, arrival in enumerate(arrivals):
        while ends and ends[0][0] <= arrival.at:
            moving.release(heapq.heappop(ends)[1])
        moves = moving.moves
        is_in = moving.place(number, arrival.kind)
        if is_in:
            heapq.heappush(ends, (arrival.at + arrival.life, number))
        tally.add(arrival, is_in=is_in)
        tally.moves += (moving.moves - moves) * (number >= churn.warm_up)
    return tally.outcome()


def _token(gpu: int, instance: Instance) -> Token:
    return gpu, PROFILES.index(instance.profile) * SLICES + instance.start


def _weigh(counts: list[int]) -> int:
    return sum(count * size for count, size in zip(counts, sizes(), strict=True))


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 100.0


def gap_closed(ours: float, peer: float, bound: float) -> float:
    """Return which part of the way from a peer to the bound is gone."""
    return (ours - peer) / (bound - peer) if bound > peer else 1.0


def spread_of(values: list[float]) -> float:
    """Return the standard deviation over the seeds, in points."""
    return stdev(values) if len(values) > 1 else 0.0


def mean_of(values: list[float]) -> float:
    """Return the mean over the seeds."""
    return mean(values)
