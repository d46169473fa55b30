"""Giving a node of the lab the GPU Operator's mig-manager, and its device plugin if wanted."""

from gpu.adapters.simulated.cluster import SimulatedCluster
from gpu.adapters.simulated.installation import PCI_LABEL
from gpu.adapters.simulated.mig_manager import DEPLOY_PREFIX, MANAGED, MANAGER_LABELS
from gpu.adapters.simulated.registration import PLUGIN_LABELS
from gpu.adapters.simulated.store import Transaction
from gpu.adapters.simulated.world import stamp
from gpu.ports import NODE, POD, Manifest, kind_of

NAMESPACE = "gpu-operator"
PLUGIN_NAMESPACE = "nvidia-device-plugin"
CONFIG_MAP_NAME = "slicedesk-mig-parted"
_PLUGIN = f"{DEPLOY_PREFIX}device-plugin"


def give_mig_manager(
    cluster: SimulatedCluster,
    node: str,
    *,
    config_map: str | None = CONFIG_MAP_NAME,
    with_plugin: bool = False,
) -> None:
    """Let a mig-manager run on a node; it reads `config_map`, or None for one that it writes.

    The node's device plugin stays the standalone chart's, which a mig-manager never restarts,
    unless it is given the operator's (`with_plugin`). `ValueError` names the nodes that there are.
    """
    with cluster.store.transaction() as tx:
        now = stamp(cluster.clock())
        parts = [_namespace(now), _manager(now, config_map)]
        if with_plugin:
            parts.append(_plugin(now))
        for part in parts:
            meta = part["metadata"]
            if tx.get(kind_of(part), meta["name"], meta.get("namespace", "")) is None:
                tx.put(part)
        body = tx.get(NODE, node)
        if body is None:
            names = ", ".join(item["metadata"]["name"] for item in tx.select(NODE))
            msg = f"The lab has no node {node!r}; there are: {names}."
            raise ValueError(msg)
        labels = body["metadata"]["labels"]
        labels[MANAGED] = "true"
        labels |= {
            f"{DEPLOY_PREFIX}{name}": "true" for name in ("gpu-feature-discovery", "dcgm-exporter")
        }
        if with_plugin:
            labels[_PLUGIN] = "true"
            labels.pop(PCI_LABEL, None)
            _remove_standalone_plugin(tx, node)
        tx.put(body)
        tx.wake(cluster.clock())


def _remove_standalone_plugin(tx: Transaction, node: str) -> None:
    """Two plugins on one node would take each other's devices away."""
    for pod in tx.select(POD, PLUGIN_NAMESPACE):
        if pod["spec"].get("nodeName") == node:
            tx.remove(pod)


def _namespace(now: str) -> Manifest:
    meta = {"name": NAMESPACE, "creationTimestamp": now}
    status = {"phase": "Active"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta, "status": status}


def _manager(now: str, config_map: str | None) -> Manifest:
    spec: Manifest = {
        "nodeSelector": {MANAGED: "true"},
        "containers": [
            {
                "name": "nvidia-mig-manager",
                "image": "registry.example/nvidia/k8s-mig-manager:v0.15.0",
            }
        ],
    }
    if config_map is not None:
        spec["volumes"] = [{"name": "mig-parted-config", "configMap": {"name": config_map}}]
    meta = {"name": "nvidia-mig-manager", "namespace": NAMESPACE, "creationTimestamp": now}
    return _daemon_set(meta, MANAGER_LABELS, spec)


def _plugin(now: str) -> Manifest:
    name = "nvidia-device-plugin-daemonset"
    labels = {"app": name, **PLUGIN_LABELS}
    spec = {
        "nodeSelector": {_PLUGIN: "true"},
        "containers": [
            {"name": name, "image": "registry.example/nvidia/k8s-device-plugin:v0.20.0"}
        ],
    }
    meta = {"name": name, "namespace": PLUGIN_NAMESPACE, "creationTimestamp": now}
    return _daemon_set(meta, labels, spec)


def _daemon_set(meta: Manifest, labels: dict[str, str], spec: Manifest) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
