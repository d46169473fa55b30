"""The steps by which one GPU is changed, and the nvidia-smi lines that carry them out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from gpu.planning.geometry import Instance, geometry
from gpu.planning.tables import GpuTable


@dataclass(frozen=True, slots=True)
class EnableMig:
    """Switch MIG mode on."""


@dataclass(frozen=True, slots=True)
class DisableMig:
    """Switch MIG mode off."""


@dataclass(frozen=True, slots=True)
class ResetGpu:
    """Reset the GPU, by which a switched mode takes hold; nobody may use the GPU then."""


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy a GPU instance with its compute instances."""

    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a GPU instance at a place, and a compute instance that fills it."""

    profile: str
    start: int


type Step = EnableMig | DisableMig | ResetGpu | Destroy | Create

_ACTIONS: dict[type, str] = {
    EnableMig: "enable_mig",
    DisableMig: "disable_mig",
    ResetGpu: "reset_gpu",
    Destroy: "destroy",
    Create: "create",
}


def action_of(step: Step) -> str:
    """Return the step's name in JSON: enable_mig, disable_mig, reset_gpu, destroy or create."""
    return _ACTIONS[type(step)]


def instance_of(step: Step) -> Instance | None:
    """Return the instance that a step destroys or creates; ``None`` for a step on the GPU."""
    return Instance(step.profile, step.start) if isinstance(step, Destroy | Create) else None


def nvidia_smi_commands(
    steps: Iterable[Step],
    table: GpuTable,
    *,
    gpu_index: int = 0,
    gi_ids: Mapping[Instance, int] | None = None,
) -> tuple[str, ...]:
    """Return shell lines that carry out the steps in order, each beginning with nvidia-smi.

    `gi_ids` are the ids that ``mig -lgi`` shows for the instances there are. An instance without
    one is looked up by profile and place when its line runs; should it be gone, the line fails
    instead of destroying something else.
    """
    return tuple(
        line
        for step in steps
        for line in _lines(step, table, gpu_index=gpu_index, ids=gi_ids or {})
    )


def _lines(
    step: Step, table: GpuTable, *, gpu_index: int, ids: Mapping[Instance, int]
) -> Iterator[str]:
    match step:
        case EnableMig():
            yield f"nvidia-smi -i {gpu_index} -mig 1"
        case DisableMig():
            yield f"nvidia-smi -i {gpu_index} -mig 0"
        case ResetGpu():
            yield f"nvidia-smi -i {gpu_index} --gpu-reset"
        case Create(profile, start):
            profile_id = table.profile(profile).gi_profile_id
            yield f"nvidia-smi mig -i {gpu_index} -cgi {profile_id}:{start} -C"
        case Destroy(profile, start):
            instance = Instance(profile, start)
            known = ids.get(instance)
            gi_id = str(known) if known is not None else _look_up(instance, table, gpu_index)
            yield f"nvidia-smi mig -i {gpu_index} -dci -gi {gi_id}"
            yield f"nvidia-smi mig -i {gpu_index} -dgi -gi {gi_id}"
        case _:
            assert_never(step)


def _look_up(instance: Instance, table: GpuTable, gpu_index: int) -> str:
    """Return a quoted substitution that finds the id; quoted, so that none is an error."""
    profile_id = table.profile(instance.profile).gi_profile_id
    shape, _slot = geometry(table).slot_of(instance)
    place = f"{instance.start}:{shape.size}"
    test = f'$5 == {profile_id} && $7 == "{place}" {{print $6}}'
    return f"\"$(nvidia-smi mig -i {gpu_index} -lgi | awk '{test}')\""
