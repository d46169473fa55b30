"""What the simulated components write into the status of nodes and Pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu.adapters.simulated.store import hidden
from gpu.ports import Manifest

CAPACITY_STAYS_S = 300.0
"""How long a kubelet shows a resource in capacity after its plugin has gone; in real seconds."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node, a Pod or a Job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""

    def to_json(self, at: str) -> dict[str, str]:
        """Return the condition as Kubernetes writes it."""
        body = {"type": self.type, "status": self.status, "lastTransitionTime": at}
        if self.reason:
            body["reason"] = self.reason
        if self.message:
            body["message"] = self.message
        return body


def set_condition(body: Manifest, wanted: Condition, at: str) -> bool:
    """Set one condition; return whether that changed it."""
    conditions = body.setdefault("status", {}).setdefault("conditions", [])
    fresh = wanted.to_json(at)
    for index, condition in enumerate(conditions):
        if condition["type"] != wanted.type:
            continue
        if condition.get("status") == wanted.status:
            fresh["lastTransitionTime"] = condition.get("lastTransitionTime", at)
        conditions[index] = fresh
        return bool(condition != fresh)
    conditions.append(fresh)
    return True


def offer(node: Manifest, devices: Mapping[str, list[str]], now: float) -> None:
    """Show devices in allocatable; old resources stay there at 0, and in capacity for a while."""
    hidden(node)["registered"] = dict(devices)
    status: dict[str, Any] = node["status"]
    capacity = status.setdefault("capacity", {})
    allocatable = status.setdefault("allocatable", {})
    for key in [key for key in allocatable if key.startswith("nvidia.com/")]:
        allocatable[key] = "0"
    for key, ids in devices.items():
        allocatable[key] = capacity[key] = str(len(ids))
    hidden(node)["capacity_at"] = now + CAPACITY_STAYS_S


def forget_capacity(node: Manifest) -> None:
    """Show 0 in capacity, too, for resources that no plugin registers; their keys stay."""
    hidden(node).pop("capacity_at", None)
    registered = hidden(node).get("registered", {})
    capacity = node["status"].get("capacity", {})
    for key in capacity:
        if key.startswith("nvidia.com/") and key not in registered:
            capacity[key] = "0"


def set_waiting(pod: Manifest, reason: str, message: str = "") -> None:
    """Say why the container does not run."""
    waiting = {"reason": reason} | ({"message": message} if message else {})
    _set_container(pod, {"waiting": waiting})


def set_running(pod: Manifest, devices: Mapping[str, list[str]], at: str) -> None:
    """Say that the container runs, and with which devices."""
    _set_container(pod, {"running": {"startedAt": at}}, is_ready=True)
    if devices:
        resources = [
            {
                "name": name,
                "resources": [{"resourceID": device, "health": "Healthy"} for device in ids],
            }
            for name, ids in devices.items()
        ]
        pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = resources
    pod["status"]["phase"] = "Running"
    set_ready(pod, Condition("Ready", "True"), at)


def set_ended(pod: Manifest, code: int, at: str) -> None:
    """Say how the container ended, for good."""
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": at}
    _set_container(pod, {"terminated": ended})
    pod["status"]["phase"] = "Failed" if code else "Succeeded"
    reason = "PodFailed" if code else "PodCompleted"
    set_ready(pod, Condition("Ready", "False", reason), at)


def set_failed(pod: Manifest, reason: str, message: str, at: str) -> None:
    """Say that the kubelet has given the Pod up, and why."""
    if pod["status"].get("phase") == "Running":
        ended = {"exitCode": 137, "reason": "Error", "finishedAt": at}
        _set_container(pod, {"terminated": ended})
    else:
        pod["status"].pop("containerStatuses", None)
    pod["status"] |= {"phase": "Failed", "reason": reason, "message": message}
    set_ready(pod, Condition("Ready", "False", "PodFailed"), at)


def set_ready(pod: Manifest, condition: Condition, at: str) -> bool:
    """Set the conditions of the Pod and of its containers; return whether they changed."""
    containers = Condition("ContainersReady", condition.status, condition.reason, condition.message)
    is_changed = set_condition(pod, condition, at)
    return set_condition(pod, containers, at) or is_changed


def _set_container(
    pod: Manifest, state: dict[str, dict[str, Any]], *, is_ready: bool = False
) -> None:
    container = pod["spec"]["containers"][0]
    pod["status"]["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "restartCount": hidden(pod).get("restarts", 0),
            "ready": is_ready,
            "started": is_ready,
            "state": state,
        }
    ]
