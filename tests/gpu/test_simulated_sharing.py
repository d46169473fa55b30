"""The lab's device plugin and config-manager share GPUs as NVIDIA's were seen to do."""

from pathlib import Path

import pytest

from gpu.adapters.simulated.config_manager import LABEL
from gpu.adapters.simulated.lab import PLUGIN_CONFIGS, PLUGIN_NAMESPACE
from gpu.ports import CONFIG_MAP, NODE
from tests.gpu.simulation import GPU, Simulation, pod

NODE_NAME = "gpu-h200-01"
WHOLE_GPUS = 2
RENAMED = f"{GPU}.shared"


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path)


def config(replicas: int, *, rename: bool = False, strategy: str = "timeSlicing") -> str:
    return f"""\
version: v1
flags: {{migStrategy: mixed}}
sharing:
  {strategy}:
    renameByDefault: {str(rename).lower()}
    failRequestsGreaterThanOne: true
    resources: [{{name: {GPU}, replicas: {replicas}}}]
"""


def add(lab: Simulation, **entries: str | None) -> None:
    """Add entries under the names given, or remove them; the plugin Pod is new afterwards."""
    data = {name.replace("_", "-"): text for name, text in entries.items()}
    lab.cluster.patch(CONFIG_MAP, PLUGIN_CONFIGS, {"data": data}, PLUGIN_NAMESPACE)


def add_and_mount(lab: Simulation, **entries: str | None) -> None:
    add(lab, **entries)
    lab.restart_plugin()
    lab.wait(1)
    lab.node()
    lab.wait(10)


def label(lab: Simulation, name: str | None) -> None:
    lab.cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": {LABEL: name}}})


def offered(lab: Simulation, key: str = GPU) -> int:
    return lab.node().allocatable.get(key, 0)


def settle(lab: Simulation, seconds: float = 1.1) -> None:
    """Let time pass in small steps, as watchers and workers do."""
    lab.node()
    lab.wait(seconds)
    lab.node()


def test_a_label_moves_the_node_within_a_second(lab: Simulation) -> None:
    add_and_mount(lab, four=config(4))
    label(lab, "four")
    lab.wait(0.25)
    assert offered(lab) == WHOLE_GPUS
    lab.wait(0.8)
    assert offered(lab) == WHOLE_GPUS * 4
    label(lab, None)
    settle(lab)
    assert offered(lab) == WHOLE_GPUS


def test_an_edited_entry_changes_nothing_until_the_pod_is_new(lab: Simulation) -> None:
    add_and_mount(lab, four=config(4))
    label(lab, "four")
    settle(lab)
    add(lab, four=config(8))
    settle(lab, 61)
    settle(lab, 61)
    assert offered(lab) == WHOLE_GPUS * 4
    lab.restart_plugin()
    for _second in range(8):
        settle(lab)
    assert offered(lab) == WHOLE_GPUS * 8


def test_each_start_begins_on_the_default(lab: Simulation) -> None:
    add_and_mount(lab, four=config(4))
    label(lab, "four")
    settle(lab)
    lab.restart_plugin()
    seen = []
    for _step in range(60):
        settle(lab, 0.1)
        seen.append(offered(lab))
    steps = [count for count, before in zip(seen, [None, *seen], strict=False) if count != before]
    assert steps[-3:] == [0, WHOLE_GPUS, WHOLE_GPUS * 4]


def test_a_name_that_is_gone_means_the_default_after_a_while(lab: Simulation) -> None:
    add_and_mount(lab, four=config(4))
    label(lab, "four")
    settle(lab)
    label(lab, "nobody-wrote-this")
    settle(lab, 5)
    assert offered(lab) == WHOLE_GPUS * 4
    settle(lab, 15)
    assert offered(lab) == WHOLE_GPUS


def test_an_entry_just_added_reaches_a_running_pod_a_minute_late(lab: Simulation) -> None:
    add(lab, four=config(4))
    label(lab, "four")
    settle(lab, 20)
    assert offered(lab) == WHOLE_GPUS
    settle(lab, 61)
    settle(lab)
    settle(lab)
    assert offered(lab) == WHOLE_GPUS * 4


@pytest.mark.parametrize("text", [config(1), "version: [unclosed"], ids=["one replica", "no YAML"])
def test_a_bad_configuration_takes_everything_until_the_back_off_ends(
    lab: Simulation, text: str
) -> None:
    add_and_mount(lab, bad=text)
    label(lab, "bad")
    settle(lab)
    settle(lab, 0.1)
    assert set(lab.node().allocatable.values()) == {0}
    assert lab.plugin_pod().restart_count >= 1
    assert not lab.plugin_pod().is_ready
    label(lab, None)
    settle(lab)
    assert offered(lab) == 0
    settle(lab, 15)
    settle(lab, 3)
    assert offered(lab) == WHOLE_GPUS


def test_several_entries_without_a_default_keep_the_plugin_down(lab: Simulation) -> None:
    add_and_mount(lab, default=None, four=config(4))
    label(lab, "four")
    settle(lab, 5)
    assert set(lab.node().allocatable.values()) == {0}
    assert "no default was provided" in lab.plugin_pod().message


def test_unknown_keys_and_absent_resources_are_ignored_silently(lab: Simulation) -> None:
    text = config(4).replace("sharing:", "shering: {}\nsharing:").replace(GPU, "nvidia.com/mig-9g")
    add_and_mount(lab, odd=text)
    label(lab, "odd")
    settle(lab)
    assert offered(lab) == WHOLE_GPUS
    assert lab.plugin_pod().is_ready


def test_a_renamed_resource_offers_all_its_shares_while_pods_keep_whole_gpus(
    lab: Simulation,
) -> None:
    lab.cluster.create(pod("whole", limits={GPU: 1}))
    settle(lab, 2)
    held = lab.pod("whole").devices
    add_and_mount(lab, renamed=config(4, rename=True))
    label(lab, "renamed")
    settle(lab)
    assert (offered(lab), offered(lab, RENAMED)) == (0, WHOLE_GPUS * 4)
    assert (lab.pod("whole").phase, lab.pod("whole").devices) == ("Running", held)


def test_a_pod_that_asks_for_two_shares_is_scheduled_and_fails(lab: Simulation) -> None:
    add_and_mount(lab, four=config(4))
    label(lab, "four")
    settle(lab)
    lab.cluster.create(pod("greedy", limits={GPU: 2}))
    lab.cluster.create(pod("modest", limits={GPU: 1}))
    settle(lab, 2)
    greedy = lab.pod("greedy")
    assert (greedy.phase, greedy.node) == ("Failed", NODE_NAME)
    assert "maximum request size for shared resources is 1; found 2" in greedy.message
    assert "UnexpectedAdmissionError" in lab.said("greedy")
    assert lab.pod("modest").phase == "Running"


@pytest.mark.parametrize("rename", [False, True], ids=["same name", "renamed"])
def test_labels_tell_late(lab: Simulation, rename: bool) -> None:  # noqa: FBT001  # a case
    add_and_mount(lab, four=config(4, rename=rename, strategy="mps"))
    settle(lab, 70)
    label(lab, "four")
    settle(lab)
    labels = lab.node().labels
    assert labels["nvidia.com/gpu.replicas"] == "1"
    settle(lab, 61)
    settle(lab, 1)
    labels = lab.node().labels
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert labels["nvidia.com/gpu.product"].endswith("-SHARED") != rename


def test_the_labs_shared_node_is_shared_by_its_configuration(lab: Simulation) -> None:
    node = lab.node("gpu-l40s-01")
    assert node.labels[LABEL] == "time-slicing-4"
    assert node.allocatable[GPU] == 16
