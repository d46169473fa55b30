"""Layouts changed through mig-manager in the simulated lab: habits, faults, the way back."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import transaction
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.adapters.simulated.operator_parts import CONFIG_MAP_NAME, NAMESPACE, give_mig_manager
from gpu.adapters.smi.hardware import create_compute, create_instance, write_json
from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL, MIG_PAUSED, MIG_STATE_LABEL
from gpu.models import Gpu, Node, Operation
from gpu.objects import NodeObject, PodObject
from gpu.ports import CONFIG_MAP, NODE, POD, Scope
from gpu.reconcilers import operations as driving
from gpu.selectors.executors import executor_for
from gpu.services import operations
from gpu.services.operations import Change
from gpu.views.recovery import recovery_of
from tests import factories
from tests.gpu.lab import drive, make_lab, take_over

pytestmark = pytest.mark.django_db

NODE_NAME = "gpu-h100-01"
BUSY, HALVES, EMPTY, WHOLE = 0, 2, 3, 7
DEPLOYED = f"{DEPLOY_PREFIX}gpu-feature-discovery"
State = Operation.State

type Pair = tuple[str, int]


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The lab at full speed, its H100 node under a mig-manager."""
    return _lab(tmp_path)


def _lab(folder: Path, **more: Any) -> SimulatedCluster:  # noqa: ANN401  # handed on
    cluster = make_lab(folder, nodes=[NODE_NAME])
    give_mig_manager(cluster, NODE_NAME, **more)
    cluster.list(POD)
    take_over(cluster)
    return cluster


def _gpu(index: int = EMPTY) -> Gpu:
    return Gpu.objects.get(node__name=NODE_NAME, index=index)


def _open(index: int, *instances: Pair, mig: bool = True, **more: object) -> Operation:
    desired = {"mig": mig, "instances": [list(pair) for pair in instances]}
    executor = Operation.Executor.MIG_MANAGER
    with transaction.atomic():
        change = Change(gpu=_gpu(index), desired=desired, executor=executor, **more)  # type: ignore[arg-type]  # by name
        return operations.open_operation(change, actor=None)


def _node(cluster: SimulatedCluster) -> NodeObject:
    return NodeObject.from_manifest(cluster.read(NODE, NODE_NAME))


def _label(cluster: SimulatedCluster) -> str | None:
    return _node(cluster).labels.get(MIG_CONFIG_LABEL)


def _layout(index: int = EMPTY) -> list[Pair]:
    return [(i.profile, i.start) for i in _gpu(index).instances.order_by("memory_slices")]


def _on_gpu(cluster: SimulatedCluster, index: int = EMPTY) -> list[Pair]:
    found = cluster.files.state(NODE_NAME)["gpus"][index]["instances"]
    return sorted(((i["profile"], i["start"]) for i in found), key=lambda pair: pair[1])


def _late(operation: Operation) -> None:
    """Let the watchdogs see that an hour has passed since the label was written."""
    row = Operation.objects.get(pk=operation.pk)
    row.memory["mig_since"] = (timezone.now() - timedelta(hours=1)).isoformat()
    row.save(update_fields=["memory"])


def _writes(cluster: SimulatedCluster) -> int:
    return sum("mig-parted" in line for line in cluster.files.history(NODE_NAME))


def test_node_with_a_mig_manager_is_changed_by_it(cluster: SimulatedCluster) -> None:
    node = Node.objects.get(name=NODE_NAME)
    assert executor_for(node) == Operation.Executor.MIG_MANAGER
    assert executor_for(Node(labels={})) == Operation.Executor.NVIDIA_SMI
    assert executor_for(Node(labels={f"{DEPLOY_PREFIX}mig-manager": "false"})) == "nvidia-smi"
    assert executor_for(Node(labels={MIG_CONFIG_LABEL: "x", MIG_STATE_LABEL: "success"})) == (
        Operation.Executor.MIG_MANAGER
    )


