"""The simulated mig-manager does what NVIDIA's does, faults included, by the lab's clock."""

from pathlib import Path
from typing import Any

import pytest

from gpu.adapters.simulated.operator_parts import CONFIG_MAP_NAME, NAMESPACE, give_mig_manager
from gpu.executors.mig_manager import config_map
from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL, MIG_PAUSED, MIG_STATE_LABEL
from gpu.objects import PodObject
from gpu.ports import CONFIG_MAP, NODE, POD, Scope
from tests.gpu.simulation import Simulation

NODE_NAME = "gpu-h100-01"
EMPTY, WHOLE = 3, 7
DEPLOYED = f"{DEPLOY_PREFIX}gpu-feature-discovery"

type Entry = dict[str, Any]


def entry(*devices: int, on: bool = True, **counts: int) -> Entry:
    mig = {f"{name[1:]}.10gb" if name == "_1g" else name: n for name, n in counts.items()}
    return {"devices": list(devices), "mig-enabled": on, "mig-devices": mig}


CONFIGS: dict[str, list[Entry]] = {
    "all-disabled": [{"devices": "all", "mig-enabled": False, "mig-devices": {}}],
    "one": [entry(EMPTY, _1g=1)],
    "two": [entry(EMPTY, _1g=2)],
    "three": [entry(EMPTY, _1g=3)],
    "unknown-profile": [{"devices": [EMPTY], "mig-enabled": True, "mig-devices": {"1g.7gb": 1}}],
    "absent-device": [entry(55, _1g=1)],
    "too-much": [entry(EMPTY, _1g=8)],
    "busy": [entry(0, _1g=7)],
    "mode": [entry(WHOLE, _1g=1), entry(EMPTY, _1g=1)],
}


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    """A lab whose H100 node has a mig-manager, up and listening."""
    found = Simulation.build(tmp_path)
    give_mig_manager(found.cluster, NODE_NAME)
    found.cluster.create(config_map(CONFIG_MAP_NAME, NAMESPACE, CONFIGS))
    found.wait(5)
    assert manager(found).is_ready
    return found


def manager(lab: Simulation) -> PodObject:
    scope = Scope(NAMESPACE, "app=nvidia-mig-manager", f"spec.nodeName={NODE_NAME}")
    pods = [PodObject.from_manifest(item) for item in lab.cluster.list(POD, scope).items]
    [found] = [pod for pod in pods if not pod.is_deleting]
    return found


def ask(lab: Simulation, name: str | None) -> None:
    lab.cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {MIG_CONFIG_LABEL: name}}})


def state(lab: Simulation) -> str | None:
    return lab.node(NODE_NAME).labels.get(MIG_STATE_LABEL)


def made(lab: Simulation, gpu: int = EMPTY) -> int:
    return len(lab.cluster.files.state(NODE_NAME)["gpus"][gpu]["instances"])


def do(lab: Simulation, name: str) -> None:
    ask(lab, name)
    lab.wait(6)
    lab.node(NODE_NAME)


def test_old_state_stays_until_it_is_noticed_then_pending_with_paused_labels(
    lab: Simulation,
) -> None:
    do(lab, "one")
    assert (state(lab), made(lab)) == ("success", 1)
    ask(lab, "two")
    lab.wait(0.2)
    assert (state(lab), lab.node(NODE_NAME).labels[DEPLOYED]) == ("success", "true")
    lab.wait(0.1)
    assert (state(lab), lab.node(NODE_NAME).labels[DEPLOYED]) == ("pending", MIG_PAUSED)
    assert made(lab) == 1
    lab.wait(5)
    assert (state(lab), lab.node(NODE_NAME).labels[DEPLOYED]) == ("success", "true")
    assert made(lab) == 2


