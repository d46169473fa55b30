"""The scheduler: which node takes a Pod, or in Kubernetes' words why none does."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpu.adapters.simulated.events import Said, record
from gpu.adapters.simulated.quantities import amount, has_ended, pod_requests, used_on_nodes
from gpu.adapters.simulated.selectors import matches_term
from gpu.adapters.simulated.statuses import Condition, set_condition
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, stamp
from gpu.ports import Manifest

_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Decision:
    """The node for a Pod, or None and the scheduler's sentence."""

    node: str | None
    sentence: str = ""


def schedule_pods(world: World) -> None:
    """Bind every Pod that fits somewhere; say of the others why they wait."""
    waiting = [
        pod
        for pod in world.pods
        if not pod["spec"].get("nodeName")
        and not has_ended(pod)
        and "deletionTimestamp" not in pod["metadata"]
    ]
    used = used_on_nodes(world.pods) if waiting else {}
    for pod in sorted(waiting, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        decision = choose_node(pod, world.nodes, used)
        if decision.node is None:
            _keep_waiting(world, pod, decision.sentence)
        else:
            _bind(world, pod, decision.node)
            on_node = used.setdefault(decision.node, Counter())
            on_node.update(pod_requests(pod))
            on_node["pods"] += 1


def choose_node(pod: Manifest, nodes: list[Manifest], used: Mapping[str, Counter[str]]) -> Decision:
    """Return where a Pod goes: the fullest node that fits, so that whole nodes stay free."""
    reasons: Counter[str] = Counter()
    wanted = pod_requests(pod)
    fitting: list[tuple[int, str]] = []
    for node in nodes:
        free = _free(node, used.get(node["metadata"]["name"], Counter()))
        against = _against(pod, node)
        short = [f"Insufficient {key}" for key in sorted(wanted) if wanted[key] > free.get(key, 0)]
        if free.get("pods", 1) < 1:
            short.append("Too many pods")
        if against:
            reasons[against] += 1
        elif short:
            reasons.update(short)
        else:
            left = sum(free[key] for key in wanted if key.startswith("nvidia.com/"))
            fitting.append((left, node["metadata"]["name"]))
    if fitting:
        return Decision(min(fitting)[1])
    return Decision(None, _sentence(reasons, len(nodes)))


def _sentence(reasons: Counter[str], count: int) -> str:
    if not count:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
    return (
        f"0/{count} nodes are available: {listed}. preemption: 0/{count} nodes are available:"
        f" {count} Preemption is not helpful for scheduling."
    )


def _keep_waiting(world: World, pod: Manifest, sentence: str) -> None:
    condition = Condition("PodScheduled", "False", "Unschedulable", sentence)
    if set_condition(pod, condition, stamp(world.now)):
        world.put(pod)
        record(world, pod, Said("default-scheduler", "FailedScheduling", sentence, is_warning=True))


def _bind(world: World, pod: Manifest, node: str) -> None:
    pod["spec"]["nodeName"] = node
    hidden(pod)["was_scheduled"] = True
    set_condition(pod, Condition("PodScheduled", "True"), stamp(world.now))
    world.put(pod)
    meta = pod["metadata"]
    text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
    record(world, pod, Said("default-scheduler", "Scheduled", text))


def _free(node: Manifest, used: Counter[str]) -> dict[str, int]:
    allocatable = node["status"].get("allocatable") or {}
    return {key: amount(key, value) - used[key] for key, value in allocatable.items()}


def _against(pod: Manifest, node: Manifest) -> str:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] not in _KEEPING_AWAY:
            continue
        if not any(_tolerates(item, taint) for item in spec.get("tolerations") or ()):
            if taint["key"] == _UNSCHEDULABLE:
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    selector = spec.get("nodeSelector") or {}
    fits = all(labels.get(key) == value for key, value in selector.items())
    if not fits or not _matches_affinity(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key") and toleration.get("value", "") == taint.get("value", ""))


def _matches_affinity(spec: Manifest, node: Manifest) -> bool:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_AFFINITY)
    if not required:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(matches_term(labels, term) for term in terms.get("matchExpressions") or ())
        and all(matches_term(fields, term) for term in terms.get("matchFields") or ())
        for terms in required["nodeSelectorTerms"]
    )
