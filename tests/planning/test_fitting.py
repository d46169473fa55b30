"""Fitting over a cluster: what is had now, what after a change that harms nobody, and why not."""

from dataclasses import replace

import pytest

from gpu.planning.catalogue import find_table
from gpu.planning.demands import (
    Demand,
    FitReason,
    FitWhen,
    Isolation,
    Kind,
    Reason,
    worst_first,
)
from gpu.planning.explain import describe
from gpu.planning.fitting import fit
from gpu.planning.snapshot import Beside
from gpu.planning.steps import Create, Destroy, DisableMig, EnableMig, ResetGpu
from tests.planning.builders import (
    A30,
    A100,
    A100_80,
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

GIB = 1024


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
    found = fit(cluster(node("n1", changing)), isolated(1))
    assert found.reasons == (Reason(FitReason.CHANGING, A100.product, 1),)


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
