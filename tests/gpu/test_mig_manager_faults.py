"""Layouts changed through a mig-manager that fails, lies or hangs, and workers that die."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.manifests import MIG_CONFIG_LABEL, MIG_PAUSED, MIG_STATE_LABEL
from gpu.models import Operation
from gpu.ports import NODE
from gpu.reconcilers import operations as driving
from gpu.views.recovery import recovery_of
from tests.gpu.lab import drive, take_over
from tests.gpu.managed import (
    DEPLOYED,
    EMPTY,
    NODE_NAME,
    WHOLE,
    State,
    applied,
    cut_by_hand,
    empty_by_hand,
    label_of,
    let_go_of_instances,
    make_late,
    managed_lab,
    node_of,
    on_gpu,
    open_change,
    said,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The lab at full speed, its H100 node under a mig-manager."""
    return managed_lab(tmp_path)


def test_t01_pending_for_ever_ends_with_labels_restored_and_the_old_layout(
    cluster: SimulatedCluster,
) -> None:
    before = node_of(cluster).allocatable
    cluster.set_fault(NODE_NAME, "mig_manager_client_stays", on=True)
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "is changing" in said(found, "applying"))
    assert node_of(cluster).labels[DEPLOYED] == MIG_PAUSED
    make_late(operation)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_stuck")
    assert "timed out" in operation.failure_said
    assert node_of(cluster).labels[DEPLOYED] == "true"
    assert node_of(cluster).labels[MIG_STATE_LABEL] == "success"
    assert (on_gpu(cluster), node_of(cluster).allocatable) == ([], before)
    assert node_of(cluster).is_schedulable


def test_t02_success_without_the_mode_is_needs_reboot_and_never_green(
    cluster: SimulatedCluster,
) -> None:
    let_go_of_instances(cluster)
    cluster.set_fault(NODE_NAME, "mig_mode_needs_reboot", on=True)
    operation = drive(open_change(WHOLE, ("7g.80gb", 0)), cluster)
    assert operation.failure_code == "needs_reboot"
    assert "reboot" in operation.failure_said
    assert operation.state == State.ROLLED_BACK


def test_t03_gpu_held_by_somebody_outside_fails_with_the_layout_unchanged(
    cluster: SimulatedCluster,
) -> None:
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=True)
    operation = drive(open_change(EMPTY, ("3g.40gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_failed")
    assert "In use by another client" in operation.failure_said
    assert on_gpu(cluster) == [("7g.80gb", 0)]
    assert not any(v == MIG_PAUSED for v in node_of(cluster).labels.values())
    assert node_of(cluster).is_schedulable


def test_t04_manager_is_started_anew_once_when_an_instance_cannot_be_destroyed(
    cluster: SimulatedCluster,
) -> None:
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=True)
    operation = open_change(EMPTY, ("3g.40gb", 0))
    drive(operation, cluster, until=lambda found: bool(found.memory.get("mig_old_pods")))
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=False)
    drive(operation, cluster)
    assert operation.state == State.DONE
    assert on_gpu(cluster) == [("3g.40gb", 0)]


def test_t06_devices_that_never_come_back_are_not_a_success(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.AWAITING_ALLOCATABLE)
    assert node_of(cluster).labels[MIG_STATE_LABEL] == "success"
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now())
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=False)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "deadline")


def test_t08_success_that_changed_nothing_is_found_out(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "mig_manager_lies", on=True)
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "not as wanted" in said(found, "applying"))
    make_late(operation)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "success_without_devices")


def test_manager_that_never_answers_is_given_up(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "mig_manager_deaf", on=True)
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "notices" in said(found, "applying"))
    make_late(operation)
    drive(operation, cluster, until=lambda found: found.state == State.ROLLING_BACK)
    assert operation.failure_code == "mig_manager_silent"


