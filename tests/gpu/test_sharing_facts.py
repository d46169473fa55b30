"""How a node is shared as far as is known: what was proved, or else what labels say."""

import pytest

from gpu.models import Gpu, Node
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.sharing import SharingStrategy
from gpu.selectors.sharing import CONFIG_LABEL, key_of, shares_of, sharing_of
from gpu.services.sharing import record_sharing
from tests import factories

pytestmark = pytest.mark.django_db

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.5gb"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    f"{MIG}.replicas": "2",
    f"{MIG}.sharing-strategy": "time-slicing",
    "nvidia.com/mig-2g.10gb.replicas": "1",
    "nvidia.com/mig-2g.10gb.sharing-strategy": "none",
}
PROVED = NodeSharing(SharingStrategy.MPS, {GPU: 8})


@pytest.fixture
def node() -> Node:
    """A node with a whole GPU and one with MIG on, whose labels say that both are shared."""
    node = factories.make_node(gpus=2)
    Node.objects.update(labels=LABELS)
    Gpu.objects.filter(index=0).update(is_mig_enabled=False, sharing="time-slicing", replicas=4)
    node.refresh_from_db()
    return node


def test_labels_tell_for_each_resource(node: Node) -> None:
    assert sharing_of(node) == NodeSharing(SharingStrategy.TIME_SLICING, {GPU: 4, MIG: 2})
    whole, cut = Gpu.objects.select_related("node").order_by("index")
    assert (shares_of(whole, GPU), shares_of(cut, MIG)) == (4, 2)
    assert shares_of(cut, "nvidia.com/mig-2g.10gb") == 1


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"},
        {"nvidia.com/gpu.replicas": "many", "nvidia.com/gpu.sharing-strategy": "mps"},
    ],
)
def test_labels_that_say_nothing_mean_not_shared(labels: dict[str, str]) -> None:
    assert sharing_of(Node(labels=labels)) == NodeSharing()


def test_a_renamed_resource_is_told_by_the_product_without_its_mark() -> None:
    labels = {**LABELS, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    assert sharing_of(Node(labels=labels)).is_renamed


def test_what_was_proved_counts_at_once_and_only_with_its_configuration(node: Node) -> None:
    record_sharing(node.pk, PROVED, config="slicedesk-8")
    node.refresh_from_db()
    assert node.labels[CONFIG_LABEL] == "slicedesk-8"
    assert sharing_of(node) == PROVED
    whole, cut = Gpu.objects.select_related("node").order_by("index")
    assert (whole.sharing, whole.replicas, cut.sharing, cut.replicas) == ("mps", 8, "none", 1)
    assert (shares_of(whole, GPU), shares_of(cut, MIG), key_of(whole, GPU)) == (8, 1, GPU)
    node.labels[CONFIG_LABEL] = "somebody-elses"
    assert sharing_of(node) == NodeSharing(SharingStrategy.TIME_SLICING, {GPU: 4, MIG: 2})


def test_going_back_to_the_default_takes_the_label_away(node: Node) -> None:
    record_sharing(node.pk, PROVED, config="slicedesk-8")
    record_sharing(node.pk, NodeSharing(), config="")
    node.refresh_from_db()
    assert CONFIG_LABEL not in node.labels
    assert sharing_of(node) == NodeSharing()
    assert set(Gpu.objects.values_list("sharing", "replicas")) == {("none", 1)}
