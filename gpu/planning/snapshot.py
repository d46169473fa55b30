"""The picture of a cluster on which fitting decides: nodes, their GPUs, who has a right to what."""

from dataclasses import dataclass
from enum import StrEnum

from gpu.planning.geometry import Instance, Layout, layout_of
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.tables import GpuTable


class GpuMode(StrEnum):
    """How a GPU is given away now."""

    WHOLE = "whole"
    MIG = "mig"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Beside:
    """What goes with a slice or is on a node beside its GPUs: millicores, and twice MiB."""

    cpu_milli: int
    ram_mib: int
    storage_mib: int

    def holds(self, other: "Beside") -> bool:
        """Return whether none of `other` is more than this."""
        return (
            other.cpu_milli <= self.cpu_milli
            and other.ram_mib <= self.ram_mib
            and other.storage_mib <= self.storage_mib
        )

    def less(self, other: "Beside") -> "Beside":
        """Return what is left when `other` is taken away; below zero where it is too much."""
        return Beside(
            self.cpu_milli - other.cpu_milli,
            self.ram_mib - other.ram_mib,
            self.storage_mib - other.storage_mib,
        )

    def more(self, other: "Beside") -> "Beside":
        """Return the sum of both."""
        return Beside(
            self.cpu_milli + other.cpu_milli,
            self.ram_mib + other.ram_mib,
            self.storage_mib + other.storage_mib,
        )

    def part(self, share: int, whole: int) -> "Beside":
        """Return `share` of `whole` parts of this, floored."""
        return Beside(
            self.cpu_milli * share // whole,
            self.ram_mib * share // whole,
            self.storage_mib * share // whole,
        )

    def least(self, other: "Beside") -> "Beside":
        """Return the lesser of the two in each amount."""
        return Beside(
            min(self.cpu_milli, other.cpu_milli),
            min(self.ram_mib, other.ram_mib),
            min(self.storage_mib, other.storage_mib),
        )


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """A GPU instance: `holder` names who uses it, `is_granted` says that a right stands on it."""

    instance: Instance
    holder: str | None = None
    is_granted: bool = False

    @property
    def is_free(self) -> bool:
        """Return whether nobody uses it and nobody has a right to it."""
        return self.holder is None and not self.is_granted


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """A GPU; `table` is ``None`` on one that cannot do MIG, memory is in MiB.

    `instances` are those of a GPU with MIG on. Any other is advertised `replicas` times as
    `resource_name`; `granted` of these are used or promised, and `holders` name who uses them.
    `is_changing` says that an operation is at it or waits for it; `is_recut_whole` that any change
    destroys all of its instances, so that none may happen while one of them is used.
    """

    uuid: str
    index: int
    product: str
    memory_mib: int
    table: GpuTable | None
    mode: GpuMode
    instances: tuple[InstanceSnapshot, ...] = ()
    resource_name: str = WHOLE_GPU
    replicas: int = 1
    granted: int = 0
    holders: tuple[str, ...] = ()
    is_in_service: bool = True
    is_changing: bool = False
    is_recut_whole: bool = False

    @property
    def layout(self) -> Layout:
        """Return the layout of all its instances."""
        return layout_of(item.instance for item in self.instances)

    @property
    def free(self) -> Layout:
        """Return the instances that nobody uses or has a right to."""
        return layout_of(item.instance for item in self.instances if item.is_free)

    @property
    def in_use(self) -> Layout:
        """Return the instances that somebody uses or has a right to."""
        return layout_of(item.instance for item in self.instances if not item.is_free)

    @property
    def is_idle(self) -> bool:
        """Return whether nobody uses any of it or has a right to it."""
        return not (self.granted or self.holders or self.in_use)

    @property
    def free_replicas(self) -> int:
        """Return how many of its replicas nobody uses; of a GPU with MIG on, none."""
        if self.mode is GpuMode.MIG:
            return 0
        return max(0, self.replicas - max(self.granted, len(self.holders)))


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node; `total` is what its slices share beside the GPUs, `left` what is not granted yet.

    `total` is the allocatable less what Pods of the system ask for. ``None`` is unknown, and then
    limits nothing.
    """

    name: str
    gpus: tuple[GpuSnapshot, ...]
    is_schedulable: bool = True
    is_ready: bool = True
    total: Beside | None = None
    left: Beside | None = None

    @property
    def gpu_memory_mib(self) -> int:
        """Return the memory of all its GPUs."""
        return sum(gpu.memory_mib for gpu in self.gpus)

    def part_of(self, memory_mib: int) -> Beside | None:
        """Return what goes with GPU memory by default: its part of what the node's slices share."""
        if self.total is None or not self.gpu_memory_mib:
            return None
        return self.total.part(memory_mib, self.gpu_memory_mib)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All nodes with GPUs."""

    nodes: tuple[NodeSnapshot, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """Return the GPU products there are, by name."""
        return tuple(sorted({gpu.product for node in self.nodes for gpu in node.gpus}))
