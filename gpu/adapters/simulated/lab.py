"""The lab that the demo shows: eight nodes with 44 GPUs, and tenants' Pods that run on them."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpu.adapters.simulated import plugin
from gpu.adapters.simulated.cluster import SimulatedCluster
from gpu.adapters.simulated.tenants import TENANT_PODS, TenantPod, budget, pod_body
from gpu.adapters.simulated.world import stamp
from gpu.adapters.smi.hardware import Json, create_compute, create_instance
from gpu.planning.catalogue import find_table, gpu_memory_mib
from gpu.planning.driver_tables import read_tables
from gpu.planning.tables import GpuTable
from gpu.ports import NODE

DRIVER_VERSION = "580.159.04"
CUDA_VERSION = "13.0"
PLUGIN_NAMESPACE = "nvidia-device-plugin"
PLUGIN_LABELS = {"app.kubernetes.io/name": "nvidia-device-plugin"}

type Cut = tuple[str, int]
"""A profile's compute slices and attribute-free family name, such as `3g`, and its start."""


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node to install: its GPUs' model, and the layout of each; None is MIG off."""

    name: str
    gpu: str
    layouts: tuple[tuple[Cut, ...] | None, ...]
    cores: int
    memory_gib: int
    replicas: int = 1


_BALANCED: tuple[Cut, ...] = (("1g", 0), ("1g", 1), ("2g", 2), ("3g", 4))
_SEVEN: tuple[Cut, ...] = tuple(("1g", start) for start in range(7))
_HALVES: tuple[Cut, ...] = (("4g", 0), ("3g", 4))
_FRAGMENTED: tuple[Cut, ...] = (("1g", 1), ("2g", 4))

NODES = (
    LabNode(
        "gpu-a100-01",
        "NVIDIA A100-SXM4-40GB",
        (_BALANCED, _BALANCED, _SEVEN, _HALVES, _FRAGMENTED, (), None, None),
        128,
        1024,
    ),
    LabNode(
        "gpu-a100-02",
        "NVIDIA A100-SXM4-40GB",
        (_SEVEN, _BALANCED, _FRAGMENTED, None, None, None, None, None),
        128,
        1024,
    ),
    LabNode(
        "gpu-a100-03",
        "NVIDIA A100-SXM4-80GB",
        (_BALANCED, _HALVES, (), None),
        96,
        1024,
    ),
    LabNode(
        "gpu-h100-01",
        "NVIDIA H100 80GB HBM3",
        (_BALANCED, _SEVEN, _HALVES, (), None, None, None, None),
        192,
        2048,
    ),
    LabNode("gpu-h200-01", "NVIDIA H200", (_BALANCED, (), None, None), 192, 2048),
    LabNode(
        "gpu-a30-01",
        "NVIDIA A30",
        ((("1g", 0), ("1g", 1), ("2g", 2)), (("2g", 0), ("2g", 2)), (), None),
        64,
        512,
    ),
    LabNode("gpu-l40s-01", "NVIDIA L40S", (None,) * 4, 96, 768, replicas=4),
    LabNode(
        "gpu-rtx-01",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ((("1g", 0), ("1g", 3), ("2g", 6)), (), None, None),
        96,
        768,
    ),
)


def build_lab(cluster: SimulatedCluster) -> bool:
    """Install the lab unless it is there already; return whether it was installed."""
    with cluster.store.transaction() as tx:
        if tx.fact("lab"):
            return False
        for node in NODES:
            cluster.files.install(node.name, _hardware(node))
            tx.put(_node_body(node, cluster.clock()))
        for body in _infrastructure(cluster.clock()):
            tx.put(body)
        tx.set_fact("due", 0)
    pace, cluster.pace = cluster.pace, 0.0
    cluster.list(NODE)
    now = cluster.clock()
    with cluster.store.transaction() as tx:
        for pod in TENANT_PODS:
            tx.put(pod_body(pod, now, _resource_of(pod)))
        tx.put(budget(now))
        tx.set_fact("lab", "built")
        tx.set_fact("due", 0)
    cluster.list(NODE)
    cluster.pace = pace
    return True


def _resource_of(pod: TenantPod) -> str:
    node = next(node for node in NODES if node.name == pod.node)
    if not pod.family:
        return plugin.WHOLE
    name = _profile_name(_table(node.gpu), pod.family)
    return f"nvidia.com/mig-{name}"


def _hardware(node: LabNode) -> Json:
    gpus = [_gpu(node, index) for index in range(len(node.layouts))]
    return {"driver_version": DRIVER_VERSION, "cuda_version": CUDA_VERSION, "gpus": gpus}


