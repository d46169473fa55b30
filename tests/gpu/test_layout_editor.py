"""The layout editor: what it offers, what it refuses and why, and what a layout would mean."""

import pytest
from django.utils import timezone

from gpu.models import Gpu, GpuPod, ResourcePool
from gpu.planning.geometry import Instance
from gpu.selectors.gpus import gpu_seen, gpus_of_node
from gpu.selectors.occupancy import live_pods
from gpu.services import allocations
from gpu.views.layout_editor import Choice, Editor, build_editor
from gpu.views.layout_preview import Fate, Preview, build_preview
from gpu.views.layout_wish import Wish, WishError, present_layout, read_wish
from tests import factories

pytestmark = pytest.mark.django_db

SMALL = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def gpu() -> Gpu:
    return Gpu.objects.get(node=factories.make_node())


def edit(gpu: Gpu, text: str | None = None, *, is_unlocked: bool = False) -> Editor:
    row = gpu_seen(gpu.pk)
    assert row is not None
    assert row.table is not None
    wish = present_layout(row.seen.gpu) if text is None else read_wish(text, row.table)
    return build_editor(row.seen, row.table, wish, is_unlocked=is_unlocked)


def choice(editor: Editor, name: str) -> Choice:
    return next(c for line in editor.lines for c in line.choices if c.name == name)


def preview(gpu: Gpu, text: str) -> Preview:
    row = gpu_seen(gpu.pk)
    assert row is not None
    assert row.table is not None
    return build_preview(
        row.seen,
        row.table,
        read_wish(text, row.table),
        neighbours=[r.seen for r in gpus_of_node(gpu.node_id) if r.seen.gpu != gpu],
        node_pods=live_pods([gpu.node_id]),
    )


def use(gpu: Gpu, profile: str, start: int, *, pod: str = "train") -> GpuPod:
    held = factories.cut(gpu, profile, start)
    return factories.make_pod(gpu.node, pod, resource=held.resource_name, devices=[held.mig_uuid])


def test_a_click_on_a_free_placement_adds_it_and_a_second_click_takes_it_away(gpu: Gpu) -> None:
    added = choice(edit(gpu, ""), "3g.20gb@4")
    assert added.layout == "3g.20gb@4"

    taken = choice(edit(gpu, "3g.20gb@4"), "3g.20gb@4")
    assert taken.is_wanted
    assert taken.layout == ""


def test_a_placement_that_overlaps_is_refused_by_the_name_of_the_other(gpu: Gpu) -> None:
    refused = choice(edit(gpu, "3g.20gb@4"), "2g.10gb@4")

    assert refused.layout is None
    assert refused.reason == "overlaps 3g.20gb@4"


def test_a_profile_that_is_used_up_is_refused_with_the_number(gpu: Gpu) -> None:
    refused = choice(edit(gpu, "1g.5gb+me@0"), "1g.5gb+me@1")

    assert refused.layout is None
    assert refused.reason == "a GPU of this model holds at most 1 of these"


def test_an_instance_in_use_stays_until_it_is_unlocked(gpu: Gpu) -> None:
    use(gpu, "1g.5gb", 0)

    locked = choice(edit(gpu), "1g.5gb@0")
    assert locked.layout is None
    assert locked.reason == "in use by team-nlp/train"
    assert choice(edit(gpu, is_unlocked=True), "1g.5gb@0").layout == ""


def test_an_instance_that_may_be_in_use_stays_too(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.make_pod(gpu.node, "train", resource=SMALL, devices=None)

    locked = choice(edit(gpu), "1g.5gb@0")
    assert locked.layout is None
    assert locked.reason == "may be in use by team-nlp/train"


def test_presets_keep_what_is_in_use(gpu: Gpu) -> None:
    use(gpu, "3g.20gb", 4)

    offered = {preset.label: preset.layout for preset in edit(gpu).presets}

    assert offered["4 \N{MULTIPLICATION SIGN} 1g.5gb"] == (
        "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,3g.20gb@4"
    )
    assert offered["all free slices uncut"] == "3g.20gb@4"
    assert "MIG off" not in offered


def test_presets_of_an_idle_gpu_reach_from_seven_small_ones_to_mig_off(gpu: Gpu) -> None:
    offered = {preset.label: preset.layout for preset in edit(gpu).presets}

    assert offered["7 \N{MULTIPLICATION SIGN} 1g.5gb"].count("1g.5gb@") == 7
    assert offered["balanced"].count("@") == 4
    assert offered["MIG off"] == "off"
    assert offered["empty"] == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("3g.20gb", "“3g.20gb” is not a placement; one looks like 3g.40gb@4."),
        ("3g.20gb@x", "“3g.20gb@x” is not a placement; one looks like 3g.40gb@4."),
        ("3g.20gb@1", "3g.20gb cannot start at memory slice 1, only at 0, 4."),
        ("3g.20gb@4,2g.10gb@4", "2g.10gb@4 does not fit beside 3g.20gb@4."),
        ("9g.90gb@0", "A100 40GB has no profile “9g.90gb”."),
        ("some@0", "A100 40GB has no profile “some”."),
    ],
    ids=["no start", "no number", "no such start", "overlap", "no such profile", "no name"],
)
def test_a_bad_layout_is_refused_in_one_sentence(gpu: Gpu, text: str, sentence: str) -> None:
    row = gpu_seen(gpu.pk)
    assert row is not None
    assert row.table is not None

    with pytest.raises(WishError) as refused:
        read_wish(text, row.table)

    assert str(refused.value) == sentence