def test_change_is_made_proved_and_undone(cluster: SimulatedCluster) -> None:
    before = _node(cluster)
    others = [_on_gpu(cluster, index) for index in (0, 1, 2)]
    plugin = _plugin_uids(cluster)
    done = drive(_open(EMPTY, ("1g.10gb", 0), ("3g.40gb", 4)), cluster)
    assert (done.state, done.failure_said) == (State.DONE, "")
    assert _layout() == _on_gpu(cluster) == [("1g.10gb", 0), ("3g.40gb", 4)]
    assert [_on_gpu(cluster, index) for index in (0, 1, 2)] == others
    assert _plugin_uids(cluster).isdisjoint(plugin)  # the standalone chart's: restarted by us
    node = _node(cluster)
    assert node.allocatable["nvidia.com/mig-1g.10gb"] == (
        before.allocatable["nvidia.com/mig-1g.10gb"] + 1
    )
    assert node.is_schedulable
    seen = done.steps.get(state="verifying").evidence
    assert seen["pod_without_request_sees"] == []
    admin = factories.make_user("root", role="admin")
    undo = drive(operations.undo_operation(done.pk, actor=admin), cluster)
    assert (undo.state, undo.executor) == (State.DONE, Operation.Executor.MIG_MANAGER)
    assert _on_gpu(cluster) == []
    assert _node(cluster).allocatable == before.allocatable


def test_configuration_is_ours_named_by_its_content_and_never_edited(
    cluster: SimulatedCluster,
) -> None:
    drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    first = _label(cluster)
    drive(_open(EMPTY, *(("1g.10gb", start) for start in range(7))), cluster)
    body = cluster.read(CONFIG_MAP, CONFIG_MAP_NAME, NAMESPACE)
    configs = yaml.safe_load(body["data"]["config.yaml"])["mig-configs"]
    assert {"all-disabled", first, _label(cluster)} <= configs.keys()
    entry = next(e for e in configs[first] if e["devices"] == [EMPTY])
    assert entry == {"devices": [EMPTY], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}
    assert [e["devices"] for e in configs[first]] == [[0], [1], [2], [3]]  # those with MIG on


def test_operators_own_plugin_is_left_to_mig_manager(tmp_path: Path) -> None:
    cluster = _lab(tmp_path, with_plugin=True)
    done = drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    assert done.state == State.DONE
    assert done.steps.get(state="restarting_plugin").evidence["restarted_by"] == "mig-manager"


def test_t01_pending_for_ever_ends_with_labels_restored_and_the_old_layout(
    cluster: SimulatedCluster,
) -> None:
    before = _node(cluster).allocatable
    cluster.set_fault(NODE_NAME, "mig_manager_client_stays", on=True)
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "is changing" in _said(found, "applying"))
    assert _node(cluster).labels[DEPLOYED] == MIG_PAUSED
    _late(operation)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_stuck")
    assert "timed out" in operation.failure_said
    assert _node(cluster).labels[DEPLOYED] == "true"
    assert _node(cluster).labels[MIG_STATE_LABEL] == "success"
    assert (_on_gpu(cluster), _node(cluster).allocatable) == ([], before)
    assert _node(cluster).is_schedulable


def test_t02_success_without_the_mode_is_needs_reboot_and_never_green(
    cluster: SimulatedCluster,
) -> None:
    _let_go_of_instances(cluster)
    cluster.set_fault(NODE_NAME, "mig_mode_needs_reboot", on=True)
    operation = drive(_open(WHOLE, ("7g.80gb", 0)), cluster)
    assert operation.failure_code == "needs_reboot"
    assert "reboot" in operation.failure_said
    assert operation.state == State.ROLLED_BACK


