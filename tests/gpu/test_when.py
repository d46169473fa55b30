"""When a change starts: at a set time, after the last Pod, or not at all when it is called off."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import ChangeFreeze, Gpu, Node, Operation
from gpu.ports import NODE
from gpu.reconcilers import operations as driving
from gpu.services import freezes, operations
from gpu.services.errors import WrongStateError
from gpu.services.operations import Change
from portal.audit.models import AuditEvent
from tests.gpu.lab import drive, make_lab, take_over
from tests.gpu.people import People, make_people, signed_in

H200 = "gpu-h200-01"
State = Operation.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def cluster(people: People, tmp_path: Path) -> SimulatedCluster:
    return make_lab(tmp_path, nodes=[H200])


def free_gpu() -> Gpu:
    """Return a GPU on which nothing runs."""
    return Gpu.objects.select_related("node").get(node__name=H200, index=1)


def layout_of(gpu: Gpu) -> dict[str, object]:
    pairs = [[item.profile, item.start] for item in gpu.instances.order_by("memory_slices")]
    return {"mig": gpu.is_mig_enabled, "instances": pairs}


def plan(people: People, *, hours: float = 2) -> Operation:
    gpu = free_gpu()
    desired = {"mig": True, "instances": [["3g.71gb", 4]]}
    start_at = timezone.now() + timedelta(hours=hours)
    change = Change(gpu=gpu, desired=desired, start_at=start_at, expected=layout_of(gpu))
    return operations.start_operation(change, actor=people.grace)


def bring_forward(operation: Operation) -> None:
    """Let the set time come."""
    now = timezone.now()
    Operation.objects.filter(pk=operation.pk).update(start_at=now, next_look_at=now)


def is_schedulable(cluster: SimulatedCluster) -> bool:
    return not cluster.read(NODE, H200)["spec"].get("unschedulable", False)


def waiting(people: People, cluster: SimulatedCluster) -> Operation:
    """Return an operation that waits for a Pod, with its node cordoned."""
    gpu = Gpu.objects.select_related("node").filter(node__name=H200, instances__isnull=False)[0]
    change = Change(gpu=gpu, desired={"mig": False, "instances": []}, wait_hours=3)
    operation = operations.start_operation(change, actor=people.grace)
    return drive(operation, cluster, until=lambda row: row.state == State.DRAINING)


def test_a_planned_change_holds_nothing_until_its_time(
    cluster: SimulatedCluster, people: People
) -> None:
    operation = plan(people)
    driving.advance(operation.pk, cluster=cluster)
    operation.refresh_from_db()
    assert operation.state == State.PLANNED
    assert is_schedulable(cluster)
    assert not Operation.objects.under_way().exists()

    bring_forward(operation)

    assert drive(operation, cluster).state == State.DONE


def test_a_planned_change_fails_when_the_preview_no_longer_holds(
    cluster: SimulatedCluster, people: People
) -> None:
    operation = plan(people)
    other = Change(gpu=free_gpu(), desired={"mig": True, "instances": [["1g.18gb", 0]]})
    drive(operations.start_operation(other, actor=people.grace), cluster)
    bring_forward(operation)

    ended = drive(operation, cluster)

    assert (ended.state, ended.failure_code) == (State.ROLLED_BACK, "preview_outdated")
    assert "not as the preview showed it" in ended.failure_said
    assert is_schedulable(cluster)


def test_a_planned_change_waits_for_a_freeze_and_for_others(
    cluster: SimulatedCluster, people: People
) -> None:
    operation = plan(people)
    node = Node.objects.get(name=H200)
    ends_at = timezone.now() + timedelta(hours=5)
    freeze = freezes.freeze(node, reason="A deadline", ends_at=ends_at, actor=people.grace)
    bring_forward(operation)
    driving.advance(operation.pk, cluster=cluster)
    operation.refresh_from_db()
    assert operation.state == State.PLANNED
    assert "A deadline" in operation.steps.get().said

    freezes.lift(freeze.pk, actor=people.grace)
    assert ChangeFreeze.objects.get().lifted_at is not None
    bring_forward(operation)
    assert drive(operation, cluster).state == State.DONE


def test_a_planned_change_is_called_off(
    cluster: SimulatedCluster, people: People, admin: Client
) -> None:
    operation = plan(people)
    assert "Call off" in admin.get(f"/operations/{operation.pk}/").content.decode()

    text = admin.post(f"/operations/{operation.pk}/call-off/", follow=True).content.decode()

    operation.refresh_from_db()
    assert (operation.state, operation.failure_code) == (State.ROLLED_BACK, "called_off")
    assert f"Called off by {people.grace.display_name}; nothing was changed." in text
    assert AuditEvent.objects.filter(verb="operation.called_off", actor=people.grace).exists()
    again = admin.post(f"/operations/{operation.pk}/call-off/", follow=True).content.decode()
    assert "cannot be called off any more" in again


def test_a_waiting_change_is_called_off_and_its_node_given_back(
    cluster: SimulatedCluster, people: People
) -> None:
    operation = waiting(people, cluster)
    assert not is_schedulable(cluster)
    assert operation.deadline_at is not None
    left = operation.deadline_at - timezone.now()
    assert timedelta(hours=2.9) < left <= timedelta(hours=3)

    operations.call_off(operation.pk, actor=people.grace)

    ended = drive(operation, cluster)
    assert (ended.state, ended.failure_code) == (State.ROLLED_BACK, "called_off")
    assert is_schedulable(cluster)
    take_over(cluster)


def test_what_is_being_written_cannot_be_called_off(
    cluster: SimulatedCluster, people: People
) -> None:
    operation = plan(people)
    Operation.objects.filter(pk=operation.pk).update(state=State.APPLYING)

    with pytest.raises(WrongStateError):
        operations.call_off(operation.pk, actor=people.grace)
