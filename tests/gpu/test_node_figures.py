"""What a node offers against what it should, and the node's one word."""

from datetime import timedelta

import pytest
from django.utils import timezone

from gpu.models import Gpu, GpuPod, Node
from gpu.selectors.nodes import (
    Disagreement,
    NodeState,
    ResourceRow,
    Sight,
    resources_of,
    state_of,
)
from gpu.services import allocations
from tests import factories

pytestmark = pytest.mark.django_db

SMALL = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def node() -> Node:
    return factories.make_node()


def figures(node: Node, *, is_changing: bool = False) -> ResourceRow:
    (row,) = resources_of(node, is_changing=is_changing)
    return row


def offer(node: Node, *, capacity: int, allocatable: int) -> Node:
    node.capacity, node.allocatable = {SMALL: capacity}, {SMALL: allocatable}
    node.save()
    return node


def test_equal_figures_need_no_words(node: Node) -> None:
    gpu = Gpu.objects.get()
    held = factories.cut(gpu, "1g.5gb", 0)
    pool = factories.make_pool(gpu.model, SMALL, capacity=1)
    tenant = factories.make_tenant("nlp")
    wish = factories.submit(tenant, factories.join(tenant, factories.make_user()))
    given = allocations.grant_now(
        wish, factories.grant_of(pool, profile="1g.5gb"), now=timezone.now()
    )
    given.placements = [{"gpu": gpu.uuid, "profile": "1g.5gb", "start": 0}]
    given.save()
    factories.make_pod(node, "train", resource=SMALL, devices=[held.mig_uuid])
    GpuPod.objects.update(tenant=tenant)

    row = figures(offer(node, capacity=1, allocatable=1))

    assert (row.capacity, row.allocatable, row.requested, row.granted, row.expected) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert row.disagreements == ()


@pytest.mark.parametrize(
    ("capacity", "allocatable", "why"),
    [
        (0, 0, (Disagreement.NOT_REGISTERED,)),
        (2, 2, (Disagreement.STILL_OFFERED,)),
        (2, 1, (Disagreement.CAPACITY_KEPT,)),
    ],
    ids=["fewer than cut", "more than cut", "capacity kept"],
)
def test_unequal_figures_say_why(
    node: Node, capacity: int, allocatable: int, why: tuple[Disagreement, ...]
) -> None:
    factories.cut(Gpu.objects.get(), "1g.5gb", 0)

    assert figures(offer(node, capacity=capacity, allocatable=allocatable)).disagreements == why


def test_a_change_under_way_explains_what_is_missing(node: Node) -> None:
    factories.cut(Gpu.objects.get(), "1g.5gb", 0)

    row = figures(offer(node, capacity=0, allocatable=0), is_changing=True)

    assert row.disagreements == (Disagreement.CHANGING,)


def test_pods_of_no_tenant_are_named(node: Node) -> None:
    held = factories.cut(Gpu.objects.get(), "1g.5gb", 0)
    factories.make_pod(node, "stray", resource=SMALL, devices=[held.mig_uuid])

    row = figures(offer(node, capacity=1, allocatable=1))

    assert row.disagreements == (Disagreement.NOT_GRANTED,)
    assert row.foreign == ("team-nlp/stray",)


def test_a_node_that_was_never_read_expects_nothing(node: Node) -> None:
    node.probed_at = None

    row = figures(offer(node, capacity=1, allocatable=1))

    assert row.expected is None
    assert row.disagreements == (Disagreement.NOT_READ,)


@pytest.mark.parametrize(
    ("changes", "is_changing", "is_watched", "word"),
    [
        ({}, False, True, NodeState.READY),
        ({"is_schedulable": False}, False, True, NodeState.CORDONED),
        ({"is_schedulable": False}, True, True, NodeState.CHANGING),
        ({"is_ready": False}, True, True, NodeState.NOT_READY),
        ({"is_present": False, "observed_at": None}, False, True, NodeState.NOT_READY),
        ({"observed_at": None}, False, True, NodeState.STALE),
        ({}, False, False, NodeState.STALE),
    ],
    ids=["ready", "cordoned", "changing", "not ready", "gone", "never seen", "unwatched"],
)
def test_a_node_has_one_word(
    node: Node,
    *,
    changes: dict[str, bool | None],
    is_changing: bool,
    is_watched: bool,
    word: NodeState,
) -> None:
    for name, value in changes.items():
        setattr(node, name, value)

    sight = Sight(timezone.now(), is_watched=is_watched)

    assert state_of(node, is_changing=is_changing, sight=sight) == word


def test_a_node_that_was_not_heard_of_for_long_is_stale(node: Node) -> None:
    later = timezone.now() + timedelta(minutes=20)

    assert state_of(node, is_changing=False, sight=Sight(later, is_watched=True)) == NodeState.STALE
