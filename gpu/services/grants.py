"""What one slice of a resource amounts to: GPU memory, compute, and its part of the node."""

from dataclasses import dataclass

from gpu.models import Gpu, GpuModel, Node, Offering
from gpu.planning.profiles import InvalidProfileError, profile_from_resource_name
from gpu.planning.tables import table_from_json
from gpu.services.allocations import Grant

WHOLE_GPU_COMPUTE = 7000
"""A whole GPU of any model, in thousandths of a seventh."""

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What goes with each MiB of GPU memory on a node: millicores, MiB of RAM and of storage."""

    cpu_milli: float
    ram_mib: float
    storage_mib: float

    @classmethod
    def of(cls, node: Node, gpu_memory_mib: int) -> "NodeShare":
        """Divide a node evenly over the memory of all its GPUs."""
        total = max(1, gpu_memory_mib)
        return cls(
            node.cpu_milli / total,
            node.memory_bytes / _MIB / total,
            node.storage_bytes / _MIB / total,
        )


def share_of_node(node: Node) -> NodeShare:
    """Return what goes with each MiB of GPU memory on this node."""
    sizes = Gpu.objects.filter(node=node, is_present=True).values_list("memory_mib", flat=True)
    return NodeShare.of(node, sum(sizes))


def grant_for(
    model: GpuModel, resource_name: str, *, share: NodeShare, offering: Offering, replicas: int = 1
) -> Grant:
    """Return what one device of the resource amounts to on that model.

    Memory is what the driver really gives; what the offering fixes comes before the node's part.
    """
    profile, memory, compute = _device(model, resource_name, replicas)
    return Grant(
        model=model,
        resource_name=resource_name,
        profile=profile,
        memory_mib=memory,
        compute=compute,
        cpu_milli=offering.cpu_milli or max(100, int(share.cpu_milli * memory)),
        ram_mib=offering.memory_mib or max(128, int(share.ram_mib * memory)),
        storage_mib=offering.storage_mib or max(128, int(share.storage_mib * memory)),
    )


def _device(model: GpuModel, resource_name: str, replicas: int) -> tuple[str, int, int]:
    try:
        name = profile_from_resource_name(resource_name)
    except InvalidProfileError:
        return "", model.memory_mib // replicas, WHOLE_GPU_COMPUTE // replicas
    table = table_from_json(model.table or {})
    profile = table.profile(name)
    slices = table.compute_slices or 7
    memory = profile.memory_mib or model.memory_mib * (profile.memory_slices or 1) // (
        table.memory_slices or 8
    )
    compute = WHOLE_GPU_COMPUTE * profile.compute_slices // slices
    return profile.name, memory // replicas, compute // replicas
