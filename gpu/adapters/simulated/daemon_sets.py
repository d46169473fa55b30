"""The DaemonSet controller: one Pod on every node that its template selects."""

import copy
from collections.abc import Collection

from gpu.adapters.simulated.quantities import has_ended
from gpu.adapters.simulated.replicas import RETRY_S, create_pod
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, name_suffix, owned_by
from gpu.ports import DAEMON_SET, Manifest


def run_daemon_sets(world: World) -> None:
    """Make the Pods that are missing; a Pod that is going is waited for."""
    for daemon_set in world.tx.select(DAEMON_SET):
        nodes = [node for node in world.nodes if _is_for(daemon_set, node)]
        _leave_other_nodes(world, daemon_set, {node["metadata"]["name"] for node in nodes})
        ready = 0
        for node in nodes:
            pod = _pod_on(world, daemon_set, node["metadata"]["name"])
            if pod is None:
                _make_pod(world, daemon_set, node)
            elif has_ended(pod):
                world.delete_pod(pod)
            else:
                ready += _is_ready(pod)
        status = {
            "desiredNumberScheduled": len(nodes),
            "currentNumberScheduled": len(nodes),
            "numberReady": ready,
            "numberMisscheduled": 0,
        }
        if daemon_set.get("status") != status:
            daemon_set["status"] = status
            world.put(daemon_set)


def _make_pod(world: World, daemon_set: Manifest, node: Manifest) -> None:
    secret = hidden(daemon_set)
    if secret.get("retry_at", 0) > world.now:
        return
    if not create_pod(world, _new_pod(daemon_set, node), daemon_set):
        secret["retry_at"] = max(world.after(RETRY_S), world.now + 1)
        world.put(daemon_set)


def _leave_other_nodes(world: World, daemon_set: Manifest, nodes: Collection[str]) -> None:
    """Take the Pods away from nodes that the template does not select any more."""
    uid = daemon_set["metadata"]["uid"]
    for pod in world.pods:
        if hidden(pod).get("daemon_set") == uid and pod["spec"]["nodeName"] not in nodes:
            world.delete_pod(pod)


def _pod_on(world: World, daemon_set: Manifest, node: str) -> Manifest | None:
    uid = daemon_set["metadata"]["uid"]
    return next(
        (pod for pod in world.pods_on(node) if hidden(pod).get("daemon_set") == uid),
        None,
    )


def _is_for(daemon_set: Manifest, node: Manifest) -> bool:
    selector = daemon_set["spec"]["template"]["spec"].get("nodeSelector") or {}
    return bool(selector.items() <= (node["metadata"].get("labels") or {}).items())


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _new_pod(daemon_set: Manifest, node: Manifest) -> Manifest:
    meta, template = daemon_set["metadata"], copy.deepcopy(daemon_set["spec"]["template"])
    spec = template["spec"]
    spec["nodeName"] = node["metadata"]["name"]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-{name_suffix()}",
            "namespace": meta["namespace"],
            "labels": dict(template["metadata"]["labels"]),
            "ownerReferences": owned_by(daemon_set),
        },
        "spec": spec,
        "simulated": {"daemon_set": meta["uid"]},
    }
