"""The peers place legally, the bound is exact, and what runs count adds up."""

from itertools import product
from random import Random

import pytest

from bench.bound import fits
from bench.churn import gap_closed, mean_of, run, spread_of
from bench.ends import EndsKnown
from bench.model import MIXES, PROFILES, Arrival, Churn, free_starts, mask_of, table
from bench.policies import BASELINES, Ranked, make
from bench.ranks import lost_room
from gpu.planning.packing import fewest_gpus

ONE, TWO, THREE, FOUR, SEVEN = range(5)
RANKED = [name for name in BASELINES if name != "static-balanced"]


def starts_of(name: str, kinds: list[int], gpus: int = 16) -> list[tuple[int, int]]:
    """Return GPU and mask of each placement, in turn."""
    policy = make(name, gpus)
    found = [policy.place(kind) for kind in kinds]
    assert None not in found
    return [token for token in found if token is not None]


@pytest.mark.parametrize("name", RANKED)
def test_peers_place_legally_and_never_refuse_what_fits(name: str) -> None:
    chance = Random(name)  # noqa: S311  # no secret
    policy = make(name, 9, seed=3)
    masks = [0] * 9
    live = []
    for _ in range(400):
        kind = chance.randrange(5)
        token = policy.place(kind)
        assert (token is not None) == any(free_starts()[kind][mask] for mask in masks)
        if token is not None:
            gpu, mask = token
            assert mask in {mask_of(kind, start) for start in free_starts()[kind][masks[gpu]]}
            masks[gpu] |= mask
            live.append(token)
        while live and chance.random() < 0.45:
            gpu, mask = token = live.pop(chance.randrange(len(live)))
            masks[gpu] &= ~mask
            policy.release(token)


def test_hami_packs_nodes_and_spreads_within_them() -> None:
    assert starts_of("hami", [ONE, THREE, TWO]) == [
        (0, mask_of(ONE, 6)),
        (1, mask_of(THREE, 4)),
        (2, mask_of(TWO, 0)),
    ]


def test_das_takes_the_emptiest_node_and_its_first_gpu() -> None:
    assert starts_of("das", [ONE, ONE, ONE]) == [
        (0, mask_of(ONE, 0)),
        (8, mask_of(ONE, 0)),
        (0, mask_of(ONE, 1)),
    ]


def test_dra_takes_the_first_device_and_the_first_placement() -> None:
    assert starts_of("dra", [ONE, SEVEN, TWO]) == [
        (0, mask_of(ONE, 0)),
        (1, mask_of(SEVEN, 0)),
        (0, mask_of(TWO, 2)),
    ]


def test_first_fit_and_best_fit_differ_in_the_gpu() -> None:
    kinds = [TWO, SEVEN, FOUR, ONE]
    assert [gpu for gpu, _ in starts_of("first-fit", kinds)] == [0, 1, 2, 0]
    assert [gpu for gpu, _ in starts_of("best-fit", kinds)] == [0, 1, 2, 2]


def test_best_fit_least_lost_keeps_the_larger_room() -> None:
    assert starts_of("best-fit-least-lost", [ONE]) == [(0, mask_of(ONE, 6))]
    assert lost_room(ONE, 0, 6) == 1 + 4 + 8


def test_emptiest_spreads_over_all_gpus() -> None:
    assert [gpu for gpu, _ in starts_of("emptiest", [ONE, ONE, ONE])] == [0, 1, 2]


def test_static_balanced_gives_its_own_profiles_alone() -> None:
    policy = make("static-balanced", 1)
    tokens = [policy.place(kind) for kind in (ONE, ONE, ONE, TWO, THREE, FOUR, SEVEN)]
    assert [token is not None for token in tokens] == [True, True, False, True, True, False, False]
    assert tokens[0] is not None
    policy.release(tokens[0])
    assert policy.place(ONE) is not None


def test_bound_agrees_with_the_exact_packing() -> None:
    for counts in product(range(3), range(4), range(4), range(3), range(2)):
        fewest = fewest_gpus(table(), dict(zip(PROFILES, counts, strict=True)))
        for gpus in range(5):
            assert fits(list(counts), gpus) == (fewest <= gpus), (counts, gpus)


def test_arrivals_come_twice_as_fast_at_twice_the_load() -> None:
    quiet, busy = (Churn("uniform", load, 1, arrivals=4000).events() for load in (0.5, 1.0))
    assert quiet[-1].at / busy[-1].at == pytest.approx(2, rel=0.1)
    assert Churn("uniform", 1.0, 1, arrivals=4000).events() == busy


def test_mixes_are_shares() -> None:
    assert all(sum(weights) == pytest.approx(1) for weights in MIXES.values())


@pytest.mark.parametrize("name", [*BASELINES, "ours", "ours+ends", "ours+move", "bound"])
def test_run_accepts_everything_where_there_is_plenty(name: str) -> None:
    outcome = run(name, Churn("skew-small", 0.05, 1, gpus=40, arrivals=60, warm_up=20))
    if name == "static-balanced":
        assert outcome.slices < 100
        return
    assert (outcome.slices, outcome.requests, outcome.moves) == (100, 100, 0)
    assert 0 < outcome.used < 15


def test_run_orders_ours_between_a_peer_and_the_bound() -> None:
    churn = Churn("uniform", 1.0, 1, gpus=30, arrivals=3000, warm_up=1000)
    rates = {name: run(name, churn).slices for name in ("hami", "ours", "ours+move", "bound")}
    assert rates["hami"] < rates["ours"] < rates["ours+move"] < rates["bound"]


def test_ends_known_refuses_only_what_fits_nowhere() -> None:
    knowing = EndsKnown(1)
    held = knowing.place_until(Arrival(0.0, SEVEN, 1.0))
    assert held is not None
    assert knowing.place_until(Arrival(0.1, ONE, 1.0)) is None
    knowing.release(held)
    assert knowing.place_until(Arrival(1.0, ONE, 1.0)) is not None


def test_gap_closed_is_a_part_of_the_way() -> None:
    assert gap_closed(85, 80, 90) == 0.5
    assert gap_closed(85, 90, 90) == 1.0
    assert mean_of([1, 3]) == 2
    assert spread_of([1]) == 0
    assert spread_of([1, 3]) == pytest.approx(1.414, abs=0.001)


def test_ranked_refuses_when_nothing_fits() -> None:
    policy = make("dra", 1)
    assert isinstance(policy, Ranked)
    assert policy.place(SEVEN) is not None
    assert policy.place(ONE) is None
