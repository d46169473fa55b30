"""B4: a production trace, replayed in its own order and times, and by FGD's convention."""

import csv
import gzip
import heapq
import random
from dataclasses import dataclass

from bench.model import PROFILES, sizes
from bench.offline import DATA
from bench.policies import Policy, Token, make

PUBLISHED = {"BestFit": 93.1, "FGD": 95.4}
"""FGD's figures for this trace: percent of GPU capacity allocated at 130 % arrival, fractions of
GPUs without MIG's placements; another machine model than ours, quoted for scale only."""

_COMPUTE = (1, 2, 3, 4, 7)
_WHOLE = 1000


@dataclass(frozen=True, slots=True)
class TracePod:
    """A Pod of the trace: when it came and went, and the profile of each GPU share it asked for."""

    created: float
    deleted: float
    kinds: tuple[int, ...]
    milli: int


def pods() -> list[TracePod]:
    """Return the Pods that ask for GPUs, in the trace's order."""
    with gzip.open(DATA / "openb_pod_list_default.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        count, milli = int(row["num_gpu"]), int(row["gpu_milli"] or 0)
        if count == 0:
            continue
        kind = smallest_profile(milli) if count == 1 else len(PROFILES) - 1
        times = float(row["creation_time"]), float(row["deletion_time"])
        found.append(TracePod(*times, (kind,) * count, milli * count))
    return found


def smallest_profile(milli: int) -> int:
    """Return the smallest profile that holds a share of a GPU, by its compute slices."""
    return next(kind for kind, slices in enumerate(_COMPUTE) if milli * 7 <= slices * _WHOLE)


def replay(name: str, found: list[TracePod], gpus: int) -> float:
    """Return the slice-weighted percentage that a policy lets in; a Pod is let in whole or not."""
    policy = make(name, gpus)
    ends: list[tuple[float, int, list[Token]]] = []
    offered = accepted = 0
    for number, pod in enumerate(sorted(found, key=lambda item: item.created)):
        while ends and ends[0][0] <= pod.created:
            for token in heapq.heappop(ends)[2]:
                policy.release(token)
        tokens = _place_all(policy, pod)
        slices = sum(sizes()[kind] for kind in pod.kinds)
        offered += slices
        if tokens:
            accepted += slices
            heapq.heappush(ends, (pod.deleted, number, tokens))
    return 100 * accepted / offered


def _place_all(policy: Policy, pod: TracePod) -> list[Token]:
    """Place all that a Pod asks for, or nothing."""
    tokens: list[Token] = []
    for kind in pod.kinds:
        placed = policy.place(kind)
        if placed is None:
            for token in tokens:
                policy.release(token)
            return []
        tokens.append(placed)
    return tokens


def peak_slices(found: list[TracePod]) -> int:
    """Return the most memory slices that are asked for at any one time."""
    changes = []
    for pod in found:
        slices = sum(sizes()[kind] for kind in pod.kinds)
        changes += [(pod.created, 1, slices), (pod.deleted, 0, -slices)]
    now = most = 0
    for _at, _order, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def fill(name: str, found: list[TracePod], gpus: int, seed: int) -> float:
    """Return the share of GPU capacity that is allocated when 130 % of it has asked.

    Nobody leaves. Pods are drawn from the trace at random, as FGD's authors do.
    """
    chance = random.Random(seed)  # noqa: S311  # no secret
    policy = make(name, gpus, seed=seed)
    asked = allocated = 0
    while asked < 1.3 * gpus * _WHOLE:
        pod = chance.choice(found)
        asked += pod.milli
        if _place_all(policy, pod):
            allocated += pod.milli
    return 100 * allocated / (gpus * _WHOLE)
