"""A node of the simulated lab that a mig-manager changes, and what its tests look at."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.adapters.simulated.operator_parts import give_mig_manager
from gpu.adapters.smi.hardware import create_compute, create_instance, write_json
from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL
from gpu.models import Gpu, Operation
from gpu.objects import NodeObject, PodObject
from gpu.ports import NODE, POD, Scope
from gpu.services import operations
from gpu.services.operations import Change
from tests.gpu.lab import make_lab, take_over

NODE_NAME = "gpu-h100-01"
BUSY, HALVES, EMPTY, WHOLE = 0, 2, 3, 7
DEPLOYED = f"{DEPLOY_PREFIX}gpu-feature-discovery"
State = Operation.State

type Pair = tuple[str, int]


def managed_lab(folder: Path, **more: Any) -> SimulatedCluster:  # noqa: ANN401  # handed on
    cluster = make_lab(folder, nodes=[NODE_NAME])
    give_mig_manager(cluster, NODE_NAME, **more)
    cluster.list(POD)
    take_over(cluster)
    return cluster


def gpu_row(index: int = EMPTY) -> Gpu:
    return Gpu.objects.get(node__name=NODE_NAME, index=index)


def open_change(index: int, *instances: Pair, mig: bool = True, **more: object) -> Operation:
    desired = {"mig": mig, "instances": [list(pair) for pair in instances]}
    executor = Operation.Executor.MIG_MANAGER
    with transaction.atomic():
        change = Change(gpu=gpu_row(index), desired=desired, executor=executor, **more)  # type: ignore[arg-type]  # by name
        return operations.open_operation(change, actor=None)


def node_of(cluster: SimulatedCluster) -> NodeObject:
    return NodeObject.from_manifest(cluster.read(NODE, NODE_NAME))


def label_of(cluster: SimulatedCluster) -> str | None:
    return node_of(cluster).labels.get(MIG_CONFIG_LABEL)


def recorded(index: int = EMPTY) -> list[Pair]:
    return [(i.profile, i.start) for i in gpu_row(index).instances.order_by("memory_slices")]


def on_gpu(cluster: SimulatedCluster, index: int = EMPTY) -> list[Pair]:
    found = cluster.files.state(NODE_NAME)["gpus"][index]["instances"]
    return sorted(((i["profile"], i["start"]) for i in found), key=lambda pair: pair[1])


def make_late(operation: Operation) -> None:
    """Let the watchdogs see that an hour has passed since the label was written."""
    row = Operation.objects.get(pk=operation.pk)
    row.memory["mig_since"] = (timezone.now() - timedelta(hours=1)).isoformat()
    row.save(update_fields=["memory"])


def applied(cluster: SimulatedCluster) -> int:
    return sum("mig-parted" in line for line in cluster.files.history(NODE_NAME))


def let_go_of_instances(cluster: SimulatedCluster) -> None:
    """End the Pods on instances, and leave no layout that counts could move."""
    scope = Scope(field_selector=f"spec.nodeName={NODE_NAME}")
    for pod in [PodObject.from_manifest(item) for item in cluster.list(POD, scope).items]:
        if any("mig-" in key for key in pod.resources):
            cluster.delete(POD, pod.name, pod.namespace, grace_s=0)
    for index in (BUSY, HALVES):
        empty_by_hand(cluster, index)
    [plugin] = [
        p
        for p in cluster.list(POD, Scope("nvidia-device-plugin")).items
        if p["spec"]["nodeName"] == NODE_NAME
    ]
    cluster.delete(POD, plugin["metadata"]["name"], "nvidia-device-plugin", grace_s=0)


def said(operation: Operation, state: str) -> str:
    return " ".join(step.said for step in operation.steps.filter(state=state))


def plugin_uids(cluster: SimulatedCluster) -> set[str]:
    scope = Scope("", "app.kubernetes.io/name=nvidia-device-plugin", f"spec.nodeName={NODE_NAME}")
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD, scope).items]
    return {pod.uid for pod in pods}


def empty_by_hand(cluster: SimulatedCluster, index: int) -> None:
    state = cluster.files.state(NODE_NAME)
    state["gpus"][index]["instances"] = []
    _put(cluster, state)


def cut_by_hand(cluster: SimulatedCluster, index: int, pair: Pair) -> None:
    state = cluster.files.state(NODE_NAME)
    gpu = state["gpus"][index]
    profile = next(p for p in gpu["profiles"] if p["name"] == pair[0])
    made = create_instance(gpu, profile, pair[1])
    assert isinstance(made, dict)
    create_compute(gpu, made)
    _put(cluster, state)


def _put(cluster: SimulatedCluster, state: dict[str, Any]) -> None:
    write_json(str(cluster.files.of(NODE_NAME) / "state.json"), state)
