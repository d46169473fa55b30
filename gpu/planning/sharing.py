"""Sharing arithmetic: what a share or an instance is in the one unit of all quotas.

Compute counts in sevenths of a GPU, a whole GPU of any model being seven; exact here, and floored
to thousandths of a seventh for storing. Memory is in MiB, as the driver reports it.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from gpu.planning.errors import PlanningError
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.tables import GpuTable

WHOLE_COMPUTE = 7
MIN_REPLICAS = 2
MAX_MPS_CLIENTS = 48  # what the device plugin allows on GPUs newer than Volta; 16 on older ones
MAX_MPS_CLIENTS_OLD = 16
_MIG_RESOURCE = "nvidia.com/mig-"


class InvalidSharingError(PlanningError):
    """A GPU cannot be shared like that."""


class UnknownMemoryError(PlanningError):
    """Nobody has published how much memory an instance of the profile holds."""


class SharingStrategy(StrEnum):
    """How the device plugin advertises a resource."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Units:
    """An amount in quota units: MiB of GPU memory, and sevenths of a GPU's compute."""

    memory_mib: int
    compute: Fraction

    @property
    def millisevenths(self) -> int:
        """Return the compute in whole thousandths of a seventh, never more than it is."""
        return int(self.compute * 1000)


def whole_units(memory_mib: int) -> Units:
    """Return what a whole GPU counts: all its memory, and seven sevenths on any model."""
    return Units(memory_mib, Fraction(WHOLE_COMPUTE))


def share_units(whole: Units, replicas: int) -> Units:
    """Return what one of `replicas` shares counts: that part of the memory and of the compute."""
    if replicas < 1:
        message = f"There is no share among {replicas}; replicas are 1 or more."
        raise InvalidSharingError(message)
    return Units(whole.memory_mib // replicas, whole.compute / replicas)


def instance_units(table: GpuTable, profile: str) -> Units:
    """Return what a GPU instance counts: its real memory, its part of seven sevenths.

    An A30's 1g is 7/4, for its GPU has four compute slices. Raises `UnknownMemoryError` when the
    table does not tell the memory, and what `GpuTable.profile` raises.
    """
    found = table.profile(profile)
    if found.memory_mib is None:
        message = (
            f"Nobody has published the memory of {found.name} on {table.marketing}; it is known"
            " once the table is read from a node."
        )
        raise UnknownMemoryError(message)
    parts = table.compute_slices or WHOLE_COMPUTE
    return Units(found.memory_mib, Fraction(WHOLE_COMPUTE * found.compute_slices, parts))


def check_sharing(
    strategy: SharingStrategy,
    replicas: int,
    *,
    resource: str = WHOLE_GPU,
    most_clients: int = MAX_MPS_CLIENTS,
) -> None:
    """Raise `InvalidSharingError` if the device plugin would refuse to share the resource so."""
    if strategy is SharingStrategy.NONE:
        if replicas != 1:
            message = f"A GPU that is not shared has one replica, not {replicas}."
            raise InvalidSharingError(message)
        return
    if replicas < MIN_REPLICAS:
        message = f"Sharing needs 2 replicas or more, not {replicas}; for one, do not share."
        raise InvalidSharingError(message)
    is_mig = resource.startswith(_MIG_RESOURCE)
    if resource != WHOLE_GPU and not is_mig:
        message = f"{resource} cannot be shared: only {WHOLE_GPU} and MIG resources can."
        raise InvalidSharingError(message)
    if strategy is SharingStrategy.MPS:
        if is_mig:
            message = f"MPS shares whole GPUs only, not {resource}; time-slicing shares it."
            raise InvalidSharingError(message)
        if replicas > most_clients:
            message = f"MPS serves {most_clients} clients at most on this GPU, not {replicas}."
            raise InvalidSharingError(message)


def most_replicas(memory_mib: int, at_least_mib: int) -> int | None:
    """Return into how many shares of at least that memory a GPU can be cut; ``None`` if not 2."""
    replicas = memory_mib // max(at_least_mib, 1)
    return replicas if replicas >= MIN_REPLICAS else None


def mps_thread_percentage(replicas: int) -> int:
    """Return the percentage of threads that the device plugin gives each MPS client."""
    return 100 // replicas
