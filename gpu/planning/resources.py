"""What a node offers, by Kubernetes resource, for what is on its GPUs (mixed strategy)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

WHOLE_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class GpuSetup:
    """What is on one GPU: MIG off, or on with the resource names of its instances.

    `replicas` is how often each resource of the GPU is advertised; 1 when it is not shared.
    """

    is_mig_enabled: bool
    resource_names: tuple[str, ...] = ()
    replicas: int = 1


def node_resources(gpus: Iterable[GpuSetup]) -> dict[str, int]:
    """Return what the plugin advertises; a GPU with MIG on and no instance offers nothing."""
    counts: Counter[str] = Counter()
    for gpu in gpus:
        names = gpu.resource_names if gpu.is_mig_enabled else (WHOLE_GPU,)
        for name in names:
            counts[name] += gpu.replicas
    return dict(sorted(counts.items()))


def differences(expected: dict[str, int], offered: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return, by resource, (expected, offered) where the two disagree; an absent one counts 0."""
    keys = sorted(expected.keys() | offered.keys())
    pairs = {key: (expected.get(key, 0), offered.get(key, 0)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