def test_t03_gpu_held_by_somebody_outside_fails_with_the_layout_unchanged(
    cluster: SimulatedCluster,
) -> None:
    drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=True)
    operation = drive(_open(EMPTY, ("3g.40gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_failed")
    assert "In use by another client" in operation.failure_said
    assert _on_gpu(cluster) == [("7g.80gb", 0)]
    assert not any(v == MIG_PAUSED for v in _node(cluster).labels.values())
    assert _node(cluster).is_schedulable


def test_t04_manager_is_started_anew_once_when_an_instance_cannot_be_destroyed(
    cluster: SimulatedCluster,
) -> None:
    drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=True)
    operation = _open(EMPTY, ("3g.40gb", 0))
    drive(operation, cluster, until=lambda found: bool(found.memory.get("mig_old_pods")))
    cluster.set_fault(NODE_NAME, "destroy_in_use", on=False)
    drive(operation, cluster)
    assert operation.state == State.DONE
    assert _on_gpu(cluster) == [("3g.40gb", 0)]


def test_t06_devices_that_never_come_back_are_not_a_success(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.AWAITING_ALLOCATABLE)
    assert _node(cluster).labels[MIG_STATE_LABEL] == "success"
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now())
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=False)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "deadline")


def test_t08_success_that_changed_nothing_is_found_out(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "mig_manager_lies", on=True)
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "not as wanted" in _said(found, "applying"))
    _late(operation)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "success_without_devices")


def test_manager_that_never_answers_is_given_up(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "mig_manager_deaf", on=True)
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: "notices" in _said(found, "applying"))
    _late(operation)
    drive(operation, cluster, until=lambda found: found.state == State.ROLLING_BACK)
    assert operation.failure_code == "mig_manager_silent"


def test_t29_layout_that_counts_cannot_bring_back_needs_an_operator(
    cluster: SimulatedCluster,
) -> None:
    _cut_by_hand(cluster, EMPTY, ("1g.10gb", 3))
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.APPLYING)
    cluster.set_fault(NODE_NAME, "create_fails", on=True)
    drive(operation, cluster)
    assert operation.state == State.NEEDS_OPERATOR
    assert operation.failure_code == "mig_manager_failed"
    assert "counts" in _said(operation, "rolling_back")
    assert not _node(cluster).is_schedulable
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
    operation = drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_manager_busy")
    assert _label(cluster) == "somebodys"


def test_t49_label_that_says_what_the_devices_are_not_stops_a_change(
    cluster: SimulatedCluster,
) -> None:
    drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    label = _label(cluster)
    _empty_by_hand(cluster, EMPTY)
    operation = drive(_open(EMPTY, ("3g.40gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_label_disagrees")
    assert _label(cluster) == label


def test_t49_label_that_somebody_else_takes_is_not_fought_over(cluster: SimulatedCluster) -> None:
    operation = _open(EMPTY, ("7g.80gb", 0))
    drive(operation, cluster, until=lambda found: found.state == State.APPLYING)
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {MIG_CONFIG_LABEL: "somebodys"}}})
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "mig_label_taken")
    assert (_label(cluster), _on_gpu(cluster)) == ("somebodys", [])


