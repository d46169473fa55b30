"""Changes of sharing in the simulated lab: what can go wrong does, and the end is a clean one."""

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from gpu.adapters.simulated import SimulatedCluster
from gpu.adapters.simulated.config_manager import LABEL
from gpu.adapters.simulated.lab import PLUGIN_CONFIGS, PLUGIN_NAMESPACE
from gpu.adapters.simulated.tenants import NAMESPACES
from gpu.models import Gpu, Node, Operation, ResourcePool
from gpu.objects import NodeObject, PodObject
from gpu.ports import CONFIG_MAP, NAMESPACE, NODE, POD, RESOURCE_QUOTA
from gpu.reconcilers import operations as driving
from gpu.reconcilers.namespaces import sync_namespace
from gpu.selectors.snapshot import cluster_snapshot
from gpu.services import operations
from gpu.services.operations import Change
from tests import factories
from tests.gpu.lab import drive, make_lab, take_over

pytestmark = pytest.mark.django_db

NODE_NAME = "gpu-h200-01"
SHARED_NODE = "gpu-l40s-01"
WHOLE = "nvidia.com/gpu"
WHOLE_GPUS = 2
NOT_SHARED = {"strategy": "none", "replicas": {}, "rename": False}


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The lab at full speed, with the GPUs of two nodes read and no tenant's Pod on them."""
    cluster = make_lab(tmp_path, nodes=[NODE_NAME, SHARED_NODE])
    for name in NAMESPACES:
        cluster.delete(NAMESPACE, name)
    take_over(cluster)
    return cluster


def shared(
    count: int, *, strategy: str = "time-slicing", rename: bool = False, key: str = WHOLE
) -> dict[str, Any]:
    return {"strategy": strategy, "replicas": {key: count}, "rename": rename}


def start(sharing: dict[str, Any], *, node: str = NODE_NAME, **more: Any) -> Operation:  # noqa: ANN401  # handed on
    with transaction.atomic():
        change = Change(
            gpu=None,
            node=Node.objects.get(name=node),
            executor=Operation.Executor.DEVICE_PLUGIN,
            desired={"sharing": sharing},
            **more,
        )
        return operations.open_operation(change, actor=None)


def undo(operation: Operation, cluster: SimulatedCluster) -> Operation:
    admin = factories.make_user("root", role="admin")
    return drive(operations.undo_operation(operation.pk, actor=admin), cluster)


def node_of(cluster: SimulatedCluster, name: str = NODE_NAME) -> NodeObject:
    return NodeObject.from_manifest(cluster.read(NODE, name))


def entries(cluster: SimulatedCluster) -> dict[str, str]:
    data: dict[str, str] = cluster.read(CONFIG_MAP, PLUGIN_CONFIGS, PLUGIN_NAMESPACE)["data"]
    return data


def expire(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now())


def offered(cluster: SimulatedCluster, name: str = NODE_NAME) -> dict[str, int]:
    return {key: count for key, count in node_of(cluster, name).allocatable.items() if count}


