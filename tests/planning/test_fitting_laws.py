"""Laws of fitting, over drawn clusters."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.demands import Demand, Ending, Fit, FitWhen, Isolation, Option, Site
from gpu.planning.fitting import fit
from gpu.planning.layouts import check_layout
from gpu.planning.snapshot import (
    Beside,
    ClusterSnapshot,
    GpuMode,
    GpuSnapshot,
    InstanceSnapshot,
    NodeSnapshot,
)
from gpu.planning.waiting import released
from tests.planning.builders import A30, A100, H200, shared_gpu, whole_gpu
from tests.planning.strategies import layouts

AT = datetime(2026, 12, 1, tzinfo=UTC)
MODELS = st.sampled_from([A30, A100, H200])


@st.composite
def gpus(draw: st.DrawFn, uuid: str) -> GpuSnapshot:
    table = draw(MODELS)
    match draw(st.sampled_from(list(GpuMode))):
        case GpuMode.MIG:
            instances = [
                InstanceSnapshot(item, holder, is_granted)
                for item in draw(layouts(table, most=4))
                for holder, is_granted in [
                    draw(st.sampled_from([(None, False), (None, True), ("x", True), ("x", False)]))
                ]
            ]
            gpu = GpuSnapshot(
                uuid, 0, table.product, table.memory_mib or 0, table, GpuMode.MIG, tuple(instances)
            )
        case GpuMode.WHOLE:
            gpu = whole_gpu(uuid, *draw(st.sampled_from([(), ("y",)])), table=table)
        case mode:
            held = draw(st.integers(0, 3))
            gpu = shared_gpu(uuid, *("z" * held), replicas=3, mode=mode)
    trouble = draw(st.integers(0, 12))
    return replace(gpu, is_in_service=trouble != 0, is_changing=trouble == 1)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    nodes = []
    for number in range(draw(st.integers(0, 3))):
        found = [draw(gpus(f"{number}-{i}")) for i in range(draw(st.integers(1, 3)))]
        total = draw(st.sampled_from([None, Beside(16_000, 64_000, 100_000)]))
        left = total.part(draw(st.integers(0, 4)), 4) if total else None
        nodes.append(
            NodeSnapshot(
                name=f"n{number}",
                gpus=tuple(replace(gpu, index=i) for i, gpu in enumerate(found)),
                is_schedulable=draw(st.integers(0, 9)) > 0,
                is_ready=draw(st.integers(0, 9)) > 0,
                total=total,
                left=left,
            )
        )
    return ClusterSnapshot(tuple(nodes))


demands = st.builds(
    Demand,
    isolation=st.sampled_from(list(Isolation)),
    memory_mib=st.sampled_from([0, 4096, 10_000, 19_000, 40_000, 100_000]),
    count=st.integers(1, 4),
    beside=st.sampled_from([None, None, Beside(4_000, 16_000, 1_000)]),
)


def _gpu(snapshot: ClusterSnapshot, site: Site) -> tuple[NodeSnapshot, GpuSnapshot]:
    return next(
        (node, gpu)
        for node in snapshot.nodes
        for gpu in node.gpus
        if (node.name, gpu.uuid) == (site.node, site.gpu_uuid)
    )


def _granted(snapshot: ClusterSnapshot, option: Option) -> ClusterSnapshot:
    """Return the snapshot after a grant of what is free."""
    taken = Counter(site.gpu_uuid for site in option.sites)
    instances = {(site.gpu_uuid, site.instance) for site in option.sites if site.instance}
    return ClusterSnapshot(
        tuple(
            replace(
                node,
                gpus=tuple(
                    replace(
                        gpu,
                        instances=tuple(
                            replace(item, is_granted=True)
                            if (gpu.uuid, item.instance) in instances
                            else item
                            for item in gpu.instances
                        ),
                        granted=gpu.granted
                        + (0 if gpu.mode is GpuMode.MIG else taken.get(gpu.uuid, 0)),
                    )
                    for gpu in node.gpus
                ),
            )
            for node in snapshot.nodes
        )
    )


def _check_beside(snapshot: ClusterSnapshot, demand: Demand, option: Option) -> None:
    for node in snapshot.nodes:
        count = sum(site.node == node.name for site in option.sites)
        amounts = demand.beside or node.part_of(option.kind.memory_mib)
        if amounts is not None and node.left is not None:
            assert node.left.holds(amounts.part(count, 1))


@given(clusters(), demands)
def test_what_is_had_now_is_free_and_had_once(snapshot: ClusterSnapshot, demand: Demand) -> None:
    found = fit(snapshot, demand)
    if found.option is None or found.when is not FitWhen.NOW:
        return
    assert len(found.option.sites) == demand.count
    assert found.option.kind.memory_mib >= demand.memory_mib
    instances = [(s.gpu_uuid, s.instance) for s in found.option.sites if s.instance]
    assert len(set(instances)) == len(instances)
    for site in found.option.sites:
        node, gpu = _gpu(snapshot, site)
        assert node.is_ready
        assert node.is_schedulable
        assert gpu.is_in_service
        if site.instance is not None:
            assert site.instance in gpu.free
        else:
            taken = sum(s.gpu_uuid == site.gpu_uuid for s in found.option.sites)
            assert taken <= gpu.free_replicas
    _check_beside(snapshot, demand, found.option)


@given(clusters(), demands)
def test_changes_leave_those_in_use_alone_and_bring_what_is_missing(
    snapshot: ClusterSnapshot, demand: Demand
) -> None:
    option = fit(snapshot, demand).option
    if option is None:
        return
    assert not option.blockers
    for change in option.changes:
        _, gpu = _gpu(snapshot, Site(change.node, change.gpu_uuid))
        assert gpu.table is not None
        assert check_layout(gpu.table, change.plan.layout) == change.plan.layout
        assert set(gpu.in_use) <= set(change.plan.layout)
        assert not gpu.holders
        before = sum(item.profile == option.kind.profile for item in gpu.free)
        after = sum(
            item.profile == option.kind.profile
            for item in change.plan.layout
            if item not in gpu.in_use
        )
        if option.kind.profile is not None:
            assert after == before + change.creates
    _check_beside(snapshot, demand, option)


@given(clusters(), demands)
def test_more_capacity_never_makes_it_later(snapshot: ClusterSnapshot, demand: Demand) -> None:
    more = NodeSnapshot("more", (whole_gpu("m1"), whole_gpu("m2", table=None), shared_gpu("m3")))
    before = fit(snapshot, demand, with_offers=False)
    after = fit(ClusterSnapshot((*snapshot.nodes, more)), demand, with_offers=False)
    assert after.is_possible or not before.is_possible
    if before.option is not None:
        assert after.option is not None
        assert after.when <= before.when


@given(clusters(), demands)
def test_order_of_nodes_does_not_matter(snapshot: ClusterSnapshot, demand: Demand) -> None:
    turned = ClusterSnapshot(snapshot.nodes[::-1])
    assert fit(turned, demand) == fit(snapshot, demand)


@given(clusters(), demands)
def test_ending_what_was_granted_brings_the_snapshot_back(
    snapshot: ClusterSnapshot, demand: Demand
) -> None:
    found = fit(snapshot, demand, with_offers=False)
    if found.option is None or found.when is not FitWhen.NOW:
        return
    granted = _granted(snapshot, found.option)
    assert granted != snapshot
    endings = [Ending(AT, site.gpu_uuid, site.instance) for site in found.option.sites]
    back = released(granted, [e for e in endings if e.instance is not None])
    shares = Counter(e.gpu_uuid for e in endings if e.instance is None)
    for node, old in zip(back.nodes, snapshot.nodes, strict=True):
        for gpu, before in zip(node.gpus, old.gpus, strict=True):
            assert replace(gpu, granted=gpu.granted - shares[gpu.uuid]) == before


@given(clusters(), demands)
def test_second_grant_is_never_of_what_the_first_took(
    snapshot: ClusterSnapshot, demand: Demand
) -> None:
    first = fit(snapshot, demand, with_offers=False)
    if first.option is None or first.when is not FitWhen.NOW:
        return
    second = fit(_granted(snapshot, first.option), demand, with_offers=False)
    if second.option is not None and second.when is FitWhen.NOW:
        taken = {(s.gpu_uuid, s.instance) for s in first.option.sites if s.instance}
        assert not taken & {(s.gpu_uuid, s.instance) for s in second.option.sites}


@given(clusters(), demands)
def test_once_all_rights_end_only_the_impossible_is_left(
    snapshot: ClusterSnapshot, demand: Demand
) -> None:
    endings = [
        *(
            Ending(AT, gpu.uuid, item.instance, beside=node.total)
            for node in snapshot.nodes
            for gpu in node.gpus
            for item in gpu.instances
        ),
        *(
            Ending(AT, gpu.uuid, count=gpu.replicas, beside=node.total)
            for node in snapshot.nodes
            for gpu in node.gpus
        ),
    ]
    found = fit(snapshot, demand, endings=endings, with_offers=False)
    empty = fit(released(snapshot, endings), demand, with_offers=False)
    _check_later(found, empty)


def _check_later(found: Fit, empty: Fit) -> None:
    if found.option is None:
        assert (found.later is not None) is (empty.option is not None)
    else:
        assert empty.option is not None


@given(clusters(), demands)
def test_every_answer_has_what_it_promises(snapshot: ClusterSnapshot, demand: Demand) -> None:
    found = fit(snapshot, demand)
    assert (found.option is not None) is (found.when <= FitWhen.AFTER_CHANGE)
    assert bool(found.reasons) is (found.when is not FitWhen.NOW)
    if found.when is FitWhen.AFTER_DISRUPTION:
        assert found.disruptive is not None
        assert found.disruptive.blockers
    for offer in found.counter_offers:
        assert offer.option.when < found.when
        assert len(offer.option.sites) == offer.demand.count
        assert not offer.option.blockers
