"""Who holds which device, on a real kubelet: named where the cluster tells, else "unknown"."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.models import Gpu
from gpu.ports import NODE, POD
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.reconcilers.watching import Watcher
from gpu.selectors.occupancy import Hold, Use, occupancy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import LabNode
from tests.cluster.plugin import offers
from tests.cluster.processes import wait_until
from tests.factories import make_user
from tests.gpu.people import signed_in

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

WHOLE = "nvidia.com/gpu"


@pytest.fixture
def silent_node(lab_node: LabNode) -> Iterator[LabNode]:
    """A second node, whose kubelet says nothing of devices."""
    plane = lab_node.control_plane
    with LabNode(plane, number=7, tells_devices=False) as node:
        wait_until(lambda: offers(node) == {WHOLE: 2}, "2 GPUs", timeout_s=90)
        yield node
    plane.api.delete(f"/api/v1/nodes/{node.name}")


def run(plane: ControlPlane, namespace: str, node: LabNode) -> dict[str, Any]:
    """Run a Pod with one GPU on a node, and return it as it is."""
    container = {
        "name": "main",
        "image": GPU_TOOLS,
        "command": ["sleep", "1000"],
        "resources": {"limits": {WHOLE: 1}},
    }
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node.name},
        "terminationGracePeriodSeconds": 1,
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.post(path, {"metadata": {"name": "holder"}, "spec": spec})

    def is_running() -> bool:
        return bool(plane.api.get(f"{path}/holder")["status"]["phase"] == "Running")

    wait_until(is_running, "the Pod running", timeout_s=90)
    found: dict[str, Any] = plane.api.get(f"{path}/holder")
    return found


def look(plane: ControlPlane, node: LabNode, settings: Settings) -> list[Hold]:
    """Do what watcher and worker do, and return who holds the node's GPUs, in their order."""
    settings.TOOLS_IMAGE = GPU_TOOLS
    cluster = KubernetesCluster.from_kubeconfig(str(plane.kubeconfig))
    watcher = Watcher(cluster, on_beat=lambda: None)
    watcher.write([(kind, cluster.list(kind)) for kind in (NODE, POD)])
    wait_until(lambda: read_unread_nodes(cluster=cluster) == 0, "GPUs read", timeout_s=90)
    found = occupancy(Gpu.objects.filter(node__name=node.name))
    return [hold for gpu in found for hold in gpu.holds]


def test_holder_of_a_device_is_named(
    control_plane: ControlPlane, fresh_node: LabNode, lab_namespace: str, settings: Settings
) -> None:
    pod = run(control_plane, lab_namespace, fresh_node)
    [status] = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    device = status["resources"][0]["resourceID"]
    holds = look(control_plane, fresh_node, settings)
    assert sorted(hold.use for hold in holds) == [Use.FREE, Use.IN_USE]
    gpu = Gpu.objects.get(uuid=device)
    [mine] = [hold for each in occupancy(Gpu.objects.filter(pk=gpu.pk)) for hold in each.holds]
    assert [p.name for p in mine.pods] == ["holder"]
    assert "holder" in page(gpu)


def test_holder_is_unknown_where_the_kubelet_does_not_tell(
    control_plane: ControlPlane, silent_node: LabNode, lab_namespace: str, settings: Settings
) -> None:
    pod = run(control_plane, lab_namespace, silent_node)
    assert "allocatedResourcesStatus" not in pod["status"]["containerStatuses"][0]
    holds = look(control_plane, silent_node, settings)
    assert [hold.use for hold in holds] == [Use.UNKNOWN, Use.UNKNOWN]
    assert {p.name for hold in holds for p in hold.pods} == {"holder"}
    gpu = Gpu.objects.filter(node__name=silent_node.name).first()
    assert gpu is not None
    assert "unknown" in page(gpu).lower()


def page(gpu: Gpu) -> str:
    """Return the GPU's page as an admin reads it."""
    answer = signed_in(make_user("grace", role="admin")).get(f"/gpus/{gpu.pk}/")
    assert answer.status_code == 200
    return answer.content.decode()
