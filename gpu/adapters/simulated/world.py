"""One look at the whole simulated cluster within one transaction, for everything that acts in it.

Nothing runs in the background. Whoever calls the lab first lets everything happen that is due by
the clock; what is due later is kept with the objects, so that no process has to stay alive.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gpu.adapters.simulated.containers import Script
from gpu.adapters.simulated.plugin import NodeFiles
from gpu.adapters.simulated.store import Transaction, hidden
from gpu.ports import NODE, POD, Manifest

_SLOWER = 5.0
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def stamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_suffix() -> str:
    """Return five random letters as controllers put behind the names of their Pods."""
    number = uuid.uuid4().int
    letters = ""
    for _place in range(5):
        number, index = divmod(number, len(_SUFFIX_LETTERS))
        letters += _SUFFIX_LETTERS[index]
    return letters


@dataclass(slots=True)
class World:
    """All Pods and nodes as they are at one moment; `pace` scales every delay.

    `scripts` are to be run, and the containers of the Pods in `ended` killed, after the
    transaction.
    """

    tx: Transaction
    files: NodeFiles
    now: float
    pace: float
    pods: list[Manifest] = field(default_factory=list)
    nodes: list[Manifest] = field(default_factory=list)
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scripts: list[Script] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Read everything that most parts need."""
        self.pods, self.nodes = self.tx.select(POD), self.tx.select(NODE)
        self.faults = self.tx.fact("faults") or {}

    def after(self, seconds: float, node: str = "") -> float:
        """Return the moment a delay later, longer on a node that is slow."""
        slower = _SLOWER if self.has_fault(node, "slow") else 1.0
        return self.now + seconds * self.pace * slower

    def has_fault(self, node: str, name: str) -> bool:
        """Say whether a fault is switched on for a node."""
        return name in self.faults.get(node, ())

    def is_silent(self, node: str) -> bool:
        """Say whether the node's kubelet has stopped answering."""
        return self.has_fault(node, "node_not_ready")

    def node(self, name: str) -> Manifest | None:
        """Return a node, or None for one that is not there."""
        return next((node for node in self.nodes if node["metadata"]["name"] == name), None)

    def pods_on(self, node: str) -> list[Manifest]:
        """Return the Pods that are bound to a node, ended ones included."""
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == node]

    def put(self, body: Manifest) -> Manifest:
        """Write an object."""
        return self.tx.put(body)

    def add_pod(self, body: Manifest) -> Manifest:
        """Write a new Pod."""
        body["metadata"]["creationTimestamp"] = stamp(self.now)
        body["status"] = {"phase": "Pending"}
        self.pods.append(self.tx.put(body))
        return body

    def remove_pod(self, pod: Manifest) -> None:
        """Remove a Pod for good, with whatever it still runs."""
        self.tx.remove(pod)
        self.tx.forget_log(pod["metadata"]["uid"])
        self.pods.remove(pod)
        self.ended.append(pod["metadata"]["uid"])

    def delete_pod(self, pod: Manifest, grace_s: float = 1.0) -> None:
        """Begin a Pod's deletion, unless it has begun."""
        if "delete_at" not in hidden(pod):
            mark_deleted(pod, self.after(grace_s, pod["spec"].get("nodeName", "")))
            self.put(pod)

    def delete_dependants(self, owner: Manifest) -> None:
        """Begin the deletion of the Pods that an owner which has gone had made."""
        uid = owner["metadata"]["uid"]
        for pod in self.pods:
            if controller_of(pod).get("uid") == uid:
                self.delete_pod(pod)


def mark_deleted(pod: Manifest, at: float) -> None:
    """Say in a Pod that it goes, and when at the latest."""
    pod["metadata"]["deletionTimestamp"] = stamp(at)
    hidden(pod)["delete_at"] = at


def controller_of(body: Manifest) -> Manifest:
    """Return the owner reference of the controller, or an empty mapping."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def owned_by(owner: Manifest) -> list[dict[str, object]]:
    """Return the owner references of what a controller makes."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
