"""The device plugin's DaemonSet, with the names and labels of NVIDIA's standalone chart."""

from typing import Any

from tests.cluster.api import Api
from tests.cluster.images import DEVICE_PLUGIN
from tests.cluster.processes import wait_until

NAMESPACE = "nvidia-device-plugin"
NAME = "nvidia-device-plugin"
_RESTART_TIMEOUT_S = 90
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": "nvdp"}
_FOLDERS = {
    "device-plugin": "/var/lib/kubelet/device-plugins",
    "gpus": "/var/lib/kubelet/gpus",
}
_NODES = (
    ("feature.node.kubernetes.io/pci-10de.present", "true"),
    ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
    ("nvidia.com/gpu.present", "true"),
)


def install(api: Api) -> None:
    """Install the plugin on every node that says it has a GPU; doing it again changes nothing."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    api.apply(f"/api/v1/namespaces/{NAMESPACE}", namespace)
    api.apply(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAME}", _daemon_set())


def restart(api: Api, node: str) -> None:
    """Delete the plugin's Pod on one node and wait for the one that its DaemonSet makes next.

    The old one must be gone first: a kubelet that hears it hang up after the new one has registered
    takes the new one for gone.
    """
    old = _pods(api, node)
    for pod in old.values():
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        api.delete(path, grace_s=1)

    def is_new() -> bool:
        pods = _pods(api, node)
        return not old.keys() & pods.keys() and any(map(_is_ready, pods.values()))

    wait_until(is_new, f"a new device plugin on {node}", timeout_s=_RESTART_TIMEOUT_S)


def _pods(api: Api, node: str) -> dict[str, Any]:
    """Return the plugin's Pods on a node by UID."""
    pods = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {p["metadata"]["uid"]: p for p in pods if p["spec"].get("nodeName") == node}


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _daemon_set() -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        for key, value in _NODES
    ]
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": DEVICE_PLUGIN,
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _FOLDERS.items()],
    }
    required = {"nodeSelectorTerms": terms}
    pod_spec = {
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in _FOLDERS.items()],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod_spec},
        },
    }
