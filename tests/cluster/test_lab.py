"""The real cluster itself: what the product's own tests rely on holds here.

Covers: a Ready node with labels, devices in allocatable, a Pod that sees its device and no other, a
Pod without a request that sees none, the quota's refusal, "in use" of a running program, a reboot,
an edited state file, and that nothing stays behind.
"""

import urllib.error
from typing import Any

import pytest

from tests.cluster import device_plugin
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpus import new_state
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import LabNode
from tests.cluster.plugin import offers
from tests.cluster.processes import wait_until

pytestmark = pytest.mark.cluster

ONE_5GB = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def node(fresh_node: LabNode) -> LabNode:
    return fresh_node


def _wait_for(node: LabNode, wanted: dict[str, int]) -> None:
    wait_until(lambda: offers(node) == wanted, f"allocatable {wanted}", timeout_s=30)


def _cut(node: LabNode, gpu: int, profiles: str) -> None:
    """Make GPU instances and let the plugin see them."""
    for arguments in (["-mig", "1"], ["--gpu-reset"]):
        assert node.gpus.nvidia_smi("-i", str(gpu), *arguments).returncode == 0
    done = node.gpus.nvidia_smi("mig", "-i", str(gpu), "-cgi", profiles, "-C")
    assert done.returncode == 0, done.stdout
    device_plugin.restart(node.control_plane.api, node.name)


def _pod(name: str, script: str, resource: str | None = None, **spec: object) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": GPU_TOOLS,
        "command": ["sh", "-c", script],
    }
    if resource:
        container["resources"] = {"limits": {resource: 1}}
    container.update(spec)
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


