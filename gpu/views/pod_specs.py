"""The Pod spec of a slice, and the commands that go with it."""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml
from django.conf import settings
from django.utils.translation import gettext as _

from gpu.manifests import Amounts, SlicePod, object_name, slice_pod
from gpu.models import Allocation
from gpu.selectors.tables import product_labels

_HUNDRED = 100


@dataclass(frozen=True, slots=True)
class Command:
    """A line to copy, and what it does."""

    sentence: str
    line: str


@dataclass(frozen=True, slots=True)
class Tip:
    """How a program is told to keep to its share of the memory."""

    program: str
    line: str


@dataclass(frozen=True, slots=True)
class Handout:
    """All that somebody needs to use a slice: the spec, its file name, commands, and tips."""

    spec: str
    file_name: str
    commands: tuple[Command, ...]
    tips: tuple[Tip, ...] = ()

    @classmethod
    def of(cls, allocation: Allocation, *, whose: str) -> "Handout":
        """Make the hand-out for a loaded allocation; `whose` goes into the Pod's name."""
        name = object_name("slice", whose, allocation.slice_request_id)
        space = allocation.tenant.namespace
        file_name = f"{name}.yaml"
        return cls(
            spec=pod_spec(allocation, name=name),
            file_name=file_name,
            commands=_commands(name, space, file_name),
            tips=_tips(allocation) if allocation.slice_request.isolation == "shared" else (),
        )


def pod_spec(allocation: Allocation, *, name: str) -> str:
    """Return a Pod that holds one device of the slice, as YAML."""
    body = slice_pod(
        SlicePod(
            name=name,
            namespace=allocation.tenant.namespace,
            allocation=str(allocation.pk),
            resource_name=allocation.pool.resource_name,
            products=product_labels(allocation.pool.model),
            image=settings.SLICE_IMAGE,
            command=("sh", "-c", "nvidia-smi -L && exec sleep infinity"),
            amounts=Amounts(allocation.cpu_milli, allocation.ram_mib, allocation.storage_mib),
        )
    )
    return yaml.safe_dump(body, sort_keys=False, width=1000)


def _commands(name: str, space: str, file_name: str) -> tuple[Command, ...]:
    return (
        Command(_("Start it:"), f"kubectl apply -f {file_name}"),
        Command(_("See whether it runs:"), f"kubectl -n {space} get pod {name}"),
        Command(_("See which GPU it has:"), f"kubectl -n {space} logs {name}"),
        Command(_("Work in it:"), f"kubectl -n {space} exec -it {name} -- bash"),
        Command(_("Stop it, and keep the slice:"), f"kubectl -n {space} delete pod {name}"),
    )


def _tips(allocation: Allocation) -> tuple[Tip, ...]:
    """Say how to keep to a share: nothing but the program itself holds it to that."""
    whole = max(1, allocation.pool.model.memory_mib)
    part = allocation.memory_mib * _HUNDRED // whole / _HUNDRED
    memory = allocation.memory_mib
    limit = f"tf.config.LogicalDeviceConfiguration(memory_limit={memory})"
    lines: Sequence[tuple[str, str]] = (
        ("PyTorch", f"torch.cuda.set_per_process_memory_fraction({part})"),
        ("JAX", f"XLA_PYTHON_CLIENT_MEM_FRACTION={part}"),
        ("TensorFlow", f"tf.config.set_logical_device_configuration(gpu, [{limit}])"),
        ("vLLM", f"vllm serve MODEL --gpu-memory-utilization {part}"),
    )
    return tuple(Tip(program, line) for program, line in lines)
