"""B3: the offline plan against the optimum of a column integer program."""

import csv
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bench.model import PROFILES, sizes, table
from gpu.planning.layouts import maximal_layouts
from gpu.planning.packing import fewest_gpus

DATA = Path(__file__).with_name("data")
_BY_COMPUTE = {"1": 0, "2": 1, "3": 2, "4": 3, "7": 4}
_GPUS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """One multiset: GPUs of our plan, the optimum, and how long ours took."""

    name: str
    ours: int
    optimum: int
    milliseconds: float


def published_maps() -> dict[str, Counter[str]]:
    """Return ParvaGPU's six deployments as counts of profiles."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(DATA.glob("parvagpu_*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        found[path.stem] = Counter(PROFILES[_BY_COMPUTE[row["Instance size"]]] for row in rows)
    return found


def random_multiset(seed: int) -> Counter[str]:
    """Return instances that fill about a hundred GPUs."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    weights = [chance.random() for _profile in PROFILES]
    counts: Counter[str] = Counter()
    slices = 0
    while True:
        [kind] = chance.choices(range(len(PROFILES)), weights)
        slices += sizes()[kind]
        if slices > _GPUS * 8:
            return counts
        counts[PROFILES[kind]] += 1


def optimum(wanted: Counter[str]) -> int:
    """Return the fewest GPUs by an integer program over all maximal layouts."""
    columns = sorted(
        {
            tuple(Counter(i.profile for i in layout)[name] for name in PROFILES)
            for layout in maximal_layouts(table())
        }
    )
    matrix = np.array(columns).T
    need = np.array([wanted[name] for name in PROFILES])
    solved = milp(
        c=np.ones(len(columns)),
        constraints=LinearConstraint(matrix, lb=need),
        integrality=np.ones(len(columns)),
        bounds=Bounds(lb=0),
    )
    return round(float(solved.fun))


def plans(random_sets: int) -> list[Plan]:
    """Return ours and the optimum for the published maps and so many random multisets."""
    wanted = {**published_maps()}
    wanted |= {f"random-{seed}": random_multiset(seed) for seed in range(random_sets)}
    found = []
    for name, counts in wanted.items():
        start = time.perf_counter()
        ours = fewest_gpus(table(), counts)
        took = 1000 * (time.perf_counter() - start)
        found.append(Plan(name, ours, optimum(counts), took))
    return found
