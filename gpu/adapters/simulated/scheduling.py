"""The scheduler: which node takes a Pod, or in Kubernetes' words why none does."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpu.adapters.simulated.admission import FINAL_PHASES, amount
from gpu.objects import NodeObject
from gpu.ports import Manifest

_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def pod_requests(pod: Manifest) -> Counter[str]:
    """Return what a Pod asks of its node; CPU in millicores, memory and storage in bytes."""
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for key, value in wanted.items():
            total[key] += amount(key, value)
    return total


def used_on_nodes(pods: Iterable[Manifest]) -> dict[str, Counter[str]]:
    """Return what the Pods that have not ended ask of each node."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in FINAL_PHASES:
            used.setdefault(node, Counter()).update(pod_requests(pod))
    return used


def choose_node(
    pod: Manifest, nodes: list[Manifest], used: Mapping[str, Counter[str]]
) -> tuple[str | None, str]:
    """Return the node for a Pod, or None and the scheduler's sentence."""
    reasons: Counter[str] = Counter()
    wanted = pod_requests(pod)
    fitting: list[tuple[int, str]] = []
    for node in nodes:
        against = _against(pod, node)
        free = _free(node, used.get(node["metadata"]["name"], Counter()))
        short = [key for key in sorted(wanted) if wanted[key] > free.get(key, 0)]
        if against:
            reasons[against] += 1
        elif short:
            for key in short:
                reasons[f"Insufficient {key}"] += 1
        else:
            left = sum(free[key] for key in wanted if key.startswith("nvidia.com/"))
            fitting.append((left, node["metadata"]["name"]))
    if fitting:
        # The fullest node first, so that whole nodes stay free.
        return min(fitting)[1], ""
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return None, f"0/{len(nodes)} nodes are available: {listed}."


def _free(node: Manifest, used: Counter[str]) -> dict[str, int]:
    allocatable = node["status"].get("allocatable") or {}
    return {key: amount(key, value) - used[key] for key, value in allocatable.items()}


def _against(pod: Manifest, node: Manifest) -> str:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    selector = spec.get("nodeSelector") or {}
    if not NodeObject.from_manifest(node).is_ready:
        return "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
    for taint in _taints(node):
        if not any(_tolerates(item, taint) for item in spec.get("tolerations") or ()):
            if taint["key"] == _UNSCHEDULABLE:
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    fits = all(labels.get(key) == value for key, value in selector.items())
    if not fits or not _matches_affinity(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def _taints(node: Manifest) -> list[Manifest]:
    return list(node["spec"].get("taints") or ())


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def _matches_affinity(spec: Manifest, node: Manifest) -> bool:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_AFFINITY)
    if not required:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_matches(labels, term) for term in terms.get("matchExpressions") or ())
        and all(_matches(fields, term) for term in terms.get("matchFields") or ())
        for terms in required["nodeSelectorTerms"]
    )


def _matches(values: Mapping[str, Any], term: Manifest) -> bool:
    value, wanted = values.get(term["key"]), term.get("values") or []
    match term["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case _:
            return value is None