def test_standalone_plugin_is_not_restarted(lab: Simulation) -> None:
    before = lab.plugin_pod(NODE_NAME).uid
    offered = dict(lab.node(NODE_NAME).allocatable)
    do(lab, "three")
    lab.wait(30)
    assert lab.plugin_pod(NODE_NAME).uid == before
    assert lab.node(NODE_NAME).allocatable == offered


def test_operators_plugin_is_restarted_and_success_comes_before_the_resources(
    tmp_path: Path,
) -> None:
    lab = Simulation.build(tmp_path)
    give_mig_manager(lab.cluster, NODE_NAME, with_plugin=True)
    lab.cluster.create(config_map(CONFIG_MAP_NAME, NAMESPACE, CONFIGS))
    lab.wait(10)
    key = "nvidia.com/mig-1g.10gb"
    before = lab.node(NODE_NAME).allocatable[key]
    ask(lab, "three")
    lab.wait(3)
    assert lab.node(NODE_NAME).allocatable[key] == 0
    lab.wait(2)
    assert (state(lab), lab.node(NODE_NAME).allocatable[key]) == ("success", 0)
    lab.wait(4)
    assert lab.node(NODE_NAME).allocatable[key] == before + 3


def test_one_value_is_remembered_and_no_queue(lab: Simulation) -> None:
    ask(lab, "one")
    lab.wait(1)
    ask(lab, "two")
    lab.wait(1)
    ask(lab, "one")
    lab.wait(20)
    assert (state(lab), made(lab)) == ("success", 1)
    ask(lab, "two")
    lab.wait(1)
    ask(lab, "one")
    lab.wait(1)
    ask(lab, "three")
    lab.wait(2.9)
    assert (state(lab), made(lab)) == ("success", 2)  # the label says three
    lab.wait(10)
    assert (state(lab), made(lab)) == ("success", 3)


def test_same_value_and_a_label_taken_away_while_idle_do_nothing(lab: Simulation) -> None:
    do(lab, "one")
    ask(lab, None)
    lab.wait(10)
    assert (state(lab), made(lab)) == ("success", 1)
    do(lab, "one")
    assert made(lab) == 1


def test_label_taken_away_while_busy_ends_in_failed(lab: Simulation) -> None:
    ask(lab, "one")
    lab.wait(1)
    ask(lab, None)
    lab.wait(12)
    lab.node(NODE_NAME)
    lab.wait(1)
    assert (state(lab), made(lab)) == ("failed", 1)


def test_label_taken_away_while_busy_applies_a_configuration_that_is_alone(
    tmp_path: Path,
) -> None:
    lab = Simulation.build(tmp_path)
    give_mig_manager(lab.cluster, NODE_NAME)
    lab.cluster.create(config_map(CONFIG_MAP_NAME, NAMESPACE, {"two": CONFIGS["two"]}))
    lab.wait(5)
    lab.cluster.set_fault(NODE_NAME, "create_fails", on=True)
    ask(lab, "two")
    lab.wait(1)
    assert state(lab) == "pending"
    ask(lab, None)
    lab.wait(3.9)
    assert (state(lab), made(lab)) == ("failed", 0)
    lab.cluster.set_fault(NODE_NAME, "create_fails", on=False)
    lab.wait(10)
    assert (state(lab), made(lab)) == ("success", 2)


def test_unknown_name_fails_at_once_and_touches_nothing(lab: Simulation) -> None:
    ask(lab, "nobody-knows-it")
    lab.wait(0.3)
    assert (state(lab), made(lab)) == ("failed", 0)
    assert lab.node(NODE_NAME).labels[DEPLOYED] == "true"


def test_silent_successes(lab: Simulation) -> None:
    do(lab, "two")
    do(lab, "absent-device")
    assert (state(lab), made(lab)) == ("success", 2)
    do(lab, "unknown-profile")
    assert (state(lab), made(lab)) == ("success", 0)


