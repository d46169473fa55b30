"""The simulated lab in tests: at full speed, and workers that the test plays itself."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.models import Node, Operation, SliceRequest
from gpu.objects import NodeObject, PodObject
from gpu.ports import NODE, POD
from gpu.reconcilers import operations as driving
from gpu.reconcilers import queue
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.services import inventory, pools

_ROUNDS = 80


def make_lab(folder: Path, *, nodes: Collection[str]) -> SimulatedCluster:
    """Build the lab and read some of its nodes into the database."""
    cluster = SimulatedCluster(folder / "lab.sqlite3", pace=0.0)
    build_lab(cluster)
    take_over(cluster, nodes)
    while read_unread_nodes(cluster=cluster):
        pass
    pools.refresh_pools_now()
    return cluster


def take_over(cluster: SimulatedCluster, nodes: Collection[str] = ()) -> None:
    """Do what the watcher does, once, for the nodes that are known or named."""
    wanted = set(nodes) or set(Node.objects.values_list("name", flat=True))
    found = [NodeObject.from_manifest(item) for item in cluster.list(NODE).items]
    inventory.record_nodes(
        [node for node in found if node.name in wanted], now=timezone.now(), is_complete=True
    )
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD).items]
    inventory.record_pods([pod for pod in pods if pod.node in wanted], is_complete=True)


def drive(
    operation: Operation,
    cluster: SimulatedCluster,
    *,
    until: Callable[[Operation], bool] = lambda operation: operation.is_finished,
) -> Operation:
    """Do what a worker does until the operation is as wanted."""
    for _round in range(_ROUNDS):
        driving.advance(operation.pk, cluster=cluster)
        operation.refresh_from_db()
        if until(operation):
            return operation
        Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
    pytest.fail(f"still {operation.state}: {[s.said for s in operation.steps.all()]}")


def work(slice_request: SliceRequest, cluster: SimulatedCluster) -> SliceRequest:
    """Do what the workers do for one request, until nothing moves any more."""
    for _round in range(4):
        queue.advance_request(slice_request.pk, cluster=cluster)
        for operation in Operation.objects.open():
            drive(operation, cluster)
    slice_request.refresh_from_db()
    return slice_request
