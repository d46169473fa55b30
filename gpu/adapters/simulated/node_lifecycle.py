"""What controllers write into nodes and namespaces: taints, readiness, default objects."""

from gpu.adapters.simulated.events import Said, record
from gpu.adapters.simulated.statuses import Condition, set_condition, set_ready
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, stamp
from gpu.ports import KINDS, NAMESPACE, POD, SERVICE_ACCOUNT, Manifest

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_UNREACHABLE = tuple(
    {"key": "node.kubernetes.io/unreachable", "effect": effect}
    for effect in ("NoSchedule", "NoExecute")
)
_OURS = frozenset({"node.kubernetes.io/unschedulable", "node.kubernetes.io/unreachable"})


def watch_nodes(world: World) -> None:
    """Taint nodes that are cordoned or silent, and say whether they are ready."""
    for node in world.nodes:
        is_silent = world.is_silent(node["metadata"]["name"])
        is_changed = _taint(node, is_silent=is_silent)
        if _set_ready(world, node, is_silent=is_silent) or is_changed:
            world.put(node)
        _mark_pods(world, node, is_silent=is_silent)


def keep_namespaces(world: World) -> None:
    """Give every namespace its default service account; empty and remove those that go."""
    for namespace in world.tx.select(NAMESPACE):
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" in namespace["metadata"]:
            _empty(world, namespace)
        elif not hidden(namespace).get("has_account"):
            hidden(namespace)["has_account"] = True
            world.put(namespace)
            if world.tx.get(SERVICE_ACCOUNT, "default", name) is None:
                world.put(_service_account(name, stamp(world.now)))


def _taint(node: Manifest, *, is_silent: bool) -> bool:
    spec = node.setdefault("spec", {})
    taints = [dict(t) for t in spec.get("taints") or () if t["key"] not in _OURS]
    if spec.get("unschedulable"):
        taints.append(dict(_UNSCHEDULABLE))
    if is_silent:
        taints += [dict(taint) for taint in _UNREACHABLE]
    if (spec.get("taints") or []) == taints:
        return False
    if taints:
        spec["taints"] = taints
    else:
        spec.pop("taints")
    return True


def _set_ready(world: World, node: Manifest, *, is_silent: bool) -> bool:
    condition = Condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    if is_silent:
        text = "Kubelet stopped posting node status."
        condition = Condition("Ready", "Unknown", "NodeStatusUnknown", text)
    is_changed = set_condition(node, condition, stamp(world.now))
    if is_changed and is_silent:
        text = f"Node {node['metadata']['name']} status is now: NodeNotReady"
        record(world, node, Said("node-controller", "NodeNotReady", text))
    return is_changed


def _mark_pods(world: World, node: Manifest, *, is_silent: bool) -> None:
    for pod in world.pods_on(node["metadata"]["name"]):
        if pod["status"]["phase"] != "Running" or "retry_at" in hidden(pod):
            continue
        condition = Condition("Ready", "True")
        if is_silent:
            condition = Condition("Ready", "False", "NodeNotReady")
        if set_ready(pod, condition, stamp(world.now)):
            world.put(pod)


def _empty(world: World, namespace: Manifest) -> None:
    name = namespace["metadata"]["name"]
    for kind in KINDS:
        if kind.is_namespaced and kind != POD:
            for body in world.tx.select(kind, name):
                world.tx.remove(body)
    pods = [pod for pod in world.pods if pod["metadata"]["namespace"] == name]
    for pod in pods:
        world.delete_pod(pod)
    if not pods:
        world.tx.remove(namespace)


def _service_account(namespace: str, at: str) -> Manifest:
    meta = {"name": "default", "namespace": namespace, "creationTimestamp": at}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
