"""The device plugin's DaemonSet, with the names and labels of NVIDIA's standalone chart."""

from typing import Any

from tests.cluster.api import Api
from tests.cluster.images import DEVICE_PLUGIN

NAMESPACE = "nvidia-device-plugin"
NAME = "nvidia-device-plugin"
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
    """Delete the plugin's Pod on one node; its DaemonSet makes a new one."""
    for pod in api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]:
        if pod["spec"].get("nodeName") == node:
            api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")


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
