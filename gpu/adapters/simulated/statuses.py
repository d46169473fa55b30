"""What the simulated components write into the status of nodes and Pods."""

from typing import Any

from gpu.adapters.simulated.kubelet import device_status
from gpu.adapters.simulated.store import hidden
from gpu.ports import Manifest


def offer(node: Manifest, devices: dict[str, list[str]]) -> None:
    """Show devices in allocatable; old resources stay at 0 there and as they were in capacity."""
    hidden(node)["registered"] = devices
    status: dict[str, Any] = node["status"]
    old = {k for k in status["allocatable"] if k.startswith("nvidia.com/")}
    for key in old:
        status["allocatable"][key] = "0"
    for key, ids in devices.items():
        status["allocatable"][key] = status["capacity"][key] = str(len(ids))


def set_condition(body: Manifest, kind: str, status: str, reason: str, message: str) -> bool:
    """Set one condition; return whether that changed it."""
    conditions = body["status"].setdefault("conditions", [])
    fresh = {"type": kind, "status": status}
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    for index, condition in enumerate(conditions):
        if condition["type"] == kind:
            conditions[index] = fresh
            return bool(condition != fresh)
    conditions.append(fresh)
    return True


def container_status(pod: Manifest) -> dict[str, Any]:
    """Return the identity of a Pod's only container."""
    container = pod["spec"]["containers"][0]
    return {"name": container["name"], "image": container.get("image", ""), "restartCount": 0}


def set_waiting(pod: Manifest, reason: str) -> None:
    """Say why a container does not start."""
    state = {"waiting": {"reason": reason}}
    pod["status"]["containerStatuses"] = [{**container_status(pod), "ready": False, "state": state}]


def set_running(pod: Manifest, devices: dict[str, list[str]], at: str) -> None:
    """Say that a container runs, and with which devices."""
    status = {**container_status(pod), "ready": True, "state": {"running": {"startedAt": at}}}
    if devices:
        status["allocatedResourcesStatus"] = device_status(devices)
    pod["status"]["containerStatuses"] = [status]


def set_ended(pod: Manifest, code: int, at: str) -> None:
    """Say how a container ended."""
    pod["status"]["phase"] = "Failed" if code else "Succeeded"
    reason = "Error" if code else "Completed"
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}
    pod["status"]["containerStatuses"] = [{**container_status(pod), "ready": False, "state": state}]
    set_condition(pod, "Ready", "False", "PodCompleted", "")
