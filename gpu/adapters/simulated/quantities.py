"""Amounts as the lab counts them: CPU in millicores, everything else in whole units."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from gpu.objects import parse_bytes, parse_milli_cpu
from gpu.ports import Manifest

FINAL_PHASES = frozenset({"Succeeded", "Failed"})
_BINARY = (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_MILLI = 1000


def amount(key: str, value: Any) -> int:  # noqa: ANN401  # a quantity as JSON has it
    """Return a quantity as a whole number in the unit that its key is counted in."""
    return parse_milli_cpu(value) if key.endswith("cpu") else parse_bytes(value)


def quantity(key: str, value: int) -> str:
    """Return a counted number as Kubernetes writes the quantity."""
    if key.endswith("cpu"):
        return f"{value}m" if value % _MILLI else str(value // _MILLI)
    if key.endswith(("memory", "storage")) and value:
        for suffix, factor in _BINARY:
            if value % factor == 0:
                return f"{value // factor}{suffix}"
    return str(value)


def pod_requests(pod: Manifest) -> Counter[str]:
    """Return what a Pod asks of its node, by resource name; a limit alone counts as a request."""
    return _sum(pod, lambda resources: {**_limits(resources), **(resources.get("requests") or {})})


def pod_limits(pod: Manifest) -> Counter[str]:
    """Return the limits of a Pod's containers together, by resource name."""
    return _sum(pod, _limits)


def used_on_nodes(pods: Iterable[Manifest]) -> dict[str, Counter[str]]:
    """Return what the Pods that have not ended ask of each node."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and not has_ended(pod):
            on_node = used.setdefault(node, Counter())
            on_node.update(pod_requests(pod))
            on_node["pods"] += 1
    return used


def has_ended(pod: Manifest) -> bool:
    """Say whether a Pod's containers have ended for good."""
    return pod.get("status", {}).get("phase") in FINAL_PHASES


def _limits(resources: Manifest) -> Manifest:
    return resources.get("limits") or {}


def _sum(pod: Manifest, pick: Callable[[Manifest], Manifest]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for key, value in pick(container.get("resources") or {}).items():
            total[key] += amount(key, value)
    return total
