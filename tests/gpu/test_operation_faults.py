"""Operations in the simulated lab: what can go wrong does, and the end is always a clean one."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import Gpu, GpuInstance, Operation
from gpu.objects import NodeObject, PodObject
from gpu.ports import NODE, POD, Scope
from gpu.reconcilers import operations as driving
from gpu.reconcilers.looks import Context
from gpu.services import operations
from gpu.services.errors import ServiceError
from gpu.services.operations import Change
from tests import factories
from tests.gpu.lab import drive, make_lab

pytestmark = pytest.mark.django_db

NODE_NAME = "gpu-h200-01"
EMPTY_GPU = 1
BUSY_GPU = 0


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The lab at full speed, with the GPUs of one node read."""
    return make_lab(tmp_path, nodes=[NODE_NAME])


def _gpu(index: int = EMPTY_GPU) -> Gpu:
    return Gpu.objects.get(node__name=NODE_NAME, index=index)


def _open(gpu: Gpu, *instances: tuple[str, int], **more: object) -> Operation:
    desired = {"mig": True, "instances": [list(pair) for pair in instances]}
    with transaction.atomic():
        change = Change(gpu=gpu, desired=desired, **more)  # type: ignore[arg-type]  # by name
        return operations.open_operation(change, actor=None)


def _expire(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now())


def _node(cluster: SimulatedCluster) -> NodeObject:
    return NodeObject.from_manifest(cluster.read(NODE, NODE_NAME))


def test_change_is_made_proved_and_recorded(cluster: SimulatedCluster) -> None:
    operation = drive(_open(_gpu(), ("3g.71gb", 4), ("1g.18gb", 0)), cluster)
    assert operation.state == Operation.State.DONE
    assert [step.state for step in operation.steps.all()] == [
        "planned",
        "approved",
        "cordoning",
        "draining",
        "applying",
        "restarting_plugin",
        "awaiting_allocatable",
        "verifying",
        "uncordoning",
    ]
    seen = operation.steps.get(state="verifying").evidence
    assert seen["pod_without_request_sees"] == []
    new = {i.mig_uuid for i in GpuInstance.objects.filter(gpu=_gpu())}
    assert new <= {row["devices"][0]["uuid"] for row in seen["pods"]}
    assert _node(cluster).is_schedulable
    assert [i.profile for i in _gpu().instances.order_by("memory_slices")] == [
        "1g.18gb",
        "3g.71gb",
    ]


def test_undo_puts_the_layout_back(cluster: SimulatedCluster) -> None:
    admin = factories.make_user("root", role="admin")
    done = drive(_open(_gpu(), ("7g.141gb", 0)), cluster)
    undo = drive(operations.undo_operation(done.pk, actor=admin), cluster)
    assert (undo.state, undo.undoes_id) == (Operation.State.DONE, done.pk)
    assert _gpu().instances.count() == 0
    with pytest.raises(ServiceError, match="changed again"):
        operations.undo_operation(done.pk, actor=admin)


def test_second_operation_on_a_node_is_refused_while_one_is_open(
    cluster: SimulatedCluster,
) -> None:
    _open(_gpu(), ("7g.141gb", 0))
    with pytest.raises(ServiceError, match="being changed already"):
        _open(_gpu(2), ("7g.141gb", 0))


