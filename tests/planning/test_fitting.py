"""Fitting over a cluster: now, after a change, later, by force, never; and its laws."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpu.planning.catalogue import find_table
from gpu.planning.demands import (
    Confidence,
    Demand,
    Ending,
    FitReason,
    FitWhen,
    InvalidDemandError,
    Isolation,
    Kind,
    OfferKind,
    Option,
    Reason,
    worst_first,
)
from gpu.planning.explain import describe
from gpu.planning.fitting import fit
from gpu.planning.geometry import Instance
from gpu.planning.profiles import InvalidProfileError
from gpu.planning.snapshot import Beside, ClusterSnapshot, GpuMode
from gpu.planning.steps import Create, Destroy, DisableMig, EnableMig, ResetGpu
from tests.planning.builders import (
    A30,
    A100,
    A100_80,
    H200,
    cluster,
    mig_gpu,
    node,
    shared_gpu,
    shown,
    whole_gpu,
)

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
GIB = 1024


def hours(count: float) -> datetime:
    return NOW + timedelta(hours=count)


def isolated(gib: float = 0, **kwargs: object) -> Demand:
    return replace(Demand(Isolation.ISOLATED, round(gib * GIB)), **kwargs)  # type: ignore[arg-type]  # test helper


def option_of(found: Option | None) -> Option:
    assert found is not None
    return found


def reasons(snapshot: ClusterSnapshot, demand: Demand) -> dict[FitReason, int]:
    return {reason.code: reason.gpus for reason in fit(snapshot, demand).reasons}


# --- now


def test_free_instance_is_had_now() -> None:
    found = fit(cluster(node("n1", mig_gpu("a", "3g.20gb@4!,1g.5gb@0"))), isolated(4))
    option = option_of(found.option)
    assert (found.when, found.reasons, found.counter_offers) == (FitWhen.NOW, (), ())
    assert option.kind == Kind(A100.product, "nvidia.com/mig-1g.5gb", 4864, 1000, "1g.5gb")
    assert [(s.node, s.gpu_uuid, str(s.instance)) for s in option.sites] == [
        ("n1", "a", "1g.5gb@0")
    ]


def test_profile_is_the_smallest_that_really_holds_the_memory() -> None:
    gpus = mig_gpu("a", "1g.5gb@0,1g.10gb@2"), mig_gpu("b", "2g.10gb@0,3g.20gb@4")
    for gib, profile in [(0, "1g.5gb"), (4.75, "1g.5gb"), (5, "1g.10gb"), (10, "3g.20gb")]:
        found = fit(cluster(node("n1", *gpus)), isolated(gib))
        assert (found.when, option_of(found.option).kind.profile) == (FitWhen.NOW, profile)


def test_same_profile_on_two_models_gives_the_one_that_wastes_least() -> None:
    small, large = mig_gpu("a", "1g.10gb@0"), mig_gpu("b", "1g.10gb@0", table=A100_80)
    found = fit(
        cluster(node("n1", small), node("n2", large)), Demand(Isolation.ISOLATED, profile="1g.10gb")
    )
    assert option_of(found.option).kind.product == A100_80.product
    only = isolated(9.6, products=frozenset({A100_80.product}))
    assert fit(cluster(node("n1", small), node("n2", large)), only).when is FitWhen.AFTER_CHANGE


def test_whole_gpu_and_share_are_had_now() -> None:
    snapshot = cluster(
        node("n1", whole_gpu("a"), whole_gpu("b", "held")), node("n2", shared_gpu("c", "x"))
    )
    whole = option_of(fit(snapshot, Demand(Isolation.WHOLE, 40 * GIB)).option)
    assert (whole.kind.resource_name, whole.kind.compute, whole.sites[0].gpu_uuid) == (
        "nvidia.com/gpu",
        7000,
        "a",
    )
    share = option_of(fit(snapshot, Demand(Isolation.SHARED, 11 * GIB, count=3)).option)
    assert (share.when, share.kind.memory_mib, share.kind.compute, len(share.sites)) == (
        FitWhen.NOW,
        11517,
        1750,
        3,
    )


def test_default_of_what_goes_beside_is_the_part_of_the_node() -> None:
    snapshot = cluster(node("n1", mig_gpu("a", "3g.20gb@4"), whole_gpu("b")))
    beside = option_of(fit(snapshot, isolated(19)).option).beside
    assert beside == Beside(
        128_000 * 19968 // 81920, 1_000_000 * 19968 // 81920, 2_000_000 * 19968 // 81920
    )


def test_unknown_amounts_of_a_node_limit_nothing() -> None:
    bare = replace(node("n1", mig_gpu("a", "1g.5gb@0")), total=None, left=None)
    found = fit(cluster(bare), isolated(4))
    assert (found.when, option_of(found.option).beside) == (FitWhen.NOW, None)
    nothing = replace(bare, left=Beside(0, 0, 0))
    assert fit(cluster(nothing), isolated(4)).when is FitWhen.NOW
    asked = isolated(4, beside=Beside(1, 1, 1))
    assert option_of(fit(cluster(bare), asked).option).beside == Beside(1, 1, 1)


def test_node_without_cpu_left_gives_nothing() -> None:
    full = replace(node("n1", mig_gpu("a", "1g.5gb@0")), left=Beside(0, 10**6, 10**6))
    found = fit(cluster(full), isolated(4))
    assert (found.when, found.reasons) == (
        FitWhen.LATER,
        (Reason(FitReason.NODE_FULL, A100.product, 1),),
    )
    small = isolated(4, beside=Beside(200_000, 1, 1))
    found = fit(cluster(node("n1", mig_gpu("a", "1g.5gb@0"))), small)
    assert found.when is FitWhen.NEVER
    assert FitReason.NODE_TOO_SMALL in [reason.code for reason in found.reasons]


def test_node_that_holds_one_but_not_two_is_full() -> None:
    part = Beside(64_000, 500_000, 1_000_000)
    other = whole_gpu("c", table=A30)
    tight = replace(node("n1", whole_gpu("a"), whole_gpu("b"), other), left=part)
    wanted = Demand(Isolation.WHOLE, count=2, products=frozenset({A100.product}))
    assert fit(cluster(tight), wanted).reasons == (Reason(FitReason.NODE_FULL, A100.product, 2),)
    assert fit(cluster(tight), replace(wanted, count=1)).when is FitWhen.NOW


def test_gpu_that_is_free_is_never_called_in_use() -> None:
    snapshot = cluster(node("n1", whole_gpu("a"), whole_gpu("b", "x")))
    found = fit(snapshot, Demand(Isolation.WHOLE, count=2))
    assert found.reasons == (Reason(FitReason.FULL, A100.product, 1),)


# --- after a change that harms nobody


@pytest.mark.parametrize(
    ("gpu", "steps"),
    [
        (mig_gpu("a", "3g.20gb@4!"), [Create("1g.5gb", 0)]),
        (mig_gpu("a", "4g.20gb@0!,3g.20gb@4"), [Destroy("3g.20gb", 4), Create("1g.5gb", 6)]),
        (whole_gpu("a"), [EnableMig(), ResetGpu(), Create("1g.5gb", 6)]),
        (whole_gpu("a", table=H200), [EnableMig(), Create("1g.18gb", 6)]),
    ],
    ids=["free place", "free instance goes", "MIG with a reset", "MIG without"],
)
def test_change_that_harms_nobody_is_planned(gpu: object, steps: list[object]) -> None:
    assert not isinstance(gpu, str)
    found = fit(cluster(node("n1", gpu)), isolated(1))  # type: ignore[arg-type]  # parametrised
    (change,) = option_of(found.option).changes
    assert (found.when, list(change.plan.steps), change.creates) == (
        FitWhen.AFTER_CHANGE,
        steps,
        1,
    )
    assert {reason.code for reason in found.reasons} == {FitReason.NEEDS_CHANGE}


def test_free_instances_stay_as_far_as_they_can() -> None:
    found = fit(cluster(node("n1", mig_gpu("a", "1g.5gb@6,2g.10gb@4,1g.5gb@0!"))), isolated(19))
    (change,) = option_of(found.option).changes
    assert (
        shown(change.plan.destroyed) == "1g.5gb@6 2g.10gb@4"
        or shown(change.plan.destroyed) == "2g.10gb@4 1g.5gb@6"
    )
    assert shown(change.plan.layout).startswith("1g.5gb@0 1g.5gb@")


def test_gpu_with_mig_is_cut_before_a_whole_one_and_where_least_room_is_lost() -> None:
    snapshot = cluster(
        node("n1", whole_gpu("w"), mig_gpu("empty")), node("n2", mig_gpu("used", "4g.20gb@0!"))
    )
    option = option_of(fit(snapshot, isolated(1)).option)
    assert [change.gpu_uuid for change in option.changes] == ["used"]
    large = option_of(fit(snapshot, isolated(39)).option)
    assert [change.gpu_uuid for change in large.changes] == ["empty"]
    same_room = cluster(node("n1", mig_gpu("idle", "4g.20gb@0"), mig_gpu("used", "4g.20gb@0!")))
    option = option_of(fit(same_room, isolated(1)).option)
    assert [change.gpu_uuid for change in option.changes] == ["used"]


def test_several_are_free_or_cut_on_as_few_gpus_as_can_be() -> None:
    snapshot = cluster(
        node("n1", mig_gpu("a", "1g.5gb@0"), mig_gpu("b", "4g.20gb@0!"), mig_gpu("c"))
    )
    option = option_of(fit(snapshot, isolated(1, count=4)).option)
    assert str(option.sites[0].instance) == "1g.5gb@0"
    assert [change.creates for change in option.changes] == [3]
    option = option_of(fit(snapshot, isolated(1, count=6)).option)
    assert sum(change.creates for change in option.changes) == 5


def test_whole_gpu_is_made_of_one_with_mig_that_nobody_uses() -> None:
    found = fit(cluster(node("n1", mig_gpu("a", "1g.5gb@0"))), Demand(Isolation.WHOLE))
    (change,) = option_of(found.option).changes
    assert list(change.plan.steps) == [Destroy("1g.5gb", 0), DisableMig(), ResetGpu()]


def test_gpu_to_cut_may_be_chosen_by_somebody_else() -> None:
    snapshot = cluster(node("n1", mig_gpu("a", "4g.20gb@0!"), mig_gpu("b")))
    found = fit(snapshot, isolated(1), choose=lambda candidates: candidates[-1])
    assert [change.gpu_uuid for change in option_of(found.option).changes] == ["b"]


# --- obstacles


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ({"is_ready": False}, FitReason.NODE_NOT_READY),
        ({"is_schedulable": False}, FitReason.NODE_CORDONED),
    ],
)
def test_node_that_is_away_gives_nothing_but_may_come_back(
    damage: dict[str, bool], code: FitReason
) -> None:
    away = replace(node("n1", mig_gpu("a", "1g.5gb@0")), **damage)  # type: ignore[arg-type]  # flags
    found = fit(cluster(away), isolated(1))
    assert (found.when, found.later, found.disruptive) == (FitWhen.LATER, None, None)
    assert found.reasons == (Reason(code, A100.product, 1),)


def test_gpu_out_of_service_or_being_changed_gives_nothing() -> None:
    broken = replace(mig_gpu("a", "1g.5gb@0"), is_in_service=False)
    found = fit(cluster(node("n1", broken)), isolated(1))
    assert (found.when, found.reasons[0].code) == (FitWhen.NEVER, FitReason.TOO_MANY)
    assert found.reasons[1].code is FitReason.OUT_OF_SERVICE
    changing = replace(mig_gpu("a", "1g.5gb@0"), is_changing=True)
    assert reasons(cluster(node("n1", changing)), isolated(1)) == {FitReason.CHANGING: 1}


def test_node_is_changed_one_gpu_at_a_time_but_gives_what_is_free() -> None:
    busy = node("n1", replace(mig_gpu("a"), is_changing=True), mig_gpu("b", "1g.5gb@0"))
    assert fit(cluster(busy), isolated(1)).when is FitWhen.NOW
    assert fit(cluster(busy), isolated(19)).when is FitWhen.LATER


@pytest.mark.parametrize(
    ("gpu", "demand", "code"),
    [
        (mig_gpu("a", "7g.40gb@0!"), isolated(1), FitReason.FULL),
        (mig_gpu("a", "1g.5gb@1!,1g.5gb@5!"), isolated(19), FitReason.FRAGMENTED),
        (whole_gpu("a", "held"), isolated(1), FitReason.FULL),
        (whole_gpu("a", "held"), Demand(Isolation.WHOLE), FitReason.FULL),
        (mig_gpu("a", "1g.5gb@1!"), Demand(Isolation.WHOLE), FitReason.FULL),
        (shared_gpu("a", "x", "y", replicas=2), Demand(Isolation.SHARED), FitReason.FULL),
        (shared_gpu("a"), Demand(Isolation.WHOLE), FitReason.GPU_SHARED),
        (
            replace(shared_gpu("a"), table=A100, product=A100.product),
            isolated(1),
            FitReason.GPU_SHARED,
        ),
        (replace(mig_gpu("a", "1g.5gb@0"), replicas=2), isolated(1), FitReason.GPU_SHARED),
        (shared_gpu("a"), isolated(1), FitReason.NOT_MIG_CAPABLE),
        (whole_gpu("a"), Demand(Isolation.SHARED), FitReason.NOT_SHARED),
        (shared_gpu("a"), Demand(Isolation.SHARED, 20 * GIB), FitReason.MEMORY_TOO_LARGE),
        (whole_gpu("a"), Demand(Isolation.WHOLE, 50 * GIB), FitReason.MEMORY_TOO_LARGE),
        (shared_gpu("a", "x", "y"), Demand(Isolation.SHARED, count=3), FitReason.FULL),
        (mig_gpu("a"), isolated(50), FitReason.MEMORY_TOO_LARGE),
        (mig_gpu("a"), Demand(Isolation.ISOLATED, profile="3g.40gb"), FitReason.PROFILE_UNKNOWN),
        (mig_gpu("a"), isolated(1, count=8), FitReason.TOO_MANY),
        (whole_gpu("a", table=find_table("thor-igpu")), isolated(1), FitReason.TABLE_UNKNOWN),
        (whole_gpu("a", table=find_table("h20-96gb")), isolated(1), FitReason.MEMORY_UNKNOWN),
        (
            whole_gpu("a", table=find_table("h20-96gb")),
            Demand(Isolation.ISOLATED, profile="1g.12gb"),
            FitReason.MEMORY_UNKNOWN,
        ),
        (mig_gpu("a"), isolated(1, products=frozenset({"NVIDIA-B200"})), FitReason.NO_SUCH_PRODUCT),
    ],
)
def test_reason_is_named(gpu: object, demand: Demand, code: FitReason) -> None:
    found = fit(cluster(node("n1", gpu)), demand)  # type: ignore[arg-type]  # parametrised
    assert found.when is not FitWhen.NOW
    assert found.reasons[0].code is code
    assert describe(found).endswith(".")


def test_cluster_without_gpus_says_so() -> None:
    found = fit(cluster(), isolated(1))
    assert (found.when, found.reasons) == (FitWhen.NEVER, (Reason(FitReason.NO_GPU),))
    assert not found.is_possible


def test_reasons_are_added_up_and_stand_worst_first() -> None:
    found = worst_first(
        [
            Reason(FitReason.FULL, "b", 1),
            Reason(FitReason.FULL, "a", 1),
            Reason(FitReason.NODE_NOT_READY, "b", 2),
            Reason(FitReason.FULL, "b", 3),
        ]
    )
    assert found == (
        Reason(FitReason.NODE_NOT_READY, "b", 2),
        Reason(FitReason.FULL, "a", 1),
        Reason(FitReason.FULL, "b", 4),
    )


def test_drivers_of_one_product_may_name_profiles_differently() -> None:
    renamed = replace(
        A100_80,
        profiles=tuple(
            replace(item, name=item.aliases[0] if item.aliases else item.name, aliases=())
            for item in A100_80.profiles
        ),
    )
    snapshot = cluster(
        node("n1", mig_gpu("a", "3g.40gb@0!,3g.40gb@4!", table=A100_80)),
        node("n2", mig_gpu("b", "3g.39gb@4", table=renamed)),
    )
    found = fit(snapshot, isolated(39))
    assert (found.when, option_of(found.option).kind.profile) == (FitWhen.NOW, "3g.39gb")


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
