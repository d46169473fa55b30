"""What a look at a node's GPUs found: the state that every plan starts from."""

from dataclasses import dataclass

from gpu.planning.placements import Placement
from gpu.planning.resources import GpuSetup
from gpu.planning.tables import GpuTable


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """A GPU instance as the driver lists it.

    `ci_ids` are its compute instances; `mig_uuid` is the MIG device of the one that fills it, or
    empty while there is none.
    """

    gi_id: int
    profile: str
    profile_id: int
    placement: Placement
    ci_ids: tuple[int, ...] = ()
    mig_uuid: str = ""


@dataclass(frozen=True, slots=True)
class ObservedGpu:
    """A GPU as its driver shows it; memory in MiB.

    `is_mig_pending` is the mode that a reset would bring; `table` is the driver's own, if it gave
    one.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    driver_version: str
    is_mig_enabled: bool
    is_mig_pending: bool
    instances: tuple[ObservedInstance, ...] = ()
    table: GpuTable | None = None

    @property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """Return profile and start of each instance, by start."""
        pairs = [(item.profile, item.placement.start) for item in self.instances]
        return tuple(sorted(pairs, key=lambda pair: pair[1]))

    def setup(self, *, replicas: int = 1) -> GpuSetup:
        """Return what the GPU offers when each of its resources is advertised `replicas` times."""
        names = tuple(f"nvidia.com/mig-{item.profile}".replace("+", ".") for item in self.instances)
        return GpuSetup(self.is_mig_enabled, names, replicas)


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """All GPUs of a node, by index."""

    gpus: tuple[ObservedGpu, ...]

    def gpu(self, uuid: str) -> ObservedGpu | None:
        """Return the GPU with that UUID, or None when the node does not have it any more."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)
