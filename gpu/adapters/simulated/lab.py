"""The lab that the demo shows: eight nodes with 44 GPUs, and tenants' Pods that run on them."""

from collections.abc import Iterator
from typing import Any

from gpu.adapters.simulated import clockwork
from gpu.adapters.simulated.cluster import SimulatedCluster
from gpu.adapters.simulated.installation import (
    AGE_S,
    PCI_LABEL,
    Cut,
    LabNode,
    hardware_of,
    node_body,
    resource_of,
)
from gpu.adapters.simulated.registration import PLUGIN_LABELS
from gpu.adapters.simulated.store import Transaction
from gpu.adapters.simulated.tenants import NAMESPACES, Place, tenant_bodies
from gpu.adapters.simulated.world import World, stamp
from gpu.ports import NODE

PLUGIN_NAMESPACE = "nvidia-device-plugin"
PLUGIN_CONFIGS = "nvidia-device-plugin-configs"
_PLUGIN_IMAGE = "registry.example/nvidia/k8s-device-plugin:v0.20.0"
_BUILT = "lab"
_MOST_STEPS = 50

_BALANCED: tuple[Cut, ...] = (("1g", 0), ("1g", 1), ("2g", 2), ("3g", 4))
_SEVEN: tuple[Cut, ...] = tuple(("1g", start) for start in range(7))
_HALVES: tuple[Cut, ...] = (("4g", 0), ("3g", 4))
_FRAGMENTED: tuple[Cut, ...] = (("1g", 1), ("2g", 4))

_CONFIGS = {
    "default": "version: v1\nflags:\n  migStrategy: mixed\n",
    "time-slicing-4": """\
version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
""",
}

NODES = (
    LabNode(
        "gpu-a100-01",
        "NVIDIA A100-SXM4-40GB",
        (_BALANCED, _BALANCED, _SEVEN, _HALVES, _FRAGMENTED, (), None, None),
        128,
        1024,
    ),
    LabNode(
        "gpu-a100-02",
        "NVIDIA A100-SXM4-40GB",
        (_SEVEN, _BALANCED, _FRAGMENTED, None, None, None, None, None),
        128,
        1024,
    ),
    LabNode(
        "gpu-a100-03",
        "NVIDIA A100-SXM4-80GB",
        (_BALANCED, _HALVES, (), None),
        96,
        1024,
    ),
    LabNode(
        "gpu-h100-01",
        "NVIDIA H100 80GB HBM3",
        (_BALANCED, _SEVEN, _HALVES, (), None, None, None, None),
        192,
        2048,
    ),
    LabNode("gpu-h200-01", "NVIDIA H200", (_BALANCED, (), None, None), 192, 2048),
    LabNode(
        "gpu-a30-01",
        "NVIDIA A30",
        ((("1g", 0), ("1g", 1), ("2g", 2)), (("2g", 0), ("2g", 2)), (), None),
        64,
        512,
    ),
    LabNode("gpu-l40s-01", "NVIDIA L40S", (None,) * 4, 96, 768, config="time-slicing-4"),
    LabNode(
        "gpu-rtx-01",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ((("1g", 0), ("1g", 3), ("2g", 6)), (), None, None),
        96,
        768,
    ),
)


def build_lab(cluster: SimulatedCluster) -> bool:
    """Install the lab unless it is there already; return whether it was installed.

    It is there whole or not at all, however early this process dies.
    """
    now = cluster.clock()
    with cluster.store.transaction() as tx:
        if tx.fact(_BUILT):
            return False
        for node in NODES:
            cluster.files.install(node.name, hardware_of(node))
            tx.put(node_body(node, now))
        for body in _infrastructure(now):
            tx.put(body)
        _settle(cluster, tx)
        for body in tenant_bodies(_places(tx), now):
            tx.put(body)
        _settle(cluster, tx)
        tx.set_fact(_BUILT, "built")
        tx.wake(now)
    return True


def _settle(cluster: SimulatedCluster, tx: Transaction) -> None:
    """Let everything happen that follows, without any delay."""
    for _step in range(_MOST_STEPS):
        if not clockwork.step(World(tx, cluster.files, cluster.clock(), pace=0.0)):
            return


def _places(tx: Transaction) -> dict[str, Place]:
    products = {
        body["metadata"]["name"]: body["metadata"]["labels"]["nvidia.com/gpu.product"]
        for body in tx.select(NODE)
    }
    families = ("", "1g", "2g", "3g", "4g")
    return {
        node.name: Place(
            products[node.name],
            {
                family: resource_of(node, family)
                for family in families
                if not family or any(_has(layout, family) for layout in node.layouts)
            },
        )
        for node in NODES
    }


def _has(layout: tuple[Cut, ...] | None, family: str) -> bool:
    return any(name == family for name, _start in layout or ())


def _infrastructure(now: float) -> Iterator[dict[str, Any]]:
    for name in ("default", "kube-system", PLUGIN_NAMESPACE, *NAMESPACES):
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "creationTimestamp": stamp(now - AGE_S)},
            "status": {"phase": "Active"},
        }
    template = {
        "metadata": {"labels": PLUGIN_LABELS},
        "spec": {
            "nodeSelector": {PCI_LABEL: "true"},
            "containers": [{"name": "nvidia-device-plugin-ctr", "image": _PLUGIN_IMAGE}],
            "volumes": [{"name": "available-configs", "configMap": {"name": PLUGIN_CONFIGS}}],
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": PLUGIN_CONFIGS,
            "namespace": PLUGIN_NAMESPACE,
            "creationTimestamp": stamp(now - AGE_S),
        },
        "data": dict(_CONFIGS),
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-device-plugin",
            "namespace": PLUGIN_NAMESPACE,
            "creationTimestamp": stamp(now - AGE_S),
        },
        "spec": {"selector": {"matchLabels": PLUGIN_LABELS}, "template": template},
    }