def test_worker_that_dies_anywhere_is_followed_by_another(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look's first write to the cluster is lost with its worker, once."""
    operation = _open(EMPTY, ("1g.10gb", 0))
    died: set[str] = set()
    real = cluster.patch

    def patch(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401  # handed on
        key = str(arguments[2])[:60]
        if key not in died:
            died.add(key)
            raise KeyboardInterrupt
        return real(*arguments, **more)

    monkeypatch.setattr(cluster, "patch", patch)
    for _round in range(60):
        try:
            driving.advance(operation.pk, cluster=cluster)
        except KeyboardInterrupt:
            now = timezone.now()
            Operation.objects.filter(pk=operation.pk).update(lease_until=now - timedelta(seconds=1))
        operation.refresh_from_db()
        if operation.is_finished:
            break
        Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
    assert (operation.state, operation.failure_said) == (State.DONE, "")
    assert len(died) >= 3
    assert _writes(cluster) == 1


def test_mode_change_that_would_clear_held_instances_elsewhere_is_refused(
    cluster: SimulatedCluster,
) -> None:
    operation = drive(_open(WHOLE, ("7g.80gb", 0)), cluster)
    assert operation.state == State.ROLLED_BACK
    assert operation.failure_code in {"unplannable", "mode_change_clears_others"}
    assert "mig-manager" in operation.failure_said
    assert _writes(cluster) == 0


def test_place_that_counts_cannot_name_is_refused(cluster: SimulatedCluster) -> None:
    operation = drive(_open(EMPTY, ("1g.10gb", 5)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "unplannable")
    assert "1g.10gb@0" in operation.failure_said
    assert (_label(cluster), _writes(cluster)) == (None, 0)


def test_profile_that_there_is_not_is_refused_before_anything_is_written(
    cluster: SimulatedCluster,
) -> None:
    operation = drive(_open(EMPTY, ("1g.7gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "unplannable")
    assert _label(cluster) is None


def test_whoever_is_on_the_gpu_is_in_the_way_of_any_change(cluster: SimulatedCluster) -> None:
    before = _on_gpu(cluster, BUSY)
    operation = _open(BUSY, *[("1g.10gb", start) for start in range(7)])
    drive(operation, cluster, until=lambda found: "Waiting until these" in _said(found, "draining"))
    assert (_on_gpu(cluster, BUSY), _writes(cluster)) == (before, 0)


def test_manager_that_reads_another_file_is_refused(tmp_path: Path) -> None:
    cluster = _lab(tmp_path, config_map=None)
    operation = drive(_open(EMPTY, ("7g.80gb", 0)), cluster)
    assert operation.failure_code == "mig_config_map"
    assert f"{NODE_NAME}-mig-config" in operation.failure_said


def test_change_of_mode_spares_pods_on_whole_gpus(cluster: SimulatedCluster) -> None:
    _let_go_of_instances(cluster)
    done = drive(_open(WHOLE, ("7g.80gb", 0)), cluster)
    assert (done.state, done.failure_said) == (State.DONE, "")
    admin = factories.make_user("root", role="admin")
    undo = drive(operations.undo_operation(done.pk, actor=admin), cluster)
    assert (undo.state, undo.failure_said) == (State.DONE, "")
    assert not _gpu(WHOLE).is_mig_enabled
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD).items]
    assert [p.name for p in pods if p.node == NODE_NAME and p.resources.get("nvidia.com/gpu")]


def _let_go_of_instances(cluster: SimulatedCluster) -> None:
    """End the Pods on instances, and leave no layout that counts could move."""
    scope = Scope(field_selector=f"spec.nodeName={NODE_NAME}")
    for pod in [PodObject.from_manifest(item) for item in cluster.list(POD, scope).items]:
        if any("mig-" in key for key in pod.resources):
            cluster.delete(POD, pod.name, pod.namespace, grace_s=0)
    for index in (BUSY, HALVES):
        _empty_by_hand(cluster, index)
    [plugin] = [
        p
        for p in cluster.list(POD, Scope("nvidia-device-plugin")).items
        if p["spec"]["nodeName"] == NODE_NAME
    ]
    cluster.delete(POD, plugin["metadata"]["name"], "nvidia-device-plugin", grace_s=0)


def _said(operation: Operation, state: str) -> str:
    return " ".join(step.said for step in operation.steps.filter(state=state))


def _plugin_uids(cluster: SimulatedCluster) -> set[str]:
    scope = Scope("", "app.kubernetes.io/name=nvidia-device-plugin", f"spec.nodeName={NODE_NAME}")
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD, scope).items]
    return {pod.uid for pod in pods}


def _empty_by_hand(cluster: SimulatedCluster, index: int) -> None:
    state = cluster.files.state(NODE_NAME)
    state["gpus"][index]["instances"] = []
    _put(cluster, state)


def _cut_by_hand(cluster: SimulatedCluster, index: int, pair: Pair) -> None:
    state = cluster.files.state(NODE_NAME)
    gpu = state["gpus"][index]
    profile = next(p for p in gpu["profiles"] if p["name"] == pair[0])
    made = create_instance(gpu, profile, pair[1])
    assert isinstance(made, dict)
    create_compute(gpu, made)
    _put(cluster, state)


def _put(cluster: SimulatedCluster, state: dict[str, Any]) -> None:
    write_json(str(cluster.files.of(NODE_NAME) / "state.json"), state)
