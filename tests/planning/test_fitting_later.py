"""Fitting over a cluster: by force, later, or something else instead."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpu.planning.demands import (
    Confidence,
    Demand,
    Ending,
    FitWhen,
    InvalidDemandError,
    Isolation,
    OfferKind,
)
from gpu.planning.explain import describe
from gpu.planning.fitting import fit
from gpu.planning.geometry import Instance
from gpu.planning.profiles import InvalidProfileError
from gpu.planning.snapshot import Beside, ClusterSnapshot, GpuMode
from tests.planning.builders import (
    A30,
    A100,
    H200,
    cluster,
    isolated,
    mig_gpu,
    node,
    option_of,
    shared_gpu,
    shown,
    whole_gpu,
)

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
GIB = 1024


def hours(count: float) -> datetime:
    return NOW + timedelta(hours=count)


# --- by force


@pytest.mark.parametrize(
    ("gpus", "demand", "holders"),
    [
        ([mig_gpu("a", "1g.5gb@0!,3g.20gb@4!")], isolated(19), ["holder of 1g.5gb@0"]),
        (
            [mig_gpu("a", "7g.40gb@0!"), whole_gpu("b", "x")],
            isolated(39, count=2),
            ["holder of 7g.40gb@0", "x"],
        ),
        (
            [mig_gpu("a", "1g.5gb@0!"), whole_gpu("b", "x")],
            Demand(Isolation.WHOLE),
            ["x"],
        ),
        ([whole_gpu("b", "x"), whole_gpu("c")], Demand(Isolation.WHOLE, count=2), ["x"]),
        ([whole_gpu("b", "x")], isolated(1, count=2), ["x"]),
        ([mig_gpu("a", "4g.20gb@0!,1g.5gb@4")], isolated(19, count=2), ["holder of 4g.20gb@0"]),
        (
            [mig_gpu("a", "1g.5gb@0!,1g.5gb@4!")],
            isolated(19, count=2),
            ["holder of 1g.5gb@0", "holder of 1g.5gb@4"],
        ),
    ],
)
def test_fewest_holders_in_the_way_are_named(
    gpus: list[object], demand: Demand, holders: list[str]
) -> None:
    found = fit(cluster(node("n1", *gpus)), demand)  # type: ignore[arg-type]  # parametrised
    disruptive = option_of(found.disruptive)
    assert found.when is FitWhen.AFTER_DISRUPTION
    assert sorted(blocker.holder for blocker in disruptive.blockers) == holders
    assert len(disruptive.sites) == demand.count
    assert all(name in describe(found) for name in holders)


def test_promised_gpu_without_a_pod_has_an_unknown_holder() -> None:
    promised = replace(whole_gpu("a"), granted=1)
    found = fit(cluster(node("n1", promised)), Demand(Isolation.WHOLE))
    assert [blocker.holder for blocker in option_of(found.disruptive).blockers] == [""]
    assert "somebody unknown" in describe(found)


def test_nothing_is_taken_by_force_where_it_does_not_help() -> None:
    full = shared_gpu("a", "x", "y", replicas=2)
    assert fit(cluster(node("n1", full)), Demand(Isolation.SHARED)).disruptive is None
    shared = replace(shared_gpu("a", "x"), table=A100, product=A100.product)
    assert fit(cluster(node("n1", shared)), isolated(1)).disruptive is None
    assert fit(cluster(node("n1", shared)), Demand(Isolation.WHOLE)).disruptive is None
    tight = replace(node("n1", mig_gpu("a", "7g.40gb@0!")), left=Beside(0, 0, 0))
    assert fit(cluster(tight), isolated(1)).disruptive is None
    assert (
        fit(cluster(node("n1", mig_gpu("a", "7g.40gb@0!"))), isolated(39, count=2)).disruptive
        is None
    )


# --- later


def test_estimate_is_when_enough_has_ended() -> None:
    snapshot = cluster(node("n1", mig_gpu("a", "3g.20gb@0!,3g.20gb@4!"), whole_gpu("b", "x")))
    endings = [
        Ending(hours(9), "a", Instance("3g.20gb", 0)),
        Ending(hours(3), "a", Instance("3g.20gb", 4)),
        Ending(hours(5), "b"),
    ]
    for count, at, waits_for in [(1, 3, 1), (2, 5, 2), (4, 9, 3)]:
        later = fit(snapshot, isolated(19, count=count), endings=endings).later
        assert later is not None
        assert (later.at, later.waits_for) == (hours(at), waits_for)
    assert fit(snapshot, isolated(19, count=5), endings=endings).later is None
    assert fit(snapshot, isolated(19)).later is None


@pytest.mark.parametrize(
    ("count", "confidence"), [(1, Confidence.HIGH), (4, Confidence.MEDIUM), (5, Confidence.LOW)]
)
def test_more_endings_mean_less_confidence(count: int, confidence: Confidence) -> None:
    snapshot = cluster(*(node(f"n{i}", whole_gpu(str(i), "x")) for i in range(5)))
    endings = [Ending(hours(i), str(i)) for i in range(5)]
    found = fit(snapshot, Demand(Isolation.WHOLE, count=count), endings=endings)
    assert found.when is FitWhen.LATER
    assert found.later is not None
    assert found.later.confidence is confidence
    assert f"({confidence} confidence)" in describe(found)


def test_ended_share_and_what_went_beside_it_are_free_again() -> None:
    full = replace(node("n1", shared_gpu("a", "x", "y", replicas=2)), left=Beside(0, 0, 0))
    part = Beside(64_000, 500_000, 1_000_000)
    found = fit(
        cluster(full), Demand(Isolation.SHARED), endings=[Ending(hours(1), "a", beside=part)]
    )
    assert found.later is not None
    without = fit(cluster(full), Demand(Isolation.SHARED), endings=[Ending(hours(1), "a")])
    assert without.later is None
    unknown = replace(full, left=None)
    assert fit(cluster(unknown), Demand(Isolation.SHARED), endings=[Ending(hours(1), "a")]).later


def test_later_without_a_time_is_said_so() -> None:
    found = fit(
        cluster(node("n1", shared_gpu("a", "x", "y", replicas=2))), Demand(Isolation.SHARED)
    )
    assert (found.when, found.is_possible) == (FitWhen.LATER, True)
    assert "later, nobody can say when" in describe(found)


# --- instead


def offers(snapshot: ClusterSnapshot, demand: Demand) -> dict[OfferKind, Demand]:
    found = fit(snapshot, demand)
    for offer in found.counter_offers:
        assert fit(snapshot, offer.demand).when < found.when
        assert offer.option.when < found.when
    return {offer.kind: offer.demand for offer in found.counter_offers}


def test_fewer_smaller_and_others_are_offered_instead() -> None:
    snapshot = cluster(
        node("n1", mig_gpu("a", "3g.20gb@0!,3g.20gb@4"), mig_gpu("b", "7g.40gb@0!")),
        node("n2", mig_gpu("c", table=H200)),
        node("n3", shared_gpu("d")),
        node("n4", whole_gpu("e", table=None)),
    )
    found = offers(snapshot, isolated(15, count=2, products=frozenset({A100.product})))
    assert found[OfferKind.FEWER].count == 1
    assert found[OfferKind.SMALLER].memory_mib == 9856
    assert found[OfferKind.OTHER_PRODUCT].products is None
    assert OfferKind.SHARE not in found
    anywhere = offers(snapshot, isolated(15, count=8))
    assert anywhere[OfferKind.FEWER].count == 7
    assert fit(snapshot, isolated(1)).when is FitWhen.AFTER_CHANGE
    now = offers(snapshot, isolated(1))
    assert now[OfferKind.SHARE].isolation is Isolation.SHARED
    assert now[OfferKind.WHOLE].isolation is Isolation.WHOLE


def test_larger_is_offered_when_it_is_there_at_once() -> None:
    snapshot = cluster(
        node("n1", mig_gpu("a", "3g.20gb@4,1g.5gb@0!,1g.5gb@1!,1g.5gb@2!,1g.5gb@3!"))
    )
    found = offers(snapshot, isolated(4))
    assert found[OfferKind.LARGER].memory_mib == 19968
    named = offers(snapshot, Demand(Isolation.ISOLATED, profile="1g.5gb"))
    assert (named[OfferKind.LARGER].profile, named[OfferKind.LARGER].memory_mib) == (None, 19968)


def test_whole_and_share_have_counter_offers_of_their_own() -> None:
    snapshot = cluster(
        node("n1", whole_gpu("a", "x"), mig_gpu("b", "1g.5gb@0!")), node("n2", shared_gpu("c"))
    )
    whole = offers(snapshot, Demand(Isolation.WHOLE, 10 * GIB))
    assert whole[OfferKind.ISOLATED].isolation is Isolation.ISOLATED
    assert whole[OfferKind.SHARE].isolation is Isolation.SHARED
    share = offers(snapshot, Demand(Isolation.SHARED, 20 * GIB))
    assert share[OfferKind.SMALLER].memory_mib == 11517
    assert OfferKind.ISOLATED not in share
    unknown = Demand(Isolation.ISOLATED, profile="9g.99gb")
    assert fit(snapshot, unknown).when is FitWhen.NEVER


def test_offers_are_left_out_on_demand() -> None:
    snapshot = cluster(node("n1", mig_gpu("a", "7g.40gb@0!")), node("n2", shared_gpu("c")))
    assert fit(snapshot, isolated(10)).counter_offers
    assert not fit(snapshot, isolated(10), with_offers=False).counter_offers


def test_answers_are_told_in_plain_english() -> None:
    snapshot = cluster(node("n1", mig_gpu("a", "1g.5gb@0")), node("n2", shared_gpu("c")))
    assert describe(fit(snapshot, isolated(4))) == (
        "1 x isolated slice of 4.0 GiB: now, 1 x 1g.5gb of NVIDIA-A100-SXM4-40GB on n1."
    )
    assert describe(fit(snapshot, isolated(19))).startswith(
        "1 x isolated slice of 19.0 GiB: after a change that harms nobody, 1 x 3g.20gb of"
    )
    assert "never because: NVIDIA-L40S cannot do MIG" in describe(fit(snapshot, isolated(500)))


# --- demands


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"count": 0}, "count: ask for 1 slice or more"),
        ({"memory_mib": -1}, "memory: ask for 0 MiB or more"),
        ({"isolation": Isolation.WHOLE, "profile": "1g.5gb"}, "profile: only an isolated slice"),
    ],
)
def test_demand_that_nobody_can_mean_is_refused(kwargs: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidDemandError, match=reason):
        Demand(**{"isolation": Isolation.ISOLATED, **kwargs})  # type: ignore[arg-type]  # parametrised


def test_profile_of_a_demand_is_checked_and_written_as_nvidia_does() -> None:
    assert Demand(Isolation.ISOLATED, profile=" 1G.5GB ").profile == "1g.5gb"
    with pytest.raises(InvalidProfileError):
        Demand(Isolation.ISOLATED, profile="small")


def test_snapshot_knows_its_products_and_what_is_idle() -> None:
    snapshot = cluster(
        node("n1", mig_gpu("a", table=A30), whole_gpu("b")), node("n2", whole_gpu("c"))
    )
    assert snapshot.products == (A100.product, A30.product)
    assert shown(mig_gpu("a", "1g.5gb@6,2g.10gb@0!").layout) == "2g.10gb@0 1g.5gb@6"
    assert mig_gpu("a", "1g.5gb@0").is_idle
    assert not mig_gpu("a", "1g.5gb@0!").is_idle
    assert not whole_gpu("a", "x").is_idle
    assert mig_gpu("a").free_replicas == 0
    assert node("n1").part_of(5) is None
    assert list(map(str, GpuMode)) == ["whole", "mig", "time-slicing", "mps"]