class Namespace:
    """Pods of one namespace, through the cluster's API."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._api, self._path = plane.api, f"/api/v1/namespaces/{name}"

    def run(self, pod: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
        """Create a Pod and wait for its phase."""
        path = f"{self._path}/pods/{pod['metadata']['name']}"
        self.create(pod)
        wait_until(lambda: self._api.get(path)["status"]["phase"] == phase, phase, timeout_s=30)
        found: dict[str, Any] = self._api.get(path)
        return found

    def create(self, pod: dict[str, Any]) -> None:
        """Create a Pod."""
        self._api.post(f"{self._path}/pods", pod)

    def limit(self, **hard: str) -> None:
        """Set a quota and wait until it is counted."""
        body = {"metadata": {"name": "gpu"}, "spec": {"hard": hard}}
        self._api.post(f"{self._path}/resourcequotas", body)
        path = f"{self._path}/resourcequotas/gpu"
        wait_until(lambda: "hard" in self._api.get(path).get("status", {}), "quota", timeout_s=15)

    def log(self, pod: str) -> str:
        """Return what a Pod has printed."""
        return self._api.text(f"{self._path}/pods/{pod}/log")


@pytest.fixture
def namespace(control_plane: ControlPlane, lab_namespace: str) -> Namespace:
    return Namespace(control_plane, lab_namespace)


def test_node_is_ready_and_labelled_as_feature_discovery_does(node: LabNode) -> None:
    node.label()
    labels = node.read()["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/mig.capable"] == "true"
    assert node.allocatable()["nvidia.com/gpu"] == 2


def test_pod_sees_its_own_mig_device_alone(node: LabNode, namespace: Namespace) -> None:
    _cut(node, 1, "19:0,19:1,9:4")
    _wait_for(node, {"nvidia.com/gpu": 1, ONE_5GB: 2, "nvidia.com/mig-3g.20gb": 1})
    pod = namespace.run(_pod("one", "nvidia-smi -L; nvidia-smi -q -x; sleep 100", ONE_5GB))
    [status] = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    device = status["resources"][0]["resourceID"]
    wait_until(lambda: "</nvidia_smi_log>" in namespace.log("one"), "the log", timeout_s=10)
    log = namespace.log("one")
    assert status["name"] == ONE_5GB
    assert log.count("UUID: MIG-") == 1
    assert f"  MIG 1g.5gb      Device  0: (UUID: {device})" in log
    assert "<total>4864 MiB</total>" in log


def test_pod_without_a_request_sees_nothing(node: LabNode, namespace: Namespace) -> None:
    everything = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    namespace.run(_pod("none", "nvidia-smi -L; echo rc=$?", env=everything), "Succeeded")
    assert namespace.log("none") == "Failed to initialize NVML: Unknown Error\nrc=255\n"


def test_privileged_pod_sees_the_node(node: LabNode, namespace: Namespace) -> None:
    pod = _pod(
        "host",
        "chroot /host nvidia-smi -L && chroot /host nvidia-smi -i 0 -mig 1",
        securityContext={"privileged": True},
        volumeMounts=[{"name": "host", "mountPath": "/host"}],
    )
    pod["spec"] |= {
        "hostPID": True,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "affinity": {},
    }
    namespace.run(pod, "Succeeded")
    log = namespace.log("host")
    assert log.count("UUID: GPU-") == 2
    assert "MIG mode is in pending enable state for GPU 00000000:06:00.0" in log
    assert [gpu["mig_pending"] for gpu in node.gpus.read()["gpus"]] == [True, False]


def test_quota_refuses_the_second_pod(node: LabNode, namespace: Namespace) -> None:
    _cut(node, 1, "19:0,19:1")
    _wait_for(node, {"nvidia.com/gpu": 1, ONE_5GB: 2})
    namespace.limit(**{f"requests.{ONE_5GB}": "1"})
    namespace.run(_pod("first", "sleep 100", ONE_5GB))
    with pytest.raises(urllib.error.HTTPError) as refusal:
        namespace.create(_pod("second", "sleep 100", ONE_5GB))
    assert refusal.value.code == 403
    assert b"exceeded quota" in refusal.value.read()


def test_running_program_keeps_its_instance(node: LabNode, namespace: Namespace) -> None:
    _cut(node, 1, "19:0,9:4")
    _wait_for(node, {"nvidia.com/gpu": 1, ONE_5GB: 1, "nvidia.com/mig-3g.20gb": 1})
    namespace.run(_pod("busy", "exec hold-gpu", ONE_5GB))
    wait_until(lambda: "holding MIG-" in namespace.log("busy"), "a CUDA program", timeout_s=10)
    refused = node.gpus.nvidia_smi("mig", "-i", "1", "-dci", "-gi", "7")
    assert refused.returncode == 19
    assert "In use by another client" in refused.stdout
    assert node.gpus.nvidia_smi("mig", "-i", "1", "-dci", "-gi", "1").returncode == 0


def test_plugin_lists_devices_only_when_it_starts(node: LabNode) -> None:
    with node.gpus.edit() as state:
        state["gpus"].pop()
    node.label()
    assert node.allocatable()["nvidia.com/gpu"] == 2
    device_plugin.restart(node.control_plane.api, node.name)
    _wait_for(node, {"nvidia.com/gpu": 1})


def test_reboot_loses_instances_and_volatile_mig_mode(node: LabNode) -> None:
    node.gpus.install(new_state(node.name, ("h200-141gb-sxm", "a100-40gb")))
    boot_id = node.read()["status"]["nodeInfo"]["bootID"]
    _cut(node, 0, "19:0")
    _cut(node, 1, "19:0")
    _wait_for(node, {"nvidia.com/mig-1g.18gb": 1, ONE_5GB: 1})
    node.reboot()
    _wait_for(node, {"nvidia.com/gpu": 1})
    modes = {gpu["name"]: gpu["mig"] for gpu in node.gpus.read()["gpus"]}
    assert modes == {"NVIDIA H200": False, "NVIDIA A100-SXM4-40GB": True}
    assert node.read()["status"]["nodeInfo"]["bootID"] != boot_id
