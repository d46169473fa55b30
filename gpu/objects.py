"""Typed readings of Kubernetes objects: pure functions from manifests to frozen values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu.planning.owners import owner_of
from gpu.ports import Manifest

GPU_PREFIX = "nvidia.com/"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_FINAL_PHASES = frozenset({"Succeeded", "Failed"})
_FACTORS = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}


def parse_bytes(text: str | int) -> int:
    """Return a memory or storage quantity in bytes (`16Gi`, `500M`, `1024`, `128974848000m`)."""
    value = str(text)
    if value.isdecimal():
        return int(value)
    for suffix, factor in _FACTORS.items():
        if value.endswith(suffix):
            return int(float(value.removesuffix(suffix)) * factor)
    if value.endswith("m"):
        return int(value[:-1]) // 1000
    return int(float(value))


def parse_milli_cpu(text: str | int) -> int:
    """Return a CPU quantity in thousandths of a core (`2`, `1500m`, `0.5`)."""
    value = str(text)
    return int(value[:-1]) if value.endswith("m") else round(float(value) * 1000)


def parse_time(text: str | None) -> datetime | None:
    """Return an RFC 3339 time stamp with its zone, or None for a missing one."""
    return datetime.fromisoformat(text) if text else None


def gpu_resources(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the `nvidia.com/*` counts of a capacity, allocatable or limits mapping."""
    return {
        key: parse_bytes(value)  # a plain number, but the API server writes 1000 as 1k
        for key, value in sorted((quantities or {}).items())
        if key.startswith(GPU_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node as the API server shows it; memory and storage in bytes, CPU in millicores."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    is_schedulable: bool
    is_ready: bool
    boot_id: str
    kubelet_version: str
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    cpu_milli: int
    memory_bytes: int
    storage_bytes: int
    taints: tuple[Mapping[str, str], ...] = ()
    """Each with `key`, `value` and `effect`, in the node's order."""
    gpu_owner: str = ""
    """Who else divides its GPUs; empty when nobody is seen to."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "NodeObject":
        """Read a Node."""
        meta, status = manifest["metadata"], manifest.get("status", {})
        allocatable = status.get("allocatable") or {}
        conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
        info = status.get("nodeInfo") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            is_schedulable=not manifest.get("spec", {}).get("unschedulable", False),
            is_ready=conditions.get("Ready") == "True",
            boot_id=info.get("bootID", ""),
            kubelet_version=info.get("kubeletVersion", ""),
            capacity=gpu_resources(status.get("capacity")),
            allocatable=gpu_resources(allocatable),
            cpu_milli=parse_milli_cpu(allocatable.get("cpu", 0)),
            memory_bytes=parse_bytes(allocatable.get("memory", 0)),
            storage_bytes=parse_bytes(allocatable.get("ephemeral-storage", 0)),
            taints=tuple(_taint(taint) for taint in manifest.get("spec", {}).get("taints") or ()),
            gpu_owner=owner_of(
                meta.get("labels") or {},
                meta.get("annotations") or {},
                status.get("capacity") or {},
            ),
        )


def _taint(taint: Manifest) -> dict[str, str]:
    return {key: str(taint.get(key) or "") for key in ("key", "value", "effect")}


def asks_for_gpu(manifest: Manifest) -> bool:
    """Say whether a Pod asks for a GPU resource; cheap, for most Pods of a cluster do not."""
    spec = manifest.get("spec") or {}
    return any(
        key.startswith(GPU_PREFIX)
        for part in ("containers", "initContainers")
        for container in spec.get(part) or ()
        for key in (container.get("resources") or {}).get("limits") or ()
    )


@dataclass(frozen=True, slots=True)
class PodObject:
    """A Pod as the API server shows it.

    `devices` maps a resource name to the device ids that its containers hold
    (`status.containerStatuses[].allocatedResourcesStatus`); None where the cluster does not tell.
    """

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node: str
    phase: str
    is_ready: bool
    is_deleting: bool
    owner_kind: str
    owner_name: str
    resources: Mapping[str, int]
    devices: Mapping[str, tuple[str, ...]] | None
    has_local_data: bool
    created_at: datetime | None
    message: str
    restart_count: int

    @property
    def is_finished(self) -> bool:
        """Say whether the Pod has ended and holds no device any more."""
        return self.phase in _FINAL_PHASES

    @property
    def key(self) -> str:
        """Return `namespace/name`, as people write it."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "PodObject":
        """Read a Pod."""
        meta, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status", {})
        owner: Manifest = next(
            (o for o in meta.get("ownerReferences") or () if o.get("controller")), {}
        )
        conditions = status.get("conditions") or ()
        containers = [
            *(status.get("containerStatuses") or ()),
            *(status.get("initContainerStatuses") or ()),
        ]
        return cls(
            name=meta["name"],
            namespace=meta.get("namespace", "default"),
            uid=meta.get("uid", ""),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            node=spec.get("nodeName", ""),
            phase=status.get("phase", "Pending"),
            is_ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
            is_deleting="deletionTimestamp" in meta,
            owner_kind=owner.get("kind", ""),
            owner_name=owner.get("name", ""),
            resources=_requested(spec),
            devices=_devices(containers),
            has_local_data=any("emptyDir" in volume for volume in spec.get("volumes") or ()),
            created_at=parse_time(meta.get("creationTimestamp")),
            message=_message(status),
            restart_count=sum(c.get("restartCount", 0) for c in containers),
        )


def _requested(spec: Manifest) -> dict[str, int]:
    """Return what a Pod holds: all that run side by side, or more for a step before them."""
    total: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            total.update(_limits(container))
        else:
            most |= total + Counter(_limits(container))
    for container in spec.get("containers") or ():
        total.update(_limits(container))
    return dict(total | most)


def _limits(container: Manifest) -> dict[str, int]:
    return gpu_resources((container.get("resources") or {}).get("limits"))


def _devices(containers: Any) -> dict[str, tuple[str, ...]] | None:  # noqa: ANN401  # JSON edge
    found: dict[str, tuple[str, ...]] | None = None
    for container in containers:
        for entry in container.get("allocatedResourcesStatus") or ():
            if not entry["name"].startswith(GPU_PREFIX):
                continue
            found = found or {}
            ids = tuple(resource["resourceID"] for resource in entry.get("resources") or ())
            found[entry["name"]] = found.get(entry["name"], ()) + ids
    return found


def _message(status: Manifest) -> str:
    for container in status.get("containerStatuses") or ():
        for state in container.get("state", {}).values():
            if state.get("message") or state.get("reason"):
                return str(state.get("message") or state["reason"])
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])
    return str(status.get("message") or status.get("reason") or "")


@dataclass(frozen=True, slots=True)
class JobObject:
    """A Job: whether it has ended, how, and what it says of itself."""

    name: str
    namespace: str
    uid: str
    is_complete: bool
    is_failed: bool
    message: str

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "JobObject":
        """Read a Job."""
        meta, status = manifest["metadata"], manifest.get("status", {})
        conditions = {
            c["type"]: c.get("message") or c.get("reason") or ""
            for c in status.get("conditions") or ()
            if c["status"] == "True"
        }
        return cls(
            name=meta["name"],
            namespace=meta.get("namespace", "default"),
            uid=meta.get("uid", ""),
            is_complete="Complete" in conditions,
            is_failed="Failed" in conditions,
            message=conditions.get("Failed", ""),
        )