def test_refusal_of_the_driver_is_rolled_back(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "create_fails", on=True)
    operation = drive(_open(_gpu(), ("7g.141gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "apply_refused")
    assert "Insufficient Resources" in operation.failure_said
    assert _node(cluster).is_schedulable
    assert _gpu().instances.count() == 0


def test_plugin_that_never_reports_is_rolled_back_as_far_as_it_goes(
    cluster: SimulatedCluster,
) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = _open(_gpu(), ("7g.141gb", 0))
    waits = Operation.State.AWAITING_ALLOCATABLE
    drive(operation, cluster, until=lambda found: found.state == waits)
    _expire(operation)
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=False)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "deadline")
    assert _node(cluster).is_schedulable
    assert _node(cluster).allocatable["nvidia.com/gpu"] == 2


def test_roll_back_that_fails_asks_for_an_operator_and_keeps_the_cordon(
    cluster: SimulatedCluster,
) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = _open(_gpu(), ("7g.141gb", 0))
    waits = Operation.State.AWAITING_ALLOCATABLE
    drive(operation, cluster, until=lambda found: found.state == waits)
    _expire(operation)
    drive(operation, cluster, until=lambda found: found.memory.get("back") == "allocatable")
    _expire(operation)
    drive(operation, cluster)
    assert operation.state == Operation.State.NEEDS_OPERATOR
    assert not _node(cluster).is_schedulable


def test_node_that_is_not_ready_is_left_alone(cluster: SimulatedCluster) -> None:
    operation = _open(_gpu(), ("7g.141gb", 0))
    cluster.set_fault(NODE_NAME, "node_not_ready", on=True)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "node_not_ready")
    assert cluster.files.history(NODE_NAME) == []


def test_pod_in_the_way_is_waited_for_and_nothing_is_touched(cluster: SimulatedCluster) -> None:
    operation = _open(_gpu(BUSY_GPU))
    drive(
        operation,
        cluster,
        until=lambda found: "team-nlp/longcontext-eval" in _said(found, "draining"),
    )
    assert operation.state == Operation.State.DRAINING
    assert cluster.files.history(NODE_NAME) == []
    cluster.delete(POD, "longcontext-eval", "team-nlp", grace_s=0)
    drive(operation, cluster)
    assert operation.state == Operation.State.DONE
    assert _gpu(BUSY_GPU).instances.count() == 0


def test_named_pod_is_evicted_and_an_unnamed_one_stops_the_change(
    cluster: SimulatedCluster,
) -> None:
    operation = _open(_gpu(BUSY_GPU), pods_in_the_way=Operation.PodsInTheWay.EVICT)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "pod_came_since")
    pod = PodObject.from_manifest(cluster.read(POD, "longcontext-eval", "team-nlp"))
    operation = _open(
        _gpu(BUSY_GPU),
        pods_in_the_way=Operation.PodsInTheWay.EVICT,
        named_pods=(f"{pod.key}/{pod.uid}",),
    )
    drive(operation, cluster)
    assert operation.state == Operation.State.DONE
    assert cluster.list(POD, Scope("team-nlp", "", "metadata.name=longcontext-eval")).items == ()


def test_api_server_that_is_away_for_a_while_only_delays(cluster: SimulatedCluster) -> None:
    operation = _open(_gpu(), ("7g.141gb", 0))
    drive(operation, cluster, until=lambda found: found.state != "approved")
    cluster.set_fault("*", "api_unreachable", on=True)
    state = operation.state
    Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
    driving.advance(operation.pk, cluster=cluster)
    operation.refresh_from_db()
    assert operation.state == state
    cluster.set_fault("*", "api_unreachable", on=False)
    drive(operation, cluster)
    assert operation.state == Operation.State.DONE


def test_node_that_somebody_had_cordoned_stays_cordoned(cluster: SimulatedCluster) -> None:
    cluster.patch(NODE, NODE_NAME, {"spec": {"unschedulable": True}})
    operation = drive(_open(_gpu(), ("7g.141gb", 0)), cluster)
    assert operation.state == Operation.State.DONE
    assert not _node(cluster).is_schedulable


def _said(operation: Operation, state: str) -> str:
    return " ".join(step.said for step in operation.steps.filter(state=state))


def test_objects_of_an_earlier_installation_are_never_taken_for_ones_own(
    cluster: SimulatedCluster,
) -> None:
    now = timezone.now()
    ours, before = (
        Context(Operation(pk=1, opened_at=opened), cluster)
        for opened in (now, now - timedelta(minutes=20))
    )

    assert ours.object_name("apply", 1) != before.object_name("apply", 1)
    assert ours.object_name("apply", 1) == ours.object_name("apply", 1)