def _gpu(node: LabNode, index: int) -> Json:
    table = _table(node.gpu)
    layout = node.layouts[index]
    name = uuid.uuid5(uuid.NAMESPACE_DNS, f"{index}.{node.name}.lab.slicedesk.test")
    gpu: Json = {
        "uuid": f"GPU-{name}",
        "name": node.gpu,
        "bus_id": f"00000000:{index + 6:02X}:00.0",
        "device_id": "0x000010DE",
        "compute_capability": _CAPABILITIES[node.gpu],
        "family": _FAMILIES[node.gpu],
        "memory_mib": _memory(node.gpu, table),
        "memory_slices": table.memory_slices if table else 0,
        "mode_needs_reset": bool(table and table.mode_change_needs_reset),
        "mode_survives_reboot": bool(table and table.mode_survives_reboot),
        "engines": _engines(table),
        "profiles": list(_profiles(table)),
        "mig": layout is not None,
        "mig_pending": layout is not None,
        "instances": [],
    }
    for family, start in layout or ():
        wanted = _profile_name(table, family)
        profile = next(p for p in gpu["profiles"] if p["name"] == wanted)
        instance = create_instance(gpu, profile, start)
        if isinstance(instance, int):
            msg = f"{wanted} does not fit at {start} of GPU {index} of {node.name}"
            raise ValueError(msg)  # noqa: TRY004  # an int is a refusal's code
        create_compute(gpu, instance)
    return gpu


_CAPABILITIES = {
    "NVIDIA A100-SXM4-40GB": "8.0",
    "NVIDIA A100-SXM4-80GB": "8.0",
    "NVIDIA A30": "8.0",
    "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA H200": "9.0",
    "NVIDIA L40S": "8.9",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "12.0",
}
_FAMILIES = {
    "NVIDIA A100-SXM4-40GB": "ampere",
    "NVIDIA A100-SXM4-80GB": "ampere",
    "NVIDIA A30": "ampere",
    "NVIDIA H100 80GB HBM3": "hopper",
    "NVIDIA H200": "hopper",
    "NVIDIA L40S": "ada-lovelace",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "blackwell",
}


def _table(gpu: str) -> GpuTable | None:
    if gpu == "NVIDIA L40S":
        return None
    if gpu == "NVIDIA H200":
        return _h200_table()
    return find_table(gpu)


def _h200_table() -> GpuTable:
    """Return the table that a real H200's driver printed."""
    folder = resources.files("gpu.adapters.simulated")
    text = (folder / "h200_smi_mig.txt").read_text(encoding="utf-8")
    printed = read_tables(f"GPU 0: NVIDIA H200 (UUID: GPU-0)\n{text}")
    return printed[0]


def _memory(gpu: str, table: GpuTable | None) -> int:
    if gpu == "NVIDIA H200":
        return 143771
    return (table.memory_mib if table else gpu_memory_mib(gpu)) or 0


def _profile_name(table: GpuTable | None, family: str) -> str:
    """Return the plain profile of that many compute slices with the least memory."""
    profiles = [
        profile
        for profile in (table.profiles if table else ())
        if profile.name.startswith(f"{family}.") and not profile.attribute
    ]
    return min(profiles, key=lambda profile: profile.memory_slices or 0).name


def _profiles(table: GpuTable | None) -> Iterator[Json]:
    for profile in table.profiles if table else ():
        engines = profile.engines
        yield {
            "name": profile.name,
            "id": profile.gi_profile_id,
            "compute_slices": profile.compute_slices,
            "memory_slices": profile.memory_slices,
            "memory_mib": profile.memory_mib or 0,
            "max_instances": profile.max_instances,
            "starts": [place.start for place in profile.placements],
            "sm": profile.multiprocessors or 0,
            "ce": engines.copy or 0,
            "dec": engines.nvdec or 0,
            "enc": engines.nvenc or 0,
            "jpeg": engines.jpeg or 0,
            "ofa": engines.ofa or 0,
        }


def _engines(table: GpuTable | None) -> dict[str, int]:
    profiles = list(_profiles(table))
    return {
        engine: max((profile[engine] for profile in profiles), default=0)
        for engine in ("dec", "enc", "jpeg", "ofa")
    }


def _node_body(node: LabNode, now: float) -> dict[str, Any]:
    amounts = {
        "cpu": str(node.cores),
        "memory": f"{node.memory_gib}Gi",
        "ephemeral-storage": f"{node.memory_gib * 4}Gi",
        "pods": "110",
    }
    name = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node.name}.lab.slicedesk.test")
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        **plugin.feature_labels(_hardware(node), node.replicas),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "uid": str(name),
            "labels": labels,
            "creationTimestamp": stamp(now - 40 * 86400),
        },
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"bootID": str(name)[::-1], "kubeletVersion": "v1.37.2"},
        },
        "simulated": {"replicas": node.replicas},
    }


def _infrastructure(now: float) -> Iterator[dict[str, Any]]:
    names = ("default", PLUGIN_NAMESPACE, *sorted({pod.namespace for pod in TENANT_PODS}))
    for name in names:
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "creationTimestamp": stamp(now - 40 * 86400)},
        }
    container = {"name": "main", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}
    template = {"metadata": {"labels": PLUGIN_LABELS}, "spec": {"containers": [container]}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-device-plugin",
            "namespace": PLUGIN_NAMESPACE,
            "creationTimestamp": stamp(now - 40 * 86400),
        },
        "spec": {"selector": {"matchLabels": PLUGIN_LABELS}, "template": template},
        "status": {},
    }
