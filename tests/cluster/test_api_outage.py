"""The API server dies for half a minute in the middle of an operation: it ends well by itself."""

import time

import pytest

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.models import Gpu, Operation
from gpu.objects import NodeObject
from gpu.ports import NODE
from gpu.reconcilers import operations as driving
from tests.cluster.node import LabNode
from tests.cluster.test_operation import cluster, finish, node, open_change, read_gpus

__all__ = ["cluster", "node"]

pytestmark = [pytest.mark.cluster, pytest.mark.django_db, pytest.mark.timeout(300)]

AWAY_S = 30


def drive_until(operation: Operation, cluster: KubernetesCluster, state: str) -> None:
    """Do what the worker does until the operation has come to a state."""
    end = time.monotonic() + 60
    while operation.state != state:
        driving.advance(operation.pk, cluster=cluster)
        operation.refresh_from_db()
        assert not operation.is_finished, operation.failure_said
        assert time.monotonic() < end, operation.state
        time.sleep(0.05)


def test_an_operation_waits_for_the_api_server_and_ends_well(
    node: LabNode, cluster: KubernetesCluster
) -> None:
    read_gpus(cluster)
    gpu = Gpu.objects.get(node__name=node.name, index=0)
    operation = open_change(gpu, ["3g.20gb", 0])
    drive_until(operation, cluster, "applying")

    node.control_plane.kill_api_server()
    try:
        end = time.monotonic() + AWAY_S
        while time.monotonic() < end:
            driving.advance(operation.pk, cluster=cluster)
            time.sleep(0.5)
        operation.refresh_from_db()
        assert operation.state == "applying"
        assert "does not answer" in operation.steps.get(state="applying").said
    finally:
        node.control_plane.start_api_server()

    assert finish(operation, cluster).state == "done"
    assert NodeObject.from_manifest(cluster.read(NODE, node.name)).is_schedulable
    commands = operation.steps.get(state="applying").commands
    assert sum("-cgi" in line for line in commands) == 1
