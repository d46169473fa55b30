"""The researcher's journey on the real cluster: from a request to a Pod that runs on its slice.

The API server, the scheduler, the kubelet, containerd and the device plugin's registration are
real; so is everything of ours, the Job on the node included.
"""

import time

import pytest
from django.utils import timezone
from pytest_django import Settings

from gpu import manifests
from gpu.adapters.kubernetes import KubernetesCluster
from gpu.models import Allocation, NamespaceQuota, Operation, SliceRequest
from gpu.objects import PodObject
from gpu.ports import POD, RESOURCE_QUOTA, RefusedError
from gpu.reconcilers import operations as driving
from gpu.reconcilers import queue
from gpu.selectors.tables import product_labels
from gpu.services import requests
from gpu.services.operations import due_operation_ids
from tenants.models import Membership, Tenant, User
from tests import factories
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import LabNode
from tests.cluster.processes import wait_until
from tests.cluster.test_operation import cluster, node, read_gpus

__all__ = ["cluster", "node"]

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

RESOURCE = "nvidia.com/mig-2g.10gb"


@pytest.fixture
def tenant(db: None) -> Tenant:
    return factories.make_tenant("vision")


@pytest.fixture
def ada(tenant: Tenant) -> User:
    return factories.join(tenant, factories.make_user("ada"))


@pytest.fixture
def lead(tenant: Tenant) -> User:
    return factories.join(tenant, factories.make_user("lei"), role=Membership.Role.LEAD)


def _work(slice_request: SliceRequest, cluster: KubernetesCluster) -> SliceRequest:
    """Do what the workers do until the slice is ready."""
    end = time.monotonic() + 150
    while slice_request.state != SliceRequest.State.READY:
        queue.advance_request(slice_request.pk, cluster=cluster)
        for operation_id in due_operation_ids(timezone.now()):
            driving.advance(operation_id, cluster=cluster)
        slice_request.refresh_from_db()
        assert time.monotonic() < end, (
            slice_request.state,
            slice_request.waiting_reason,
            slice_request.waiting_detail,
        )
        time.sleep(0.2)
    return slice_request


def _pod(allocation: Allocation, name: str) -> manifests.Body:
    return manifests.slice_pod(
        manifests.SlicePod(
            name=name,
            namespace=allocation.tenant.namespace,
            allocation=str(allocation.pk),
            resource_name=allocation.pool.resource_name,
            products=product_labels(allocation.pool.model),
            image=GPU_TOOLS,
            command=["sh", "-c", "nvidia-smi -L; sleep 600"],
            amounts=manifests.Amounts(100, 64, allocation.storage_mib),
        )
    )


def test_request_becomes_a_pod_that_runs_on_its_slice(
    node: LabNode,
    cluster: KubernetesCluster,
    ada: User,
    lead: User,
    settings: Settings,
) -> None:
    read_gpus(cluster)
    tenant = Tenant.objects.get()
    slice_request = factories.submit(tenant, ada, memory_mib=9000)
    requests.approve_request(slice_request.pk, actor=lead)
    _work(slice_request, cluster)

    allocation = Allocation.objects.select_related("pool__model", "tenant").get()
    assert allocation.pool.resource_name in {RESOURCE, "nvidia.com/mig-1g.10gb"}
    resource = allocation.pool.resource_name
    operation = Operation.objects.get()
    assert operation.state == Operation.State.DONE
    assert any("-cgi" in line for line in operation.steps.get(state="applying").commands)
    assert node.allocatable()[resource] == 1

    hard = _hard(cluster, tenant)
    assert hard[f"requests.{resource}"] == "1"
    assert hard["requests.nvidia.com/gpu"] == "0"
    assert NamespaceQuota.objects.get().problem == ""

    first = _pod(allocation, "train")
    wait_until(lambda: cluster.create(first) is not None, "the Pod is taken", timeout_s=20)
    wait_until(lambda: _read(cluster, tenant, "train").is_ready, "the Pod runs", timeout_s=60)
    [device] = (_read(cluster, tenant, "train").devices or {})[resource]
    assert device.startswith("MIG-")
    assert device in cluster.read_log("train", tenant.namespace)
    with pytest.raises(RefusedError, match="exceeded quota"):
        cluster.create(_pod(allocation, "train-2"))

    cluster.delete(POD, "train", tenant.namespace, grace_s=0)
    requests.release_slice(slice_request.pk, actor=ada)
    queue.end_overdue(cluster=cluster)
    assert _hard(cluster, tenant)[f"requests.{resource}"] == "0"


def _hard(cluster: KubernetesCluster, tenant: Tenant) -> dict[str, str]:
    quota = cluster.read(RESOURCE_QUOTA, manifests.QUOTA_NAME, tenant.namespace)
    hard: dict[str, str] = quota["spec"]["hard"]
    return hard


def _read(cluster: KubernetesCluster, tenant: Tenant, name: str) -> PodObject:
    return PodObject.from_manifest(cluster.read(POD, name, tenant.namespace))
