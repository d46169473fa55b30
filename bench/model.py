"""The GPU of the placement benchmarks: A100-40GB, profiles 1g 2g 3g 4g 7g, and its arrivals."""

import math
import random
from dataclasses import dataclass, replace
from functools import cache

from gpu.planning.catalogue import find_table
from gpu.planning.tables import GpuTable

PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
SLICES = 8
FULL = (1 << SLICES) - 1
GPUS_PER_NODE = 8
SIGMA = 0.8

MIXES = {
    "uniform": (0.2, 0.2, 0.2, 0.2, 0.2),
    "skew-small": (0.50, 0.25, 0.12, 0.08, 0.05),
    "skew-big": (0.05, 0.08, 0.12, 0.25, 0.50),
    "bimodal": (0.40, 0.10, 0.0, 0.10, 0.40),
    "openb-share": (0.010, 0.090, 0.128, 0.315, 0.457),
}


@cache
def table() -> GpuTable:
    """Return NVIDIA's table of the model with the five plain profiles alone."""
    whole = find_table("a100-40gb")
    return replace(whole, profiles=tuple(p for p in whole.profiles if p.name in PROFILES))


@cache
def sizes() -> tuple[int, ...]:
    """Return the memory slices of each profile, in the order of `PROFILES`."""
    return tuple(table().profile(name).memory_slices or 0 for name in PROFILES)


@cache
def starts() -> tuple[tuple[int, ...], ...]:
    """Return the legal starts of each profile, lowest first."""
    return tuple(
        tuple(sorted(place.start for place in table().profile(name).placements))
        for name in PROFILES
    )


@cache
def free_starts() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return, by profile and mask of taken slices, the starts that are free."""
    return tuple(
        tuple(
            tuple(start for start in starts()[kind] if not mask_of(kind, start) & taken)
            for taken in range(FULL + 1)
        )
        for kind in range(len(PROFILES))
    )


@cache
def mask_of(kind: int, start: int) -> int:
    """Return the slices of a placement as bits."""
    return ((1 << sizes()[kind]) - 1) << start


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: when it comes, its profile's number, how long it stays if it is let in."""

    at: float
    kind: int
    life: float


@dataclass(frozen=True, slots=True)
class Churn:
    """One run of arrivals; `load` is offered slice-time over capacity."""

    mix: str
    load: float
    seed: int
    gpus: int = 100
    arrivals: int = 12_000
    warm_up: int = 4_000

    def events(self) -> list[Arrival]:
        """Return the arrivals: Poisson in time, lives lognormal with median 1."""
        chance = random.Random(f"{self.mix}/{self.load}/{self.seed}")  # noqa: S311  # no secret
        weights = MIXES[self.mix]
        slices = sum(w * s for w, s in zip(weights, sizes(), strict=True))
        life = math.exp(SIGMA**2 / 2)
        rate = self.load * self.gpus * SLICES / (slices * life)
        now, found = 0.0, []
        for _number in range(self.arrivals):
            now += chance.expovariate(rate)
            [kind] = chance.choices(range(len(PROFILES)), weights)
            found.append(Arrival(now, kind, chance.lognormvariate(0, SIGMA)))
        return found
