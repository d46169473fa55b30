"""A lab node: a real kubelet with containerd, our GPU state and stand-ins for NVIDIA's programs."""

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any, Self

from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpus import Gpus, feature_labels, new_state
from tests.cluster.images import DEVICE_PLUGIN, GPU_TOOLS, PAUSE, write_image
from tests.cluster.packages import cni_folder
from tests.cluster.processes import (
    ClusterStartError,
    free_ports,
    remove_cgroups,
    start,
    stop,
    wait_until,
)

# One model a node, as in the field: GPU Feature Discovery labels a node with one product alone.
DEFAULT_MODELS = ("a100-40gb", "a100-40gb")
_SCRIPT = Path(__file__).with_name("node.sh")
_READY_TIMEOUT_S = 60


class LabNode:
    """One node named `node-NUMBER`; stopping and starting it again is a reboot."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        number: int = 1,
        models: tuple[str, ...] = DEFAULT_MODELS,
        tells_devices: bool = True,
    ) -> None:
        """`tells_devices` false: a kubelet as before Kubernetes 1.36, which names no device ids."""
        self.name = f"node-{number}"
        self.control_plane = control_plane
        self.directory = control_plane.directory / self.name
        self.gpus = Gpus(
            self.directory / "lib/kubelet/gpus", control_plane.programs.standins / "nvidia-smi"
        )
        self._number = number
        self._models = models
        self._tells_devices = tells_devices
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the node and wait until it is Ready, labelled as GPU Feature Discovery would."""
        self._prepare()
        command: list[str | Path] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["--mount-proc", "--propagation", "private", "sh", _SCRIPT, self.directory]
        command += [self.control_plane.programs.control_plane, self.name, *self._images()]
        self._process = start(command, log=self.directory / "node.log")
        wait_until(self._is_up, f"{self.name} Ready", timeout_s=_READY_TIMEOUT_S)
        self.label()

    def stop(self) -> None:
        """Cut the power: kubelet and containers end at once."""
        if self._process is not None:
            stop(self._process, kill=True)
            self._process = None
            remove_cgroups(self.directory)

    def reboot(self) -> None:
        """Stop the node, do to the GPUs what a reboot does, start it with a new boot ID."""
        self.stop()
        self.gpus.reboot()
        self.start()

    def label(self) -> None:
        """Write the labels that fit the GPU state now; GPU Feature Discovery takes up to 60 s."""
        wanted = feature_labels(self.gpus.read())
        present = self.read()["metadata"].get("labels", {})
        gone = {key: None for key in present if key.startswith("nvidia.com/") and key not in wanted}
        self.control_plane.api.merge(self._path, {"metadata": {"labels": {**gone, **wanted}}})

    def read(self) -> dict[str, Any]:
        """Return the Node object."""
        node: dict[str, Any] = self.control_plane.api.get(self._path)
        return node

    def allocatable(self) -> dict[str, int]:
        """Return the node's `nvidia.com/*` counts in allocatable."""
        quantities = self.read()["status"].get("allocatable", {})
        return {k: int(v) for k, v in quantities.items() if k.startswith("nvidia.com/")}

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def _is_up(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            msg = f"{self.name} stopped; its logs are in {self.directory}"
            raise ClusterStartError(msg)
        nodes = self.control_plane.api.get("/api/v1/nodes")["items"]
        boot_id = (self.directory / "boot_id").read_text().strip()
        return any(_is_ready(node, self.name, boot_id) for node in nodes)

    def _prepare(self) -> None:
        directory = self.directory
        for volatile in ("run", "sbin"):
            shutil.rmtree(directory / volatile, ignore_errors=True)
        for folder in ("lib/kubelet/device-plugins", "log", "run/netns", "sbin", "cni"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.control_plane.programs.standins / "nvidia-smi", directory / "sbin")
        (directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (directory / "kubeconfig").write_text(self.control_plane.kubeconfig.read_text())
        (directory / "containerd.toml").write_text(self._containerd_settings())
        (directory / "kubelet.json").write_text(json.dumps(self._kubelet_settings()))
        (directory / "cni/10-pods.conflist").write_text(json.dumps(self._network()))
        if not (self.gpus.directory / "state.json").exists():
            self.gpus.install(new_state(self.name, self._models))

    def _images(self) -> list[Path]:
        standins, target = self.control_plane.programs.standins, self.directory
        tools = [standins / "nvidia-smi", standins / "hold-gpu"]
        return [
            write_image(target / "pause.tar", PAUSE, command=("sleep", "1000000000")),
            write_image(target / "gpu-tools.tar", GPU_TOOLS, programs=tools),
            write_image(
                target / "device-plugin.tar",
                DEVICE_PLUGIN,
                programs=[standins / "device-plugin"],
                command=("device-plugin",),
            ),
        ]

    def _network(self) -> dict[str, Any]:
        # Pairs of virtual cards and no bridge: they vanish with the node's network namespaces.
        subnet = f"10.{64 + self.control_plane.port % 128}.{self._number}.0/24"
        ipam = {"type": "host-local", "dataDir": str(self.directory / "lib/ipam")}
        ipam_ranges: dict[str, Any] = {**ipam, "ranges": [[{"subnet": subnet}]]}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": ipam_ranges}
        return {"cniVersion": "0.3.1", "name": "lab", "plugins": [plugin]}

    def _containerd_settings(self) -> str:
        # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc dies silently on a lowered score.
        overlay = not _is_overlay(self.directory)
        return f"""version = 2
root = "{self.directory}/containerd"
state = "{self.directory}/run/containerd"
[grpc]
address = "{self.directory}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_folder()}"
conf_dir = "{self.directory}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{"overlayfs" if overlay else "native"}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""

    def _kubelet_settings(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": free_ports(1)[0],
            "healthzPort": 0,
            # Loopback only, tests only.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "featureGates": {
                "ResourceHealthStatus": self._tells_devices,
                "ResourceHealthStatusMessage": self._tells_devices,
            },
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "5s",
            "containerRuntimeEndpoint": f"unix://{self.directory}/run/containerd.sock",
        }


def _is_ready(node: dict[str, Any], name: str, boot_id: str) -> bool:
    status = node.get("status", {})
    return (
        node["metadata"]["name"] == name
        and status.get("nodeInfo", {}).get("bootID") == boot_id
        and any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
    )


def _is_overlay(directory: Path) -> bool:
    """Say whether the folder lies on an overlay file system, on which no second one can be laid."""
    best = ("", "")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        inside = str(directory.resolve()).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1] == "overlay" or os.environ.get("CONTAINERD_SNAPSHOTTER") == "native"
