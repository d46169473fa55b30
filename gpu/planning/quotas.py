"""Quota arithmetic: what a tenant has, uses and may still ask for; and the keys of a namespace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from gpu.planning.errors import PlanningError

_GPU_PREFIX = "nvidia.com/"
_REQUESTS = "requests."


class InvalidAmountError(PlanningError):
    """An amount is below zero."""


class QuotaLimit(StrEnum):
    """Which limit does not hold what is asked for."""

    MEMORY = "memory"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Amounts:
    """GPU memory in MiB and compute in thousandths of a seventh of a GPU; never below zero."""

    memory_mib: int = 0
    millisevenths: int = 0

    def __post_init__(self) -> None:
        """Refuse amounts below zero."""
        if self.memory_mib < 0 or self.millisevenths < 0:
            message = f"An amount of a quota is 0 or more, not {self}."
            raise InvalidAmountError(message)

    def __add__(self, other: Self) -> Self:
        """Return the sum."""
        return type(self)(
            self.memory_mib + other.memory_mib, self.millisevenths + other.millisevenths
        )

    def times(self, count: int) -> Self:
        """Return the amounts of `count` of these."""
        return type(self)(self.memory_mib * count, self.millisevenths * count)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is left under a quota: `remaining` stops at zero, `overdraft` is what lies above it.

    A quota that is lowered ends nothing that runs, so an overdraft is possible and is shown.
    """

    remaining: Amounts
    overdraft: Amounts


def total(items: Iterable[tuple[Amounts, int]]) -> Amounts:
    """Return the sum of amounts, each taken its number of times."""
    result = Amounts()
    for amounts, count in items:
        result += amounts.times(count)
    return result


def headroom(hard: Amounts, used: Amounts, requested: Amounts = Amounts()) -> Headroom:
    """Return what the limit `hard` leaves beside what is used and what is asked for already."""
    taken = used + requested
    memory = hard.memory_mib - taken.memory_mib
    compute = hard.millisevenths - taken.millisevenths
    return Headroom(
        remaining=Amounts(max(0, memory), max(0, compute)),
        overdraft=Amounts(max(0, -memory), max(0, -compute)),
    )


def exceeded(hard: Amounts, used: Amounts, asked: Amounts) -> tuple[QuotaLimit, ...]:
    """Return the limits that `asked` would break on top of what is used; none if it is held."""
    after = used + asked
    limits = []
    if asked.memory_mib and after.memory_mib > hard.memory_mib:
        limits.append(QuotaLimit.MEMORY)
    if asked.millisevenths and after.millisevenths > hard.millisevenths:
        limits.append(QuotaLimit.COMPUTE)
    return tuple(limits)


def most_within(hard: Amounts, used: Amounts, each: Amounts) -> int | None:
    """Return how many of `each` the quota still holds; ``None`` when each counts nothing."""
    left = headroom(hard, used).remaining
    counts = [
        have // need
        for have, need in (
            (left.memory_mib, each.memory_mib),
            (left.millisevenths, each.millisevenths),
        )
        if need
    ]
    return min(counts) if counts else None


def quota_keys(cluster_keys: Iterable[str], grants: Mapping[str, int]) -> dict[str, int]:
    """Return the GPU part of a namespace's ResourceQuota: each key, 0 where nothing is granted.

    A ResourceQuota limits only what it names, so every ``nvidia.com/*`` key of the cluster is in
    it. Raises `InvalidAmountError` for a grant below zero.
    """
    for key, count in grants.items():
        if count < 0:
            message = f"A grant of {key} is 0 or more, not {count}."
            raise InvalidAmountError(message)
    keys = {key for key in (*cluster_keys, *grants) if key.startswith(_GPU_PREFIX)}
    return {f"{_REQUESTS}{key}": grants.get(key, 0) for key in sorted(keys)}
