"""An operation on the real cluster: Job, kubelet and device plugin each do their own part."""

import time

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.models import Gpu, Operation, ResourcePool
from gpu.objects import NodeObject, PodObject
from gpu.ports import NODE, POD
from gpu.reconcilers import operations as driving
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.services import inventory, operations
from gpu.services.operations import Change
from tests.cluster import device_plugin
from tests.cluster.gpus import new_state
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import DEFAULT_MODELS, LabNode
from tests.cluster.processes import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

A100 = 1


@pytest.fixture
def node(lab_node: LabNode, settings: Settings) -> LabNode:
    """The lab node with its GPUs as new; images as the lab has them."""
    settings.TOOLS_IMAGE = settings.VERIFY_IMAGE = GPU_TOOLS
    lab_node.gpus.install(new_state(lab_node.name, DEFAULT_MODELS))
    device_plugin.restart(lab_node.control_plane.api, lab_node.name)
    wait_until(lambda: lab_node.allocatable().get("nvidia.com/gpu") == 2, "2 GPUs", timeout_s=30)
    return lab_node


@pytest.fixture
def cluster(node: LabNode) -> KubernetesCluster:
    return KubernetesCluster.from_kubeconfig(str(node.control_plane.kubeconfig))


def take_over(cluster: KubernetesCluster) -> None:
    """Do what the watcher does, once."""
    nodes = [NodeObject.from_manifest(item) for item in cluster.list(NODE).items]
    inventory.record_nodes(nodes, now=timezone.now(), is_complete=True)
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD).items]
    inventory.record_pods(pods, is_complete=True)


def read_gpus(cluster: KubernetesCluster) -> None:
    """Do what the worker does until every node's GPUs are read."""
    take_over(cluster)
    wait_until(lambda: read_unread_nodes(cluster=cluster) == 0, "GPUs read", timeout_s=60)


def finish(operation: Operation, cluster: KubernetesCluster, *, within_s: float = 120) -> Operation:
    """Do what the worker does until the operation has ended."""
    end = time.monotonic() + within_s
    while not operation.is_finished:
        driving.advance(operation.pk, cluster=cluster)
        operation.refresh_from_db()
        assert time.monotonic() < end, (operation.state, [s.said for s in operation.steps.all()])
        time.sleep(0.2)
    return operation


def open_change(gpu: Gpu, *instances: list[str | int]) -> Operation:
    desired = {"mig": True, "instances": list(instances)}
    with transaction.atomic():
        return operations.open_operation(Change(gpu=gpu, desired=desired), actor=None)


def test_layout_is_changed_proved_and_undone_on_a_real_node(
    node: LabNode, cluster: KubernetesCluster
) -> None:
    read_gpus(cluster)
    gpu = Gpu.objects.get(node__name=node.name, index=A100)
    operation = finish(open_change(gpu, ["3g.20gb", 4], ["1g.5gb", 0]), cluster)
    assert operation.failure_said == ""
    assert operation.state == "done"
    assert {k: v for k, v in node.allocatable().items() if v} == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.5gb": 1,
        "nvidia.com/mig-3g.20gb": 1,
    }
    seen = operation.steps.get(state="verifying").evidence
    assert {row["devices"][0]["profile"] for row in seen["pods"]} == {"1g.5gb", "3g.20gb"}
    assert seen["pod_without_request_sees"] == []
    assert ResourcePool.objects.get(resource_name="nvidia.com/mig-3g.20gb").capacity == 1
    assert NodeObject.from_manifest(cluster.read(NODE, node.name)).is_schedulable
    with transaction.atomic():
        undo = operations.open_operation(
            Change(gpu=gpu, desired=operation.previous or {}, undoes=operation), actor=None
        )
    assert finish(undo, cluster).state == "done"
    assert {k: v for k, v in node.allocatable().items() if v} == {"nvidia.com/gpu": 2}
