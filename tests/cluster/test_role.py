"""The roles in deploy/ suffice for what the product does, and hold nothing that it never does."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.manifests import MEMBER_NAME
from gpu.models import Gpu, Node
from gpu.objects import PodObject
from gpu.ports import CONFIG_MAP, NODE, POD, Manifest, RefusedError, Scope
from gpu.reconcilers import operations as driving
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.reconcilers.namespaces import sync_namespace
from gpu.reconcilers.watching import Watcher
from gpu.services import operations
from gpu.services.operations import Change
from tests.cluster import device_plugin
from tests.cluster.audit import Permission, asked, unused
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import LabNode
from tests.cluster.processes import wait_until
from tests.cluster.roles import grants, install, signed_in
from tests.factories import make_tenant

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

A100 = 1
RBAC = "rbac.authorization.k8s.io"
# An apply that makes its object is authorised as a creation too, but logged as a patch alone.
_BY_APPLY = {
    Permission("create", "", "namespaces"),
    Permission("create", "", "resourcequotas"),
    Permission("create", "", "limitranges"),
    Permission("create", "", "serviceaccounts"),
    Permission("create", RBAC, "rolebindings"),
    Permission("bind", RBAC, "clusterroles"),  # asked within the creation of a binding
}

_ACCOUNTS: dict[str, set[Permission]] = {
    "slicedesk-watcher": set(),
    "slicedesk-worker": _BY_APPLY,
    "slicedesk-web": set(),
}


@pytest.fixture
def plane(control_plane: ControlPlane, fresh_node: LabNode, settings: Settings) -> ControlPlane:
    """The cluster with our roles in it; its node as new."""
    settings.TOOLS_IMAGE = settings.VERIFY_IMAGE = GPU_TOOLS
    install(control_plane)
    return control_plane


@pytest.fixture
def tenant_namespace(plane: ControlPlane) -> Iterator[str]:
    yield "team-roles"
    plane.api.delete("/api/v1/namespaces/team-roles")


def watch_until_known(cluster: KubernetesCluster, node: str) -> None:
    """Run the watcher until it has written a node down and follows the changes."""
    beats: list[float] = []

    def on_beat() -> None:
        beats.append(time.monotonic())
        if Node.objects.filter(name=node).exists() and beats[-1] - beats[0] > 1:
            watcher.stopping.set()

    watcher = Watcher(cluster=cluster, on_beat=on_beat)
    watcher.run()


def operate(cluster: KubernetesCluster, node: str) -> str:
    """Read a node's GPUs, cut one, and return how the operation ended."""
    wait_until(lambda: read_unread_nodes(cluster=cluster) == 0, "GPUs read", timeout_s=60)
    gpu = Gpu.objects.get(node__name=node, index=A100)
    desired = {"mig": True, "instances": [["3g.20gb", 4]]}
    with transaction.atomic():
        operation = operations.open_operation(Change(gpu=gpu, desired=desired), actor=None)
    end = time.monotonic() + 120
    while not operation.is_finished and time.monotonic() < end:
        driving.advance(operation.pk, cluster=cluster)
        operation.refresh_from_db()
        time.sleep(0.2)
    said = "" if operation.is_finished else [step.said for step in operation.steps.all()][-1]
    return f"{operation.state} {operation.failure_said or said}".strip()


def bare_pod(namespace: str) -> Manifest:
    container = {"name": "main", "image": GPU_TOOLS, "command": ["sleep", "1000"]}
    meta = {"name": "in-the-way", "namespace": namespace}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_what_the_product_does_needs_exactly_these_roles(
    plane: ControlPlane, lab_node: LabNode, tenant_namespace: str
) -> None:
    watcher, worker = signed_in(plane, "slicedesk-watcher"), signed_in(plane, "slicedesk-worker")
    watch_until_known(watcher, lab_node.name)
    assert operate(worker, lab_node.name) == "done"
    tenant = make_tenant("roles")
    wait_until(lambda: _is_synced(tenant, worker), "the quota kept", timeout_s=30)
    admin = KubernetesCluster.from_kubeconfig(str(plane.kubeconfig))
    admin.create(bare_pod("default"))
    worker.evict("in-the-way", "default")

    web = signed_in(plane, "slicedesk-web")
    web.request_token(MEMBER_NAME, tenant.namespace, lifetime_s=3600)

    for account, by_apply in _ACCOUNTS.items():
        log = asked(plane.audit_log, f"slicedesk:{account}")
        assert unused(grants(account), log) == by_apply, account


def _is_synced(tenant: Any, worker: KubernetesCluster) -> bool:  # noqa: ANN401
    return sync_namespace(tenant, cluster=worker) == ""


def test_roles_reach_no_further(plane: ControlPlane, lab_node: LabNode) -> None:
    watcher, worker = signed_in(plane, "slicedesk-watcher"), signed_in(plane, "slicedesk-worker")
    cordon = {"spec": {"unschedulable": True}}
    with pytest.raises(RefusedError, match="cannot patch resource"):
        watcher.patch(NODE, lab_node.name, cordon)
    with pytest.raises(RefusedError, match="cannot list resource"):
        worker.list(CONFIG_MAP, Scope("kube-system"))
    plugin = plane.api.get(f"/api/v1/namespaces/{device_plugin.NAMESPACE}/pods")["items"][0]
    with pytest.raises(RefusedError, match="cannot get resource"):
        worker.read_log(PodObject.from_manifest(plugin).name, device_plugin.NAMESPACE)
    with pytest.raises(RefusedError, match="cannot delete resource"):
        worker.delete(POD, "somebody", "kube-system")
