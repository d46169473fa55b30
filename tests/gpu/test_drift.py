"""Layouts that are not as ordered, by a reboot or by somebody's hand; shown and accepted."""

from dataclasses import replace
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import Gpu, Node
from gpu.planning.observed import ObservedGpu, ObservedInstance, ObservedNode
from gpu.planning.placements import Placement
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.services import drift, operations
from gpu.services.errors import WrongStateError
from gpu.services.inventory import nodes_to_probe
from gpu.services.observations import record_observation
from gpu.services.operations import Change
from portal.audit.models import AuditEvent
from tests import factories
from tests.gpu.lab import drive, make_lab, take_over
from tests.gpu.people import People, make_people, signed_in

H200 = "gpu-h200-01"
ONE = ObservedInstance(7, "1g.5gb", 19, Placement(0, 1), (0,), "MIG-1")
BARE = ObservedGpu(
    index=0,
    uuid="GPU-drift",
    name="NVIDIA A100-SXM4-40GB",
    memory_mib=40960,
    driver_version="580.1",
    is_mig_enabled=True,
    is_mig_pending=True,
)
CUT = replace(BARE, instances=(ONE,))


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def node(people: People) -> Node:
    return factories.make_node("n1", gpus=0)


def see(node: Node, gpu: ObservedGpu, *, boot_id: str = "first") -> Gpu:
    """Record one look at the node."""
    Node.objects.filter(pk=node.pk).update(boot_id=boot_id)
    record_observation(node.pk, ObservedNode((gpu,)), now=timezone.now(), is_settled=True)
    return Gpu.objects.get(uuid=gpu.uuid)


def test_what_is_seen_first_counts_as_ordered(node: Node) -> None:
    gpu = see(node, CUT)
    assert gpu.desired_layout == {"mig": True, "instances": [["1g.5gb", 0]]}
    assert gpu.drift_since is None


@pytest.mark.parametrize(("boot_id", "cause"), [("second", "reboot"), ("first", "foreign")])
def test_another_layout_is_drift_with_its_cause(node: Node, boot_id: str, cause: str) -> None:
    see(node, CUT)
    gpu = see(node, BARE, boot_id=boot_id)
    assert gpu.drift_since is not None
    assert gpu.drift_cause == cause
    since = gpu.drift_since

    assert see(node, BARE, boot_id=boot_id).drift_since == since
    assert AuditEvent.objects.filter(verb="gpu.drifted").count() == 1
    assert see(node, CUT, boot_id=boot_id).drift_since is None


def test_the_page_says_it_and_accepts_it(people: People, node: Node) -> None:
    see(node, CUT)
    gpu = see(node, BARE, boot_id="second")
    admin = signed_in(people.grace)

    text = admin.get(f"/gpus/{gpu.pk}/").content.decode()
    assert "1g.5gb was, MIG on, not cut is there" in text
    assert "the node was started anew" in text
    assert f"/gpus/{gpu.pk}/layout/?layout=1g.5gb%400" in text
    assert "not as ordered" in admin.get("/gpus/?state=drifted").content.decode()

    text = admin.post(f"/gpus/{gpu.pk}/accept/", follow=True).content.decode()
    assert "counts as ordered now" in text
    gpu.refresh_from_db()
    assert (gpu.drift_since, gpu.desired_layout) == (None, {"mig": True, "instances": []})
    text = admin.post(f"/gpus/{gpu.pk}/accept/", follow=True).content.decode()
    assert "nothing to accept" in text


def test_nothing_is_judged_or_accepted_while_the_node_is_changed(
    people: People, node: Node
) -> None:
    see(node, CUT)
    gpu = see(node, BARE)
    Node.objects.filter(pk=node.pk).update(is_ready=True)
    change = Change(gpu=gpu, desired={"mig": True, "instances": []})
    operations.start_operation(change, actor=people.grace)

    with pytest.raises(WrongStateError, match="being changed"):
        drift.accept_layout(gpu.pk, actor=people.grace)

    since = gpu.drift_since
    assert see(node, CUT).drift_since == since


def test_a_reboot_in_the_middle_of_an_operation_is_looked_at_again(node: Node) -> None:
    see(node, CUT)
    Node.objects.filter(pk=node.pk).update(boot_id="second", is_ready=True)
    record_observation(node.pk, ObservedNode((CUT,)), now=timezone.now(), is_settled=False)

    assert [row.pk for row in nodes_to_probe()] == [node.pk]


def test_managers_read_and_change_nothing(people: People, node: Node) -> None:
    see(node, CUT)
    gpu = see(node, BARE)
    manager: Client = signed_in(people.charlie)
    text = manager.get(f"/gpus/{gpu.pk}/").content.decode()
    assert "not the one that was ordered" in text
    assert "Accept what is there" not in text


def test_other_offers_have_the_node_read_again_and_drift_found(
    people: People, tmp_path: Path
) -> None:
    cluster: SimulatedCluster = make_lab(tmp_path, nodes=[H200])
    gpu = Gpu.objects.select_related("node").get(index=1, node__name=H200)
    desired = {"mig": True, "instances": [["3g.71gb", 4]]}
    operation = operations.start_operation(Change(gpu=gpu, desired=desired), actor=people.grace)
    assert drive(operation, cluster).state == "done"
    take_over(cluster)
    while read_unread_nodes(cluster=cluster):
        pass
    gpu.refresh_from_db()
    assert (gpu.desired_layout, gpu.drift_since) == (desired, None)

    # Somebody orders otherwise behind our back: what is there is no longer what was ordered.
    other = {"mig": True, "instances": [["1g.18gb", 0]]}
    Gpu.objects.filter(pk=gpu.pk).update(desired_layout=other)
    node = Node.objects.get(name=H200)
    Node.objects.filter(pk=node.pk).update(allocatable={**node.allocatable, "nvidia.com/gpu": 99})
    take_over(cluster)
    assert Node.objects.get(name=H200).probed_boot_id == ""
    while read_unread_nodes(cluster=cluster):
        pass

    gpu.refresh_from_db()
    assert (gpu.drift_since is not None, gpu.drift_cause) == (True, "foreign")