def test_whole_gpus_become_four_shares_each_and_that_is_proved(cluster: SimulatedCluster) -> None:
    mig = {key: n for key, n in offered(cluster).items() if key != WHOLE}
    operation = drive(start(shared(4)), cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
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
    assert offered(cluster) == {WHOLE: WHOLE_GPUS * 4, **mig}
    seen = operation.steps.get(state="verifying").evidence
    uuids = [row["devices"][0]["uuid"] for row in seen["pods"]]
    assert sorted(map(uuids.count, set(uuids))) == [4] * WHOLE_GPUS
    assert seen["pod_without_request_sees"] == []
    node = node_of(cluster)
    assert node.is_schedulable
    name = node.labels[LABEL]
    assert name.startswith("slicedesk-")
    assert "failRequestsGreaterThanOne: true" in entries(cluster)[name]
    assert "migStrategy: mixed" in entries(cluster)[name]


def test_shares_count_at_once_whatever_the_labels_say(cluster: SimulatedCluster) -> None:
    pool = ResourcePool.objects.get(model__product="NVIDIA-H200", resource_name=WHOLE)
    assert pool.capacity == WHOLE_GPUS
    drive(start(shared(4)), cluster)
    Node.objects.filter(name=NODE_NAME).update(
        labels={**Node.objects.get(name=NODE_NAME).labels, "nvidia.com/gpu.replicas": "1"}
    )
    rows = Gpu.objects.filter(node__name=NODE_NAME, is_mig_enabled=False)
    assert set(rows.values_list("sharing", "replicas")) == {("time-slicing", 4)}
    pool.refresh_from_db()
    assert pool.capacity == WHOLE_GPUS * 4
    node = next(n for n in cluster_snapshot().nodes if n.name == NODE_NAME)
    assert [gpu.free_replicas for gpu in node.gpus if gpu.table and not gpu.instances] == [0, 4, 4]


def test_undo_returns_to_the_very_configuration_of_before(cluster: SimulatedCluster) -> None:
    before = node_of(cluster, SHARED_NODE).labels[LABEL]
    done = drive(start(NOT_SHARED, node=SHARED_NODE), cluster)
    assert done.state == Operation.State.DONE
    assert offered(cluster, SHARED_NODE) == {WHOLE: 4}
    assert set(Gpu.objects.filter(node__name=SHARED_NODE).values_list("replicas")) == {(1,)}
    back = undo(done, cluster)
    assert (back.state, back.undoes_id) == (Operation.State.DONE, done.pk)
    assert node_of(cluster, SHARED_NODE).labels[LABEL] == before
    assert offered(cluster, SHARED_NODE) == {WHOLE: 16}
    assert set(Gpu.objects.filter(node__name=SHARED_NODE).values_list("replicas")) == {(4,)}


def test_undo_of_the_first_change_takes_the_label_away(cluster: SimulatedCluster) -> None:
    back = undo(drive(start(shared(2)), cluster), cluster)
    assert back.state == Operation.State.DONE
    assert LABEL not in node_of(cluster).labels
    assert offered(cluster)[WHOLE] == WHOLE_GPUS


def test_entries_are_added_never_edited_and_unused_ones_go(cluster: SimulatedCluster) -> None:
    theirs = entries(cluster)
    drive(start(shared(2)), cluster)
    two = node_of(cluster).labels[LABEL]
    drive(start(shared(3)), cluster)
    three = node_of(cluster).labels[LABEL]
    assert entries(cluster).keys() == {*theirs, two, three}
    drive(start(shared(4)), cluster)
    assert entries(cluster).keys() == {*theirs, three, node_of(cluster).labels[LABEL]}
    assert {name: entries(cluster)[name] for name in theirs} == theirs


def test_mps_and_instances_are_shared_too(cluster: SimulatedCluster) -> None:
    key = "nvidia.com/mig-1g.18gb"
    count = offered(cluster)[key]
    operation = drive(start(shared(2, key=key)), cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
    assert offered(cluster)[key] == count * 2
    assert ResourcePool.objects.get(resource_name=key).capacity == count * 2
    instances = [
        item
        for node in cluster_snapshot().nodes
        for gpu in node.gpus
        for item in gpu.instances
        if item.instance.profile == "1g.18gb"
    ]
    assert instances
    assert not any(item.is_free for item in instances), "a shared instance was promised to one"
    operation = drive(start(shared(3, strategy="mps")), cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
    assert (offered(cluster)[key], offered(cluster)[WHOLE]) == (count, WHOLE_GPUS * 3)


def test_an_instance_of_a_shared_profile_can_be_cut_later(cluster: SimulatedCluster) -> None:
    key = "nvidia.com/mig-1g.18gb"
    count = offered(cluster)[key]
    drive(start(shared(2, key=key)), cluster)
    take_over(cluster)
    gpu = Gpu.objects.get(node__name=NODE_NAME, index=1)
    with transaction.atomic():
        change = Change(gpu=gpu, desired={"mig": True, "instances": [["1g.18gb", 0]]})
        operation = operations.open_operation(change, actor=None)
    drive(operation, cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
    assert offered(cluster)[key] == (count + 1) * 2
    assert ResourcePool.objects.get(resource_name=key).capacity == (count + 1) * 2


def test_a_new_key_is_closed_to_every_tenant_before_it_appears(cluster: SimulatedCluster) -> None:
    sync_namespace(factories.make_tenant("nlp"), cluster=cluster)
    operation = start(shared(2, rename=True))
    drive(operation, cluster, until=lambda found: found.state == "restarting_plugin")
    quota = cluster.read(RESOURCE_QUOTA, "slicedesk", "team-nlp")["spec"]["hard"]
    assert quota[f"requests.{WHOLE}.shared"] == "0"
    drive(operation, cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
    assert (offered(cluster).get(WHOLE), offered(cluster)[f"{WHOLE}.shared"]) == (None, 4)
    assert ResourcePool.objects.get(resource_name=f"{WHOLE}.shared").capacity == 4
    assert ResourcePool.objects.get(model__product="NVIDIA-H200", resource_name=WHOLE).capacity == 0


def test_every_pod_on_a_changed_resource_is_waited_for(cluster: SimulatedCluster) -> None:
    holder = _hold(cluster, WHOLE)
    operation = start(shared(4))
    drive(operation, cluster, until=lambda found: "default/holder" in _said(found))
    assert node_of(cluster).labels.get(LABEL) is None
    assert not node_of(cluster).is_schedulable
    cluster.delete(POD, holder.name, holder.namespace, grace_s=0)
    drive(operation, cluster)
    assert operation.state == Operation.State.DONE


def test_a_pod_on_another_resource_is_not_in_the_way(cluster: SimulatedCluster) -> None:
    holder = _hold(cluster, "nvidia.com/mig-1g.18gb")
    assert drive(start(shared(4)), cluster).state == Operation.State.DONE
    assert PodObject.from_manifest(cluster.read(POD, holder.name, "default")).phase == "Running"


def test_a_named_pod_is_evicted_and_an_unnamed_one_stops_the_change(
    cluster: SimulatedCluster,
) -> None:
    holder = _hold(cluster, WHOLE)
    evict = Operation.PodsInTheWay.EVICT
    operation = drive(start(shared(4), pods_in_the_way=evict), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "pod_came_since")
    named = (f"{holder.key}/{holder.uid}",)
    operation = drive(start(shared(4), pods_in_the_way=evict, named_pods=named), cluster)
    assert operation.state == Operation.State.DONE


@pytest.mark.parametrize("fault", ["plugin_never_registers", "plugin_crash_loop"])
def test_a_plugin_that_does_not_come_back_is_rolled_back(
    cluster: SimulatedCluster, fault: str
) -> None:
    operation = _start_and_stop_before_writing(cluster)
    cluster.set_fault(NODE_NAME, fault, on=True)
    waits = {"restarting_plugin", "awaiting_allocatable"}
    drive(operation, cluster, until=lambda found: found.state in waits)
    expire(operation)
    cluster.set_fault(NODE_NAME, fault, on=False)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "deadline")
    assert LABEL not in node_of(cluster).labels
    assert node_of(cluster).is_schedulable
    assert offered(cluster)[WHOLE] == WHOLE_GPUS
    assert set(Gpu.objects.filter(node__name=NODE_NAME).values_list("replicas")) == {(1,)}


def test_a_roll_back_that_fails_asks_for_an_operator(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = start(shared(4))
    waits = "awaiting_allocatable"
    drive(operation, cluster, until=lambda found: found.state == waits)
    expire(operation)
    drive(operation, cluster, until=lambda found: found.memory.get("back") == "allocatable")
    expire(operation)
    drive(operation, cluster)
    assert operation.state == Operation.State.NEEDS_OPERATOR
    assert not node_of(cluster).is_schedulable


def test_somebody_elses_label_is_never_overwritten(cluster: SimulatedCluster) -> None:
    cluster.set_fault(NODE_NAME, "plugin_never_registers", on=True)
    operation = start(shared(4))
    drive(operation, cluster, until=lambda found: found.state == "awaiting_allocatable")
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {LABEL: "time-slicing-4"}}})
    expire(operation)
    drive(operation, cluster)
    assert operation.state == Operation.State.NEEDS_OPERATOR
    assert node_of(cluster).labels[LABEL] == "time-slicing-4"


def test_a_configuration_that_cannot_be_kept_is_refused(cluster: SimulatedCluster) -> None:
    odd = "version: v1\nflags: {migStrategy: mixed}\nresources: {gpus: [{pattern: '*', name: a}]}"
    cluster.patch(CONFIG_MAP, PLUGIN_CONFIGS, {"data": {"odd": odd}}, PLUGIN_NAMESPACE)
    cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {LABEL: "odd"}}})
    operation = drive(start(shared(4)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "configuration_unreadable")
    assert "patterns" in operation.failure_said
    assert node_of(cluster).labels[LABEL] == "odd"


def test_a_plugin_without_config_manager_is_refused(
    cluster: SimulatedCluster, settings: Settings
) -> None:
    settings.DEVICE_PLUGIN_CONFIGMAP = "another"
    operation = drive(start(shared(4)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "no_config_manager")
    assert "config.name=another" in operation.failure_said


def test_an_edit_in_place_by_somebody_is_noticed_before_anything_is_written(
    cluster: SimulatedCluster,
) -> None:
    data = entries(cluster)
    edited = data["default"] + "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}\n"
    cluster.patch(CONFIG_MAP, PLUGIN_CONFIGS, {"data": {"default": edited}}, PLUGIN_NAMESPACE)
    operation = start(shared(4))
    drive(operation, cluster, until=lambda found: "2 of 4" in _said(found, "approved"))
    expire(operation)
    drive(operation, cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "deadline")
    assert entries(cluster)["default"] == edited
    assert node_of(cluster).is_schedulable


class KilledError(Exception):
    """The worker dies."""


@pytest.mark.parametrize("writes", range(1, 17))
def test_a_worker_killed_after_any_write_is_resumed(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    done = 0
    for name in ("apply", "patch", "create", "delete"):
        method = getattr(cluster, name)

        def killed(*args: Any, _method: Any = method, **kwargs: Any) -> Any:  # noqa: ANN401  # any call
            nonlocal done
            result = _method(*args, **kwargs)
            done += 1
            if done == writes:
                raise KilledError
            return result

        monkeypatch.setattr(cluster, name, killed)
    operation = start(shared(2))
    with pytest.raises(KilledError):
        drive(operation, cluster)
    Operation.objects.filter(pk=operation.pk).update(lease_until=timezone.now())
    drive(operation, cluster)
    assert (operation.state, operation.failure_said) == (Operation.State.DONE, "")
    assert offered(cluster)[WHOLE] == WHOLE_GPUS * 2
    assert node_of(cluster).is_schedulable


def test_an_api_server_that_is_away_only_delays(cluster: SimulatedCluster) -> None:
    operation = _start_and_stop_before_writing(cluster)
    cluster.set_fault("*", "api_unreachable", on=True)
    driving.advance(operation.pk, cluster=cluster)
    operation.refresh_from_db()
    assert operation.state == "draining"
    cluster.set_fault("*", "api_unreachable", on=False)
    drive(operation, cluster)
    assert operation.state == Operation.State.DONE


def _said(operation: Operation, state: str = "draining") -> str:
    step = operation.steps.filter(state=state).last()
    return step.said if step else ""


def _start_and_stop_before_writing(cluster: SimulatedCluster) -> Operation:
    """Start a change that has cordoned the node and could go on at its next look."""
    _hold(cluster, WHOLE)
    operation = start(shared(4))
    drive(operation, cluster, until=lambda found: "default/holder" in _said(found))
    cluster.delete(POD, "holder", "default", grace_s=0)
    Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
    return operation


def _hold(cluster: SimulatedCluster, key: str) -> PodObject:
    """Start a Pod of somebody's that holds a device of the node."""
    container = {
        "name": "main",
        "image": "registry.example/work:1",
        "resources": {"limits": {key: "1"}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder", "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE_NAME},
            "containers": [container],
        },
    }
    cluster.create(body)
    found = PodObject.from_manifest(cluster.read(POD, "holder", "default"))
    assert found.phase == "Running"
    return found