def test_gpu_in_use_is_failed_with_the_layout_unchanged(lab: Simulation) -> None:
    before = made(lab, 0)
    do(lab, "busy")
    assert (state(lab), made(lab, 0)) == ("failed", before)
    assert "In use by another client" in lab.cluster.read_log(manager(lab).name, NAMESPACE)


def test_failure_after_a_success_leaves_labels_paused_until_a_new_pod(lab: Simulation) -> None:
    do(lab, "too-much")
    assert (state(lab), lab.node(NODE_NAME).labels[DEPLOYED]) == ("failed", "true")
    do(lab, "one")
    do(lab, "too-much")
    assert (state(lab), made(lab)) == ("failed", 0)
    assert lab.node(NODE_NAME).labels[DEPLOYED] == MIG_PAUSED
    lab.cluster.delete(POD, manager(lab).name, NAMESPACE, grace_s=0)
    lab.wait(8)
    assert lab.node(NODE_NAME).labels[DEPLOYED] == "true"


def test_client_that_stays_is_pending_for_ever(lab: Simulation) -> None:
    lab.cluster.set_fault(NODE_NAME, "mig_manager_client_stays", on=True)
    do(lab, "one")
    assert lab.cluster.read_log(manager(lab).name, NAMESPACE) == ""
    lab.wait(300)
    assert "timed out" in lab.cluster.read_log(manager(lab).name, NAMESPACE)
    lab.wait(3000)
    assert (state(lab), made(lab)) == ("pending", 0)
    assert lab.node(NODE_NAME).labels[DEPLOYED] == MIG_PAUSED


def test_without_a_host_to_talk_to_it_says_nothing_and_tries_no_more(lab: Simulation) -> None:
    lab.cluster.set_fault(NODE_NAME, "mig_manager_deaf", on=True)
    do(lab, "one")
    lab.cluster.set_fault(NODE_NAME, "mig_manager_deaf", on=False)
    lab.wait(600)
    assert (state(lab), made(lab)) == (None, 0)


def test_change_of_mode_clears_every_gpu_that_is_named(lab: Simulation) -> None:
    do(lab, "two")
    uuids = [i["compute"][0]["uuid"] for i in _instances(lab, EMPTY)]
    do(lab, "mode")
    assert (made(lab, WHOLE), made(lab)) == (1, 1)
    assert len(uuids) == 2


def test_changed_file_reaches_the_pod_late_or_when_its_pod_is_touched(lab: Simulation) -> None:
    more = {**CONFIGS, "new": CONFIGS["two"], "newer": CONFIGS["three"]}
    lab.cluster.apply(config_map(CONFIG_MAP_NAME, NAMESPACE, more))
    do(lab, "new")
    assert state(lab) == "failed"
    body = {"metadata": {"annotations": {"slicedesk.io/touched": "1"}}}
    lab.cluster.patch(POD, manager(lab).name, body, NAMESPACE)
    do(lab, "newer")
    assert (state(lab), made(lab)) == ("success", 3)


def test_without_a_file_it_writes_its_own(tmp_path: Path) -> None:
    lab = Simulation.build(tmp_path)
    give_mig_manager(lab.cluster, NODE_NAME, config_map=None)
    lab.wait(5)
    own = lab.cluster.read(CONFIG_MAP, f"{NODE_NAME}-mig-config", NAMESPACE)
    assert own["metadata"]["ownerReferences"][0]["name"] == manager(lab).name
    assert "all-1g.10gb" in own["data"]["config.yaml"]


def test_demo_can_be_given_a_mig_manager_again_and_again(tmp_path: Path) -> None:
    lab = Simulation.build(tmp_path)
    for _time in range(2):
        give_mig_manager(lab.cluster, NODE_NAME)
        lab.wait(5)
        assert manager(lab).is_ready
    with pytest.raises(ValueError, match="gpu-a100-01"):
        give_mig_manager(lab.cluster, "nowhere")


def _instances(lab: Simulation, gpu: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.cluster.files.state(NODE_NAME)["gpus"][gpu]["instances"]
    return found
