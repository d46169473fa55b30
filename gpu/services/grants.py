"""What one slice of a resource amounts to: GPU memory, compute, and its part of the node."""

from dataclasses import dataclass

from gpu.models import Gpu, GpuModel, Node, Offering
from gpu.planning.profiles import InvalidProfileError, profile_from_resource_name
from gpu.planning.sharing import Units, instance_units, share_units, whole_units
from gpu.planning.tables import table_from_json
from gpu.services.allocations import Grant

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
    profile, units = _device(model, resource_name, replicas)
    memory = units.memory_mib
    return Grant(
        model=model,
        resource_name=resource_name,
        profile=profile,
        memory_mib=memory,
        compute=units.millisevenths,
        cpu_milli=offering.cpu_milli or max(100, int(share.cpu_milli * memory)),
        ram_mib=offering.memory_mib or max(128, int(share.ram_mib * memory)),
        storage_mib=offering.storage_mib or int(share.storage_mib * memory),
    )


def _device(model: GpuModel, resource_name: str, replicas: int) -> tuple[str, Units]:
    try:
        profile = profile_from_resource_name(resource_name)
    except InvalidProfileError:
        return "", share_units(whole_units(model.memory_mib), replicas)
    units = instance_units(table_from_json(model.table or {}), profile)
    return profile, share_units(units, replicas)
