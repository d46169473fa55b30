"""Layouts changed through mig-manager in the simulated lab: made, proved, undone, refused."""

import time
from pathlib import Path

import pytest
import yaml
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.adapters.simulated.operator_parts import CONFIG_MAP_NAME, NAMESPACE
from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from gpu.models import Node, Operation
from gpu.objects import PodObject
from gpu.ports import CONFIG_MAP, POD
from gpu.reconcilers import operations as driving
from gpu.selectors.executors import executor_for
from gpu.services import operations
from tests import factories
from tests.gpu.lab import drive
from tests.gpu.managed import (
    BUSY,
    EMPTY,
    NODE_NAME,
    WHOLE,
    State,
    applied,
    gpu_row,
    label_of,
    let_go_of_instances,
    managed_lab,
    node_of,
    on_gpu,
    open_change,
    plugin_uids,
    recorded,
    said,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The lab at full speed, its H100 node under a mig-manager."""
    return managed_lab(tmp_path)


def test_node_with_a_mig_manager_is_changed_by_it(cluster: SimulatedCluster) -> None:
    node = Node.objects.get(name=NODE_NAME)
    assert executor_for(node) == Operation.Executor.MIG_MANAGER
    assert executor_for(Node(labels={})) == Operation.Executor.NVIDIA_SMI
    assert executor_for(Node(labels={f"{DEPLOY_PREFIX}mig-manager": "false"})) == "nvidia-smi"
    assert executor_for(Node(labels={MIG_CONFIG_LABEL: "x", MIG_STATE_LABEL: "success"})) == (
        Operation.Executor.MIG_MANAGER
    )


def test_change_is_made_proved_and_undone(cluster: SimulatedCluster) -> None:
    before = node_of(cluster)
    others = [on_gpu(cluster, index) for index in (0, 1, 2)]
    plugin = plugin_uids(cluster)
    done = drive(open_change(EMPTY, ("1g.10gb", 0), ("3g.40gb", 4)), cluster)
    assert (done.state, done.failure_said) == (State.DONE, "")
    assert recorded() == on_gpu(cluster) == [("1g.10gb", 0), ("3g.40gb", 4)]
    assert [on_gpu(cluster, index) for index in (0, 1, 2)] == others
    assert plugin_uids(cluster).isdisjoint(plugin)  # the standalone chart's: restarted by us
    node = node_of(cluster)
    assert node.allocatable["nvidia.com/mig-1g.10gb"] == (
        before.allocatable["nvidia.com/mig-1g.10gb"] + 1
    )
    assert node.is_schedulable
    seen = done.steps.get(state="verifying").evidence
    assert seen["pod_without_request_sees"] == []
    admin = factories.make_user("root", role="admin")
    undo = drive(operations.undo_operation(done.pk, actor=admin), cluster)
    assert (undo.state, undo.executor) == (State.DONE, Operation.Executor.MIG_MANAGER)
    assert on_gpu(cluster) == []
    assert node_of(cluster).allocatable == before.allocatable


def test_configuration_is_ours_named_by_its_content_and_never_edited(
    cluster: SimulatedCluster,
) -> None:
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    first = label_of(cluster)
    drive(open_change(EMPTY, *(("1g.10gb", start) for start in range(7))), cluster)
    body = cluster.read(CONFIG_MAP, CONFIG_MAP_NAME, NAMESPACE)
    configs = yaml.safe_load(body["data"]["config.yaml"])["mig-configs"]
    assert {"all-disabled", first, label_of(cluster)} <= configs.keys()
    entry = next(e for e in configs[first] if e["devices"] == [EMPTY])
    assert entry == {"devices": [EMPTY], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}
    assert [e["devices"] for e in configs[first]] == [[0], [1], [2], [3]]  # those with MIG on


def test_change_is_waited_for_as_long_as_it_takes(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """With delays: the old state first, then pending, success, and the devices after it."""
    drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    slow = SimulatedCluster(tmp_path / "lab.sqlite3", pace=0.3)
    operation = open_change(EMPTY, ("1g.10gb", 0), ("3g.40gb", 4))
    end = time.monotonic() + 60
    heard = set()
    while not operation.is_finished and time.monotonic() < end:
        driving.advance(operation.pk, cluster=slow)
        operation.refresh_from_db()
        heard.add(operation.steps.last().said)  # type: ignore[union-attr]  # there is one
        Operation.objects.filter(pk=operation.pk).update(next_look_at=timezone.now())
        time.sleep(0.05)
    assert (operation.state, operation.failure_said) == (State.DONE, "")
    assert "mig-manager is changing the GPUs." in heard
    assert on_gpu(slow) == [("1g.10gb", 0), ("3g.40gb", 4)]


def test_operators_own_plugin_is_left_to_mig_manager(tmp_path: Path) -> None:
    cluster = managed_lab(tmp_path, with_plugin=True)
    done = drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    assert done.state == State.DONE
    assert done.steps.get(state="restarting_plugin").evidence["restarted_by"] == "mig-manager"


def test_mode_change_that_would_clear_held_instances_elsewhere_is_refused(
    cluster: SimulatedCluster,
) -> None:
    operation = drive(open_change(WHOLE, ("7g.80gb", 0)), cluster)
    assert operation.state == State.ROLLED_BACK
    assert operation.failure_code in {"unplannable", "mode_change_clears_others"}
    assert "mig-manager" in operation.failure_said
    assert applied(cluster) == 0


def test_place_that_counts_cannot_name_is_refused(cluster: SimulatedCluster) -> None:
    operation = drive(open_change(EMPTY, ("1g.10gb", 5)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "unplannable")
    assert "1g.10gb@0" in operation.failure_said
    assert (label_of(cluster), applied(cluster)) == (None, 0)


def test_profile_that_there_is_not_is_refused_before_anything_is_written(
    cluster: SimulatedCluster,
) -> None:
    operation = drive(open_change(EMPTY, ("1g.7gb", 0)), cluster)
    assert (operation.state, operation.failure_code) == ("rolled_back", "unplannable")
    assert label_of(cluster) is None


def test_whoever_is_on_the_gpu_is_in_the_way_of_any_change(cluster: SimulatedCluster) -> None:
    before = on_gpu(cluster, BUSY)
    operation = open_change(BUSY, *[("1g.10gb", start) for start in range(7)])
    drive(operation, cluster, until=lambda found: "Waiting until these" in said(found, "draining"))
    assert (on_gpu(cluster, BUSY), applied(cluster)) == (before, 0)


def test_manager_that_reads_another_file_is_refused(tmp_path: Path) -> None:
    cluster = managed_lab(tmp_path, config_map=None)
    operation = drive(open_change(EMPTY, ("7g.80gb", 0)), cluster)
    assert operation.failure_code == "mig_config_map"
    assert f"{NODE_NAME}-mig-config" in operation.failure_said


def test_change_of_mode_spares_pods_on_whole_gpus(cluster: SimulatedCluster) -> None:
    let_go_of_instances(cluster)
    done = drive(open_change(WHOLE, ("7g.80gb", 0)), cluster)
    assert (done.state, done.failure_said) == (State.DONE, "")
    admin = factories.make_user("root", role="admin")
    undo = drive(operations.undo_operation(done.pk, actor=admin), cluster)
    assert (undo.state, undo.failure_said) == (State.DONE, "")
    assert not gpu_row(WHOLE).is_mig_enabled
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD).items]
    assert [p.name for p in pods if p.node == NODE_NAME and p.resources.get("nvidia.com/gpu")]
