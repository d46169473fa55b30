"""B1 and B2: placement under churn, and with one consented move."""

import heapq
from dataclasses import dataclass
from statistics import mean, stdev

from bench.bound import RepackingBound
from bench.model import PROFILES, Churn, sizes
from bench.policies import Ours, Policy, Token, make
from gpu.planning.geometry import Instance

_WHOLE = len(PROFILES) - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run let in after its warm-up, in percent; `moves` in percent of what came in."""

    slices: float
    requests: float
    whole: float
    moves: float = 0.0


@dataclass(slots=True)
class _Tally:
    offered: int = 0
    accepted: int = 0
    offered_slices: int = 0
    accepted_slices: int = 0
    offered_whole: int = 0
    accepted_whole: int = 0
    moves: int = 0

    def add(self, kind: int, *, is_in: bool) -> None:
        size = sizes()[kind]
        self.offered += 1
        self.offered_slices += size
        self.offered_whole += kind == _WHOLE
        self.accepted += is_in
        self.accepted_slices += size * is_in
        self.accepted_whole += is_in and kind == _WHOLE

    def outcome(self) -> Outcome:
        return Outcome(
            100 * self.accepted_slices / max(1, self.offered_slices),
            100 * self.accepted / max(1, self.offered),
            100 * self.accepted_whole / max(1, self.offered_whole),
            100 * self.moves / max(1, self.accepted),
        )


def run(name: str, churn: Churn) -> Outcome:
    """Play the arrivals through a policy by name, or through the bound."""
    if name == "ours+move":
        return _run_with_moves(churn)
    if name == "bound":
        return _run(RepackingBound(churn.gpus), churn)
    return _run(make(name, churn.gpus, seed=churn.seed), churn)


def _run(policy: Policy, churn: Churn) -> Outcome:
    ends: list[tuple[float, int, Token]] = []
    tally = _Tally()
    for number, arrival in enumerate(churn.events()):
        while ends and ends[0][0] <= arrival.at:
            policy.release(heapq.heappop(ends)[2])
        token = policy.place(arrival.kind)
        if token is not None:
            heapq.heappush(ends, (arrival.at + arrival.life, number, token))
        if number >= churn.warm_up:
            tally.add(arrival.kind, is_in=token is not None)
    return tally.outcome()


def _run_with_moves(churn: Churn) -> Outcome:
    policy = Ours(churn.gpus)
    ends: list[tuple[float, int]] = []
    where: dict[int, Token] = {}
    at: dict[Token, int] = {}
    tally = _Tally()
    for number, arrival in enumerate(churn.events()):
        while ends and ends[0][0] <= arrival.at:
            token = where.pop(heapq.heappop(ends)[1])
            del at[token]
            policy.release(token)
        found = policy.place(arrival.kind)
        if found is None and (moved := policy.place_with_one_move(arrival.kind)) is not None:
            found, shift = moved
            holder = at.pop(_token(shift.from_gpu, shift.from_instance))
            where[holder] = _token(shift.to_gpu, shift.to_instance)
            at[where[holder]] = holder
            tally.moves += number >= churn.warm_up
        if found is not None:
            where[number] = found
            at[found] = number
            heapq.heappush(ends, (arrival.at + arrival.life, number))
        if number >= churn.warm_up:
            tally.add(arrival.kind, is_in=found is not None)
    return tally.outcome()


def _token(gpu: int, instance: Instance) -> Token:
    return gpu, PROFILES.index(instance.profile) * 8 + instance.start


def gap_closed(ours: float, peer: float, bound: float) -> float:
    """Return which part of the way from a peer to the bound is gone."""
    return (ours - peer) / (bound - peer) if bound > peer else 1.0


def spread_of(values: list[float]) -> float:
    """Return the standard deviation over the seeds, in points."""
    return stdev(values) if len(values) > 1 else 0.0


def mean_of(values: list[float]) -> float:
    """Return the mean over the seeds."""
    return mean(values)
