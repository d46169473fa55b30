"""Deletions: what goes at once, what goes with grace, and what goes along."""

from gpu.adapters.simulated.quantities import has_ended
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, mark_deleted, stamp
from gpu.ports import NAMESPACE, NODE, POD, Manifest, kind_of

_GRACE_S = 1.0
"""How long the lab's programs take to end once they are told to, before any grace runs out."""


def delete_object(world: World, body: Manifest, grace_s: int | None) -> None:
    """Delete an object and, in the background, the Pods that it had made."""
    kind = kind_of(body)
    if kind == POD:
        _delete_pod(world, body, grace_s)
        return
    if kind == NAMESPACE:
        if "deletionTimestamp" not in body["metadata"]:
            body["metadata"]["deletionTimestamp"] = stamp(world.now)
            body["status"] = {"phase": "Terminating"}
            world.put(body)
        return
    world.tx.remove(body)
    world.delete_dependants(body)
    if kind == NODE:
        for pod in world.pods_on(body["metadata"]["name"]):
            _delete_pod(world, pod, 0)


def _delete_pod(world: World, pod: Manifest, grace_s: int | None) -> None:
    node = pod["spec"].get("nodeName", "")
    due = world.after(_GRACE_S if grace_s is None else min(float(grace_s), _GRACE_S), node)
    if not node or has_ended(pod):
        due = world.now
    due = min(due, hidden(pod).get("delete_at", due))
    if grace_s == 0:
        hidden(pod)["is_forced"] = True
    mark_deleted(pod, due)
    pod["metadata"]["deletionGracePeriodSeconds"] = 30 if grace_s is None else grace_s
    world.put(pod)