def test_t29_layout_that_counts_cannot_bring_back_needs_an_operator(
    cluster: SimulatedCluster,
) -> None:
    cut_by_hand(cluster, EMPTY, ("1g.10gb", 3))
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.APPLYING)
    cluster.set_fault(NODE_NAME, "create_fails", on=True)
    drive(operation, cluster)
    assert operation.state == State.NEEDS_OPERATOR
    assert operation.failure_code == "mig_manager_failed"
    assert "counts" in said(operation, "rolling_back")
    assert not node_of(cluster).is_schedulable
    take_over(cluster)
    recovery = recovery_of(Operation.objects.get(pk=operation.pk))
    assert recovery is not None
    commands = "\n".join(line for step in recovery.next_steps for line in step.commands)
    back = operation.memory["mig_back"]["name"]
    assert "nvidia-smi mig -i 3 -cgi 19:3" in commands
    assert f"kubectl label node {NODE_NAME} {MIG_CONFIG_LABEL}={back} --overwrite" in commands
    assert "kubectl -n gpu-operator delete pod -l app=nvidia-mig-manager" in commands
    assert f"kubectl uncordon {NODE_NAME}" in commands


def test_t49_nothing_is_written_while_mig_manager_is_busy(cluster: SimulatedCluster) -> None:
    labels = {MIG_CONFIG_LABEL: "somebodys", MIG_STATE_LABEL: "pending"}
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": labels}})
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {MIG_STATE_LABEL: "pending"}}})
    operation = drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_busy")
    assert label_of(cluster) == "somebodys"


def test_t49_label_that_says_what_the_devices_are_not_stops_a_change(
    cluster: SimulatedCluster,
) -> None:
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    label = label_of(cluster)
    empty_by_hand(cluster, EMPTY)
    operation = drive(open_change(EMPTY, ("3g.40gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_label_disagrees")
    assert label_of(cluster) == label


def test_t49_label_that_somebody_else_takes_is_not_fought_over(cluster: SimulatedCluster) -> None:
    operation = open_change(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.APPLYING)
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {MIG_CONFIG_LABEL: "somebodys"}}})
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_label_taken")
    assert (label_of(cluster), on_gpu(cluster)) == ("somebodys", [])


def _mortal(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let a worker die before each write that it has not died of yet, and return those writes."""
    died: set[str] = set()

    def dying(method: str) -> Callable[..., Any]:
        real = getattr(cluster, method)

        def call(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401  # handed on
            key = f"{method} {arguments}"[:300]
            if key not in died:
                died.add(key)
                raise KeyboardInterrupt
            return real(*arguments, **more)

        return call

    for method in ("patch", "create", "delete"):
        monkeypatch.setattr(cluster, method, dying(method))
    return died


def _survive(operation: Operation, cluster: SimulatedCluster) -> None:
    """Do what worker after worker does, until the operation has ended."""
    for _round in range(200):
        try:
            driving.advance(operation.pk, cluster=cluster)
        except KeyboardInterrupt:
            gone = timezone.now() - timedelta(seconds=1)
            Operation.objects.filter(pk=operation.pk).update(lease_until=gone)
        operation.refresh_from_db()
        if operation.is_finished:
            return
        Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
    pytest.fail(f"still {operation.state}: {[s.said for s in operation.steps.all()]}")


def test_worker_that_dies_at_any_write_is_followed_by_another(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = open_change(EMPTY, ("1g.10gb", 0))
    died = _mortal(cluster, monkeypatch)
    _survive(operation, cluster)
    assert (operation.state, operation.failure_said) == (State.DONE, "")
    assert len(died) >= 8
    assert applied(cluster) == 1


def test_worker_that_dies_at_any_write_on_the_way_back_is_followed_by_another(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    before = label_of(cluster)
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = open_change(EMPTY, ("1g.10gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.AWAITING_ALLOCATABLE)
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now())
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=False)
    died = _mortal(cluster, monkeypatch)
    _survive(operation, cluster)
    assert operation.state == State.ROLLED_BACK
    assert (label_of(cluster), on_gpu(cluster)) == (before, [("7g.80gb", 0)])
    assert len(died) >= 3
