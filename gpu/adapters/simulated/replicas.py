"""Controllers that make Pods: what they want is made, or said why the API server refuses it."""

import copy

from gpu.adapters.simulated.admission import admit
from gpu.adapters.simulated.events import Said, record
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, controller_of, name_suffix
from gpu.ports import NAMESPACE, Manifest, RefusedError

RETRY_S = 10.0


def create_pod(world: World, pod: Manifest, owner: Manifest) -> bool:
    """Create a controller's Pod; False when admission refused it, which its owner's Event says."""
    component = f"{owner['kind'].lower()}-controller"
    try:
        world.add_pod(admit(world.tx, pod))
    except RefusedError as error:
        said = Said(component, "FailedCreate", f"Error creating: {error}", is_warning=True)
        record(world, owner, said)
        return False
    text = f"Created pod: {pod['metadata']['name']}"
    record(world, owner, Said(component, "SuccessfulCreate", text))
    return True


def replace(world: World, pod: Manifest) -> None:
    """Make a new Pod for one that has gone, if a ReplicaSet or StatefulSet still wants it."""
    if hidden(pod).get("respawns"):
        _owe(world, _fresh(pod))
        make_owed(world)


def make_owed(world: World) -> None:
    """Make the Pods that their controllers could not make so far."""
    owed: list[Manifest] = world.tx.fact("owed_pods") or []
    left = []
    for pod in owed:
        if hidden(pod).get("retry_at", 0) > world.now:
            left.append(pod)
            continue
        if not _is_wanted(world, pod):
            continue
        fresh = copy.deepcopy(pod)
        hidden(fresh).pop("retry_at", None)
        if not create_pod(world, fresh, _owner(pod)):
            hidden(pod)["retry_at"] = max(world.after(RETRY_S), world.now + 1)
            left.append(pod)
    if left != owed:
        world.tx.set_fact("owed_pods", left)


def _owe(world: World, pod: Manifest) -> None:
    world.tx.set_fact("owed_pods", [*(world.tx.fact("owed_pods") or []), pod])


def _is_wanted(world: World, pod: Manifest) -> bool:
    namespace = world.tx.get(NAMESPACE, pod["metadata"]["namespace"])
    return namespace is not None and "deletionTimestamp" not in namespace["metadata"]


def _fresh(pod: Manifest) -> Manifest:
    """Return the Pod anew: a StatefulSet keeps the name, a ReplicaSet takes a new one."""
    meta, owner = pod["metadata"], controller_of(pod)
    name = meta["name"]
    if owner.get("kind") != "StatefulSet":
        name = f"{owner['name']}-{name_suffix()}"
    spec = copy.deepcopy(pod["spec"])
    spec.pop("nodeName", None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "ownerReferences": meta["ownerReferences"],
        },
        "spec": spec,
        "simulated": {"respawns": True},
    }


def _owner(pod: Manifest) -> Manifest:
    """Return what an Event says of the controller, which the lab does not keep as an object."""
    owner = controller_of(pod)
    meta = {
        "name": owner.get("name", ""),
        "uid": owner.get("uid", ""),
        "namespace": pod["metadata"]["namespace"],
    }
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": meta}