def test_a_wish_says_itself_again(gpu: Gpu) -> None:
    row = gpu_seen(gpu.pk)
    assert row is not None
    assert row.table is not None

    for text in ("off", "", "1g.5gb@0,3g.20gb@4"):
        assert read_wish(text, row.table).text == text


def test_a_preview_lists_destruction_before_creation_and_leaves_the_rest(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "2g.10gb", 2)

    seen = preview(gpu, "2g.10gb@2,3g.20gb@4")

    assert [(line.action, str(line.instance)) for line in seen.steps] == [
        ("destroy", "1g.5gb@0"),
        ("create", "3g.20gb@4"),
    ]
    assert seen.steps[0].commands == (
        "nvidia-smi mig -i 0 -dci -gi 7",
        "nvidia-smi mig -i 0 -dgi -gi 7",
    )
    assert seen.steps[1].commands == ("nvidia-smi mig -i 0 -cgi 9:4 -C",)
    assert seen.kept == (Instance("2g.10gb", 2),)
    assert {count.key: (count.before, count.after) for count in seen.counts} == {
        SMALL: (1, 0),
        "nvidia.com/mig-3g.20gb": (0, 1),
    }


def test_a_layout_that_is_there_already_needs_nothing(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)

    assert preview(gpu, "1g.5gb@0").is_empty


def test_switching_mig_off_names_the_reset_and_every_holder(gpu: Gpu) -> None:
    pod = use(gpu, "1g.5gb", 0)

    seen = preview(gpu, "off")

    assert [line.action for line in seen.steps] == ["destroy", "disable_mig", "reset_gpu"]
    assert seen.needs_reset
    assert seen.named_pods == (f"team-nlp/train/{pod.uid}",)


def test_pods_in_the_way_and_bystanders_are_told_apart(gpu: Gpu) -> None:
    pod = use(gpu, "1g.5gb", 0, pod="in-the-way")
    use(gpu, "1g.5gb", 1, pod="bystander")

    seen = preview(gpu, "1g.5gb@1")

    assert [(item.pod, item.fate, item.is_certain) for item in seen.pods] == [
        (pod, Fate.COMES_BACK, True)
    ]
    assert [item.name for item in seen.bystanders] == ["bystander"]


def test_a_pod_without_a_controller_is_lost(gpu: Gpu) -> None:
    use(gpu, "1g.5gb", 0)
    GpuPod.objects.update(owner_kind="", owner_name="")

    assert [item.fate for item in preview(gpu, "").pods] == [Fate.LOST]


def test_grants_that_would_lose_their_device_are_named(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    pool = factories.make_pool(gpu.model, SMALL, capacity=1)
    vision = factories.make_tenant("vision")
    wish = factories.submit(vision, factories.join(vision, factories.make_user()))
    given = factories.grant_of(pool, profile="1g.5gb")
    allocations.grant_now(wish, given, now=timezone.now())

    (short,) = preview(gpu, "2g.10gb@0").shortages

    assert (short.key, short.missing, short.tenants) == (SMALL, 1, ("Vision",))
    ResourcePool.objects.update(capacity=2)
    assert preview(gpu, "2g.10gb@0").shortages == ()


def test_a_wish_can_grow_and_shrink() -> None:
    item = Instance("1g.5gb", 0)

    assert Wish(is_mig_on=True).with_instance(item).without(item) == Wish(is_mig_on=True)
