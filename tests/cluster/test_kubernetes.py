"""The Kubernetes adapter on a real cluster."""

import pytest

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.ports import CONFIG_MAP, Manifest, Scope, UnreachableError, kind_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import LabNode
from tests.cluster.processes import wait_until
from tests.contracts.cluster_contract import ClusterWritingContract, Lab
from tests.contracts.cluster_reading_contract import ClusterReadingContract
from tests.contracts.cluster_running_contract import ClusterRunningContract

_PATIENCE_S = 30


@pytest.mark.cluster
def test_watch_breaks_with_the_api_server_and_goes_on_after_it(
    control_plane: ControlPlane, lab_namespace: str
) -> None:
    cluster = KubernetesCluster.from_kubeconfig(str(control_plane.kubeconfig))
    scope = Scope(lab_namespace, field_selector="metadata.name=one")
    meta = {"name": "one", "namespace": lab_namespace}
    made = cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    watch = cluster.watch(CONFIG_MAP, Scope(lab_namespace), "0", timeout_s=60)
    assert next(watch).type == "ADDED"
    control_plane.kill_api_server()
    with pytest.raises(UnreachableError):
        list(watch)
    with pytest.raises(UnreachableError, match="nothing listens there"):
        cluster.read(CONFIG_MAP, "one", lab_namespace)
    control_plane.start_api_server()
    assert cluster.read(CONFIG_MAP, "one", lab_namespace) == made
    assert [item["metadata"]["name"] for item in cluster.list(CONFIG_MAP, scope).items] == ["one"]


@pytest.mark.cluster
class TestKubernetes(ClusterWritingContract, ClusterReadingContract, ClusterRunningContract):
    """The contract, against kube-apiserver and a kubelet."""

    @pytest.fixture
    def lab(self, control_plane: ControlPlane, lab_node: LabNode, lab_namespace: str) -> Lab:
        def meddle(manifest: Manifest) -> None:
            kind, meta = kind_of(manifest), manifest["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/{kind.plural}/{meta['name']}"
            control_plane.api.apply(path, manifest)

        return Lab(
            cluster=KubernetesCluster.from_kubeconfig(str(control_plane.kubeconfig)),
            node=lab_node.name,
            namespace=lab_namespace,
            image=GPU_TOOLS,
            eventually=lambda holds: wait_until(
                holds, "what the test waits for", timeout_s=_PATIENCE_S
            ),
            meddle=meddle,
            forget=control_plane.restart_api_server,  # its watch cache begins anew
        )
