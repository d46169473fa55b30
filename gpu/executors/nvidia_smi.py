"""The executor for clusters with the plain device plugin: from a wanted layout to a script."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from gpu.executors.scripts import CreateLine, DestroyLine, Line, MigModeLine
from gpu.planning.observed import ObservedGpu, ObservedInstance
from gpu.planning.tables import GpuTable


class UnreachableLayoutError(ValueError):
    """The wanted layout cannot be cut on this GPU; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """The layout that a GPU is to have: MIG off, or on with instances at their starts."""

    is_mig_enabled: bool
    instances: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what an operation stores: `{"mig": bool, "instances": [[profile, start], …]}`."""
        pairs = frozenset((str(profile), int(start)) for profile, start in data["instances"])
        return cls(bool(data["mig"]), pairs)

    @classmethod
    def of(cls, gpu: ObservedGpu) -> Self:
        """Return the layout that a GPU has now."""
        return cls(gpu.is_mig_enabled, frozenset(gpu.layout))

    def to_json(self) -> dict[str, Any]:
        """Return the form that an operation stores, by start."""
        pairs = sorted(self.instances, key=lambda pair: pair[1])
        return {"mig": self.is_mig_enabled, "instances": [list(pair) for pair in pairs]}


def doomed(gpu: ObservedGpu, target: Target) -> tuple[ObservedInstance, ...]:
    """Return the instances that have to go on the way to the target."""
    keep = target.instances if target.is_mig_enabled else frozenset[tuple[str, int]]()
    return tuple(i for i in gpu.instances if (i.profile, i.placement.start) not in keep)


def switches_mode(gpu: ObservedGpu, target: Target) -> bool:
    """Say whether MIG mode has to change, which hits whoever holds the whole GPU."""
    return gpu.is_mig_enabled != target.is_mig_enabled


def touched_devices(gpu: ObservedGpu, target: Target) -> frozenset[str]:
    """Return the device ids whose holders are in the way: what is destroyed, or the whole GPU."""
    devices = {instance.mig_uuid for instance in doomed(gpu, target) if instance.mig_uuid}
    if switches_mode(gpu, target):
        devices |= {gpu.uuid} | {i.mig_uuid for i in gpu.instances if i.mig_uuid}
    return frozenset(devices)


def touched_resources(gpu: ObservedGpu, target: Target) -> frozenset[str]:
    """Return the resource names among which unknown holders have to be looked for."""
    names = {f"nvidia.com/mig-{i.profile}".replace("+", ".") for i in doomed(gpu, target)}
    if switches_mode(gpu, target) and not gpu.is_mig_enabled:
        names.add("nvidia.com/gpu")
    return frozenset(names)


def lines_to(gpu: ObservedGpu, table: GpuTable | None, target: Target) -> tuple[Line, ...]:
    """Return what is left to do, in order; nothing when the GPU is as wanted already.

    Raises `UnreachableLayoutError` when the target names what the driver's table does not have.
    """
    mode: list[Line] = []
    if switches_mode(gpu, target):
        needs_reset = table is not None and table.mode_change_needs_reset is not False
        mode = [MigModeLine(gpu.index, target.is_mig_enabled, needs_reset)]
    destroy = [
        DestroyLine(gpu.index, i.gi_id, i.profile_id, str(i.placement)) for i in doomed(gpu, target)
    ]
    complete = {(i.profile, i.placement.start) for i in gpu.instances if i.ci_ids}
    missing = target.instances - complete if target.is_mig_enabled else frozenset()
    create = [_create_line(gpu, table, *pair) for pair in sorted(missing, key=lambda p: p[1])]
    return (*destroy, *mode, *create)


def _create_line(
    gpu: ObservedGpu, table: GpuTable | None, profile_name: str, start: int
) -> CreateLine:
    if table is None:
        msg = f"GPU {gpu.index} ({gpu.name}) cannot do MIG, so {profile_name} cannot be cut on it."
        raise UnreachableLayoutError(msg)
    profile = table.profile(profile_name)
    placement = profile.placement_at(start)
    if placement is None or profile.gi_profile_id is None:
        msg = f"{profile_name} cannot start at memory slice {start} of {gpu.name}."
        raise UnreachableLayoutError(msg)
    return CreateLine(gpu.index, profile.gi_profile_id, str(placement))
