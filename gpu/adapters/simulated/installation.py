"""What stands in the lab's nodes: GPUs with tables, layouts and labels, as their drivers tell."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpu.adapters.simulated import config_manager, plugin
from gpu.adapters.simulated.world import stamp
from gpu.adapters.smi.hardware import Json, create_compute, create_instance
from gpu.planning.catalogue import find_table, gpu_memory_mib
from gpu.planning.driver_tables import read_tables
from gpu.planning.tables import GpuTable

DRIVER_VERSION = "580.159.04"
CUDA_VERSION = "13.0"
KUBELET_VERSION = "v1.37.2"
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
AGE_S = 40 * 86400.0
_RESERVED_GIB = 2

type Cut = tuple[str, int]
"""A profile's compute slices and attribute-free family name, such as `3g`, and its start."""


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node to install: its GPUs' model, and the layout of each; None is MIG off.

    `config` names its entry of the device plugin's ConfigMap; without one it has the default.
    """

    name: str
    gpu: str
    layouts: tuple[tuple[Cut, ...] | None, ...]
    cores: int
    memory_gib: int
    config: str = ""


def resource_of(node: LabNode, family: str) -> str:
    """Return the resource name of a MIG family such as `3g` on a node; none is the whole GPU."""
    if not family:
        return plugin.WHOLE
    return f"nvidia.com/mig-{_profile_name(_table(node.gpu), family)}"


def hardware_of(node: LabNode) -> Json:
    """Return the state of a node's GPUs, with UUIDs that are the same in every lab."""
    gpus = [_gpu(node, index) for index in range(len(node.layouts))]
    return {"driver_version": DRIVER_VERSION, "cuda_version": CUDA_VERSION, "gpus": gpus}


def node_body(node: LabNode, now: float) -> dict[str, Any]:
    """Return the Node as it is before its device plugin has reported."""
    amounts = {
        "cpu": str(node.cores),
        "memory": f"{node.memory_gib}Gi",
        "ephemeral-storage": f"{node.memory_gib * 4}Gi",
        "pods": "110",
    }
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        PCI_LABEL: "true",
        **plugin.feature_labels(hardware_of(node)),
    }
    if node.config:
        labels[config_manager.LABEL] = node.config
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "uid": _uuid(node.name),
            "labels": labels,
            "creationTimestamp": stamp(now - AGE_S),
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": {**amounts, "memory": f"{node.memory_gib - _RESERVED_GIB}Gi"},
            "conditions": _conditions(stamp(now - AGE_S)),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": _uuid(f"boot.{node.name}"),
                "containerRuntimeVersion": "containerd://2.2.1",
                "kubeletVersion": KUBELET_VERSION,
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.4 LTS",
            },
        },
    }


def _conditions(at: str) -> list[dict[str, str]]:
    healthy = [
        {"type": f"{what}Pressure", "status": "False", "lastTransitionTime": at}
        for what in ("Memory", "Disk", "PID")
    ]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": at}
    return [*healthy, ready]


def _uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.lab.slicedesk.test"))


def _gpu(node: LabNode, index: int) -> Json:
    table = _table(node.gpu)
    layout = node.layouts[index]
    gpu: Json = {
        "uuid": f"GPU-{_uuid(f'{index}.{node.name}')}",
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
