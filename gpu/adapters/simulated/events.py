"""Events: what the components say about objects; repeated ones are counted, old ones forgotten."""

import hashlib
from dataclasses import dataclass

from gpu.adapters.simulated.store import Transaction
from gpu.adapters.simulated.world import World, stamp
from gpu.ports import EVENT, Manifest

_KEPT_S = 3600.0
_PRUNED_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a component says about an object."""

    component: str
    reason: str
    message: str
    is_warning: bool = False


def record(world: World, about: Manifest, said: Said) -> None:
    """Write an Event about an object, or count the one that says the same already."""
    meta = about["metadata"]
    namespace = meta.get("namespace", "default")
    digest = hashlib.sha256(f"{meta.get('uid')}/{said}".encode()).hexdigest()[:16]
    name = f"{meta['name']}.{digest}"
    at = stamp(world.now)
    event = world.tx.get(EVENT, name, namespace) or {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": at},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta.get("uid", ""),
        },
        "type": "Warning" if said.is_warning else "Normal",
        "reason": said.reason,
        "message": said.message,
        "source": {"component": said.component},
        "reportingComponent": said.component,
        "firstTimestamp": at,
        "count": 0,
    }
    event["count"] += 1
    event["lastTimestamp"] = at
    world.put(event)


def forget_old(tx: Transaction, now: float) -> None:
    """Drop the Events of more than an hour ago, every few minutes."""
    if now < (tx.fact("events_pruned_at") or 0) + _PRUNED_EVERY_S:
        return
    tx.set_fact("events_pruned_at", now)
    oldest = stamp(now - _KEPT_S)
    for event in tx.select(EVENT):
        if event.get("lastTimestamp", oldest) < oldest:
            tx.remove(event)
