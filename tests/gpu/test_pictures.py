"""The GPU of an answer, drawn as it would be; what others hold has no name."""

import pytest

from gpu.glyphs import GlyphGpu, Kind, SegmentState
from gpu.models import Gpu
from gpu.planning.demands import Demand, Isolation
from gpu.planning.fitting import fit
from gpu.selectors.snapshot import cluster_snapshot
from gpu.views.pictures import picture_of
from tenants.models import Tenant
from tests import factories

A100_80 = "NVIDIA-A100-SXM4-80GB"
GIB = 1024


@pytest.fixture
def tenant(db: None) -> Tenant:
    return factories.make_tenant()


def draw(demand: Demand, tenant: Tenant) -> GlyphGpu:
    snapshot = cluster_snapshot()
    option = fit(snapshot, demand).option
    assert option is not None
    found = picture_of(option, snapshot, {A100_80: "A100"}, tenant=tenant)
    assert found is not None
    return found


def shown(glyph: GlyphGpu) -> list[tuple[int, int, str, str]]:
    return [(s.start, s.size, s.state.value, s.profile) for s in glyph.segments]


def test_free_instances_are_marked_and_those_of_others_have_no_name(tenant: Tenant) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    for start in (0, 1, 2):
        factories.cut(gpu, "1g.10gb", start)
    factories.make_pod(
        gpu.node, "secret", resource="nvidia.com/mig-1g.10gb", devices=[f"MIG-{gpu.uuid}-0"]
    )

    glyph = draw(Demand(Isolation.ISOLATED, memory_mib=9 * GIB), tenant)

    assert glyph.kind is Kind.MIG
    assert shown(glyph) == [
        (0, 1, "in_use", "1g.10gb"),
        (1, 1, "granted_idle", "1g.10gb"),
        (2, 1, "free_instance", "1g.10gb"),
        *((index, 1, "uncut", "") for index in range(3, 8)),
    ]
    assert glyph.segments[1].holder == "Vision"
    assert "secret" not in glyph.sentence
    assert glyph.label == "A100 · 0"


def test_what_has_to_be_cut_is_drawn_as_if_it_were(tenant: Tenant) -> None:
    factories.make_node(product=A100_80)

    glyph = draw(Demand(Isolation.ISOLATED, memory_mib=30 * GIB, count=2), tenant)

    mine = [s for s in glyph.segments if s.state is SegmentState.GRANTED_IDLE]
    assert [(s.profile, s.size, s.memory) for s in mine] == [("3g.40gb", 4, "39.25 GiB")] * 2


def test_slices_that_nothing_reaches_are_drawn_as_lost(tenant: Tenant) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    for start in range(7):
        factories.cut(gpu, "1g.10gb", start)

    glyph = draw(Demand(Isolation.ISOLATED, memory_mib=9 * GIB), tenant)

    assert shown(glyph)[-2:] == [(6, 1, "free_instance", "1g.10gb"), (7, 1, "unreachable", "")]


def test_a_share_is_one_cell_of_all(tenant: Tenant) -> None:
    node = factories.make_node(product=A100_80)
    node.gpus.update(is_mig_enabled=False, sharing="time-slicing", replicas=4)
    factories.make_pod(
        node, "other", resource="nvidia.com/gpu", devices=[f"{node.gpus.get().uuid}::0"]
    )

    glyph = draw(Demand(Isolation.SHARED, memory_mib=10 * GIB, count=2), tenant)

    assert glyph.kind is Kind.SHARES
    states = [segment.state.value for segment in glyph.segments]
    assert states == ["in_use", "granted_idle", "granted_idle", "free_instance"]
    assert glyph.isolation_words == "memory not isolated"


def test_a_whole_gpu_is_one_piece(tenant: Tenant) -> None:
    factories.make_node(product=A100_80).gpus.update(is_mig_enabled=False)

    glyph = draw(Demand(Isolation.WHOLE), tenant)

    assert shown(glyph) == [(0, 1, "granted_idle", "")]
    assert glyph.segments[0].memory == "80 GiB"


def test_a_gpu_that_has_gone_meanwhile_is_not_drawn(tenant: Tenant) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    factories.cut(gpu, "1g.10gb", 0)
    snapshot = cluster_snapshot()
    option = fit(snapshot, Demand(Isolation.ISOLATED, memory_mib=GIB)).option
    assert option is not None
    Gpu.objects.filter(pk=gpu.pk).update(uuid="GPU-gone")

    assert picture_of(option, cluster_snapshot(), {}, tenant=tenant) is None
