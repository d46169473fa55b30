"""GPUs of the inventory as glyphs: instances, gaps, shares, changes, age."""

from datetime import timedelta

import pytest
from django.template import Context, Template
from django.utils import timezone

from gpu.glyphs import GlyphGpu, Kind, Segment, SegmentState
from gpu.models import Gpu, GpuPod, Operation
from gpu.selectors.glyphs import glyph_of
from gpu.selectors.gpus import gpu_seen
from tests import factories

pytestmark = pytest.mark.django_db

S = SegmentState


@pytest.fixture
def gpu() -> Gpu:
    return Gpu.objects.get(node=factories.make_node())


def glyph(gpu: Gpu) -> GlyphGpu:
    row = gpu_seen(gpu.pk)
    assert row is not None
    return glyph_of(row, now=timezone.now())


def pieces(gpu: Gpu) -> list[tuple[int, int, SegmentState]]:
    return [(s.start, s.size, s.state) for s in glyph(gpu).segments]


def operate(gpu: Gpu, *instances: tuple[str, int], mig: bool = True) -> None:
    Operation.objects.create(
        node=gpu.node,
        gpu=gpu,
        state=Operation.State.APPLYING,
        desired={"mig": mig, "instances": [list(item) for item in instances]},
        deadline_at=timezone.now() + timedelta(minutes=5),
    )


def test_an_uncut_gpu_is_all_free_slices(gpu: Gpu) -> None:
    assert glyph(gpu).label == f"{gpu.model.name.removeprefix('NVIDIA ')} · 0"
    assert pieces(gpu) == [(0, 8, S.UNCUT)]


def test_instances_gaps_and_slices_out_of_reach_lie_where_they_are(gpu: Gpu) -> None:
    for start in range(1, 7):
        factories.cut(gpu, "1g.5gb", start)

    assert pieces(gpu) == [
        (0, 1, S.UNCUT),
        *((start, 1, S.FREE_INSTANCE) for start in range(1, 7)),
        (7, 1, S.UNREACHABLE),
    ]
    assert "legal place" in glyph(gpu).segments[-1].note


def test_a_held_instance_names_its_tenant_pods_and_memory(gpu: Gpu) -> None:
    held = factories.cut(gpu, "3g.20gb", 0)
    tenant = factories.make_tenant("vision")
    for number in range(4):
        factories.make_pod(
            gpu.node, f"train-{number}", resource=held.resource_name, devices=[held.mig_uuid]
        )
    GpuPod.objects.update(tenant=tenant)

    segment = glyph(gpu).segments[0]

    assert segment == Segment(
        0,
        4,
        S.IN_USE,
        "3g.20gb",
        holder="Vision",
        palette=tenant.palette_index,
        memory=segment.memory,
        note="team-nlp/train-0, team-nlp/train-1 and 2 more",
    )
    assert segment.memory.endswith(" GiB")


def test_a_change_marks_what_goes_and_what_comes_and_leaves_the_rest(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "2g.10gb", 2)
    operate(gpu, ("1g.5gb", 0), ("3g.20gb", 4))

    assert pieces(gpu) == [
        (0, 1, S.FREE_INSTANCE),
        (1, 1, S.UNCUT),
        (2, 2, S.CHANGING),
        (4, 4, S.CHANGING),
    ]
    assert glyph(gpu).caption == "applying"


def test_the_change_of_a_neighbour_is_not_its_own(gpu: Gpu) -> None:
    other = Gpu.objects.create(
        node=gpu.node, model=gpu.model, index=1, uuid="GPU-x", memory_mib=1, is_mig_enabled=True
    )
    operate(other, ("7g.40gb", 0))

    assert pieces(gpu) == [(0, 8, S.UNCUT)]
    assert pieces(other) == [(0, 8, S.CHANGING)]


def test_a_gpu_without_mig_is_whole_or_shares(gpu: Gpu) -> None:
    gpu.is_mig_enabled = False
    gpu.save()
    assert (glyph(gpu).kind, pieces(gpu)) == (Kind.WHOLE, [(0, 1, S.FREE_INSTANCE)])

    gpu.replicas, gpu.sharing = 4, Gpu.Sharing.TIME_SLICING
    gpu.save()
    shared = glyph(gpu)
    assert (shared.kind, shared.slices, len(shared.segments)) == (Kind.SHARES, 4, 4)
    assert shared.isolation_words == "memory not isolated"

    gpu.sharing = Gpu.Sharing.MPS
    gpu.save()
    assert glyph(gpu).isolation_words == "faults not isolated"


def test_a_whole_gpu_whose_mode_changes_is_changing(gpu: Gpu) -> None:
    gpu.is_mig_enabled = False
    gpu.save()
    operate(gpu, ("7g.40gb", 0))
    assert pieces(gpu) == [(0, 1, S.CHANGING)]


def test_old_news_have_an_age(gpu: Gpu) -> None:
    assert glyph(gpu).stale_words == ""
    gpu.node.observed_at = timezone.now() - timedelta(hours=3)
    gpu.node.save()
    assert glyph(gpu).stale_words == "3\N{NO-BREAK SPACE}hours"
    gpu.node.observed_at = None
    gpu.node.save()
    assert glyph(gpu).caption == "not seen for an unknown time"


def test_the_tag_takes_a_row_of_the_map(gpu: Gpu) -> None:
    source = '{% load gpu_glyphs %}{% gpu_glyph row size="editor" %}'
    html = Template(source).render(Context({"row": gpu_seen(gpu.pk)}))
    assert "8 slices not cut" in html
    assert "href" not in html.split("glyph-bar")[0]
