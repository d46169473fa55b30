"""B5: decisions a second in steady state with departures, and the same at ten times the size."""

import random
import time

from bench.model import MIXES, PROFILES, table
from bench.policies import make
from gpu.planning.placing import PlacementIndex, Worth


def decisions_per_second(gpus: int, decisions: int) -> float:
    """Return how many placements a second one core decides, each with a departure beside it."""
    index = PlacementIndex(Worth(table()), [()] * gpus)
    chance = random.Random(gpus)  # noqa: S311  # no secret
    weights = MIXES["uniform"]
    live = []
    for kind in chance.choices(PROFILES, weights, k=int(gpus * 1.6)):
        placed = index.place(kind)
        if placed is not None:
            live.append(placed)
    wanted = chance.choices(PROFILES, weights, k=decisions)
    leaving = [chance.random() for _decision in range(decisions)]
    start = time.process_time()
    for kind, part in zip(wanted, leaving, strict=True):
        placed = index.place(kind)
        position = int(part * len(live))
        gone = live[position]
        if placed is None:
            live[position] = live[-1]
            live.pop()
        else:
            live[position] = placed
        index.release(*gone)
    return decisions / (time.process_time() - start)


def scanning_per_second(gpus: int, decisions: int) -> float:
    """Return the same for a policy that looks at every GPU, as a peer."""
    policy = make("best-fit-least-lost", gpus)
    chance = random.Random(gpus)  # noqa: S311  # no secret
    kinds = chance.choices(range(len(PROFILES)), MIXES["uniform"], k=gpus + decisions)
    for kind in kinds[: gpus // 4]:
        policy.place(kind)
    start = time.process_time()
    for kind in kinds[-decisions:]:
        token = policy.place(kind)
        if token is not None:
            policy.release(token)
    return decisions / (time.process_time() - start)
