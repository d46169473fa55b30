"""Every fault of the simulated lab: what it breaks while it is on, and that it heals."""

import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from gpu import gateways
from gpu.adapters.simulated import SimulatedCluster, faults
from gpu.objects import parse_time
from gpu.ports import NODE, POD, Scope, UnreachableError
from tests.gpu.simulation import GPU, NODE_NAME, SPACE, Simulation, job, pod

MIG = "nvidia.com/mig-1g.18gb"


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path)


def _set(lab: Simulation, fault: str, *, on: bool = True, node: str = NODE_NAME) -> None:
    lab.cluster.set_fault(node, fault, on=on)


def _host_log(lab: Simulation, name: str, script: str) -> str:
    lab.run_on_host(name, script)
    lab.wait(1)
    return lab.cluster.read_log(name, SPACE)


def test_plugin_never_registers(lab: Simulation) -> None:
    _set(lab, "plugin_never_registers")
    assert lab.node().allocatable[GPU] == 2
    lab.restart_plugin()
    lab.wait(60)
    assert lab.plugin_pod().is_ready
    assert lab.node().allocatable[GPU] == 0
    _set(lab, "plugin_never_registers", on=False)
    assert lab.node().allocatable[GPU] == 2


def test_plugin_crash_loop(lab: Simulation) -> None:
    _set(lab, "plugin_crash_loop")
    seen = lab.plugin_pod()
    assert (seen.phase, seen.is_ready, seen.restart_count) == ("Running", False, 1)
    assert "exit code 1" in seen.message
    assert lab.node().allocatable[GPU] == lab.node().allocatable[MIG] == 0
    lab.wait(31)
    assert lab.plugin_pod().restart_count == 3
    _set(lab, "plugin_crash_loop", on=False)
    assert lab.plugin_pod().is_ready
    lab.wait(2.1)
    assert lab.node().allocatable[GPU] == 2


def test_crash_loop_without_delays_does_not_spin(tmp_path: Path) -> None:
    lab = Simulation.build(tmp_path, pace=0.0)
    _set(lab, "plugin_crash_loop")
    assert [lab.plugin_pod().restart_count for _look in range(3)] == [1, 1, 1]
    lab.wait(1.1)
    assert lab.plugin_pod().restart_count == 2


def test_create_fails(lab: Simulation) -> None:
    _set(lab, "create_fails")
    words = "chroot /host nvidia-smi mig -i 1 -cgi 19:0 -C"
    assert "Insufficient Resources" in _host_log(lab, "one", words)
    _set(lab, "create_fails", on=False)
    assert "Successfully created GPU instance" in _host_log(lab, "two", words)


def test_destroy_in_use(lab: Simulation) -> None:
    _host_log(lab, "cut", "chroot /host nvidia-smi mig -i 1 -cgi 19:0")
    _set(lab, "destroy_in_use")
    words = "chroot /host nvidia-smi mig -i 1 -dgi"
    assert "In use by another client" in _host_log(lab, "one", words)
    _set(lab, "destroy_in_use", on=False)
    assert "Successfully destroyed GPU instance" in _host_log(lab, "two", words)


def test_reset_refused(lab: Simulation) -> None:
    _set(lab, "reset_refused")
    words = "chroot /host nvidia-smi -i 1 --gpu-reset"
    assert "could not be reset" in _host_log(lab, "one", words)
    _set(lab, "reset_refused", on=False)
    lab.run_on_host("two", words)
    lab.wait(2)
    assert lab.pod("two").phase == "Running"  # a reset takes some seconds
    lab.wait(3)
    assert lab.pod("two").phase == "Succeeded"
    assert "was successfully reset" in lab.cluster.read_log("two", SPACE)


def test_gpu_lost_is_noticed_when_the_plugin_restarts(lab: Simulation) -> None:
    _set(lab, "gpu_lost")
    assert "GPU is lost" in _host_log(lab, "look", "chroot /host nvidia-smi -L")
    assert lab.node().allocatable[GPU] == 2
    lab.restart_plugin()
    lab.wait(4)
    assert lab.node().allocatable[GPU] == lab.node().allocatable[MIG] == 0
    assert "GPU is lost" in lab.plugin_pod().message
    assert lab.plugin_pod().restart_count == 1
    _set(lab, "gpu_lost", on=False)
    lab.wait(3)
    assert lab.node().allocatable[GPU] == 2


def test_job_never_starts(lab: Simulation) -> None:
    _set(lab, "job_never_starts")
    lab.cluster.create(job("stuck", "true", activeDeadlineSeconds=100))
    lab.cluster.create(job("later", "true"))
    lab.cluster.create(pod("plain"))
    lab.wait(99)
    assert lab.pod("plain").phase == "Running"
    stuck = [item for item in lab.pods() if item.owner_name == "stuck"]
    assert [item.phase for item in stuck] == ["Pending"]
    assert "Back-off pulling image" in stuck[0].message
    lab.wait(2)
    assert lab.job("stuck").is_failed
    _set(lab, "job_never_starts", on=False)
    lab.wait(2)
    assert lab.job("later").is_complete


def test_node_not_ready(lab: Simulation) -> None:
    lab.cluster.create(pod("works", script="sleep 10"))
    lab.wait(1)
    _set(lab, "node_not_ready")
    lab.cluster.create(pod("late"))
    tolerant = pod("tolerant")
    tolerant["spec"]["tolerations"] = [{"operator": "Exists"}]
    lab.cluster.create(tolerant)
    lab.cluster.delete(POD, "works", SPACE)
    lab.wait(60)
    assert not lab.node().is_ready
    assert "untolerated taint {node.kubernetes.io/unreachable: }" in lab.pod("late").message
    assert (lab.pod("tolerant").node, lab.pod("tolerant").phase) == (NODE_NAME, "Pending")
    assert (lab.pod("works").is_deleting, lab.pod("works").is_ready) == (True, False)
    assert lab.said(NODE_NAME, "default") == ["NodeNotReady"]
    _set(lab, "node_not_ready", on=False)
    lab.wait(2)
    assert lab.node().is_ready
    assert not lab.exists(POD, "works")
    assert {lab.pod("late").phase, lab.pod("tolerant").phase} == {"Running"}


def test_pod_on_a_silent_node_goes_by_force(lab: Simulation) -> None:
    lab.cluster.create(pod("works"))
    lab.wait(1)
    _set(lab, "node_not_ready")
    lab.cluster.delete(POD, "works", SPACE, grace_s=0)
    assert not lab.exists(POD, "works")


def test_slow_node(lab: Simulation) -> None:
    _set(lab, "slow")
    lab.cluster.create(pod("train"))
    lab.wait(3)
    assert lab.pod("train").phase == "Pending"
    lab.wait(2)
    assert lab.pod("train").phase == "Running"


def test_api_unreachable(lab: Simulation) -> None:
    since = lab.cluster.list(POD).resource_version
    watch = lab.cluster.watch(POD, Scope(), since, timeout_s=30)
    lab.cluster.create(pod("train"))
    assert next(watch).object["metadata"]["name"] == "train"
    lab.cluster.set_fault(faults.EVERYWHERE, "api_unreachable", on=True)
    for call in (
        lab.cluster.version,
        lambda: lab.cluster.read(NODE, NODE_NAME),
        lambda: lab.cluster.create(pod("next")),
        lambda: lab.cluster.delete(POD, "train", SPACE),
        lambda: list(watch),
    ):
        with pytest.raises(UnreachableError, match="does not answer"):
            call()
    lab.cluster.set_fault(faults.EVERYWHERE, "api_unreachable", on=False)
    assert lab.exists(POD, "train")
    assert not lab.exists(POD, "next")


def test_slow_api_server(tmp_path: Path) -> None:
    lab = Simulation.build(tmp_path, pace=0.1)
    lab.cluster.set_fault(faults.EVERYWHERE, "slow", on=True)
    started = time.monotonic()
    lab.cluster.version()
    assert 0.1 <= time.monotonic() - started < 1


def test_silent_node_catches_up_at_its_own_pace(lab: Simulation) -> None:
    _set(lab, "node_not_ready")
    body = pod("tolerant", script="sleep 5")
    body["spec"]["tolerations"] = [{"operator": "Exists"}]
    lab.cluster.create(body)
    lab.wait(100)
    _set(lab, "node_not_ready", on=False)
    lab.wait(10)
    status = lab.cluster.read(POD, "tolerant", SPACE)["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    started = parse_time(status["startTime"])
    assert started is not None
    assert (parse_time(ended) or started) > started


@pytest.mark.parametrize(
    ("node", "fault", "words"),
    [
        ("nowhere", "slow", "The lab has no node 'nowhere'; there are: gpu-a100-01"),
        (NODE_NAME, "magic", "'magic' is no fault of a node; there are: create_fails"),
        ("*", "gpu_lost", "'gpu_lost' is no fault of the API server; there are: api_unreachable"),
    ],
    ids=["no such node", "no such fault", "not of the API server"],
)
def test_fault_that_does_not_exist(lab: Simulation, node: str, fault: str, words: str) -> None:
    with pytest.raises(faults.FaultError) as refusal:
        lab.cluster.set_fault(node, fault, on=True)
    assert str(refusal.value).startswith(words)
    assert lab.cluster.faults() == {}


@pytest.fixture
def commanded(lab: Simulation, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    monkeypatch.setattr(gateways, "cluster", lambda: lab.cluster)
    return lab.cluster


def _command(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    call_command("lab_fault", *words)
    return capsys.readouterr().out


def test_command_switches(commanded: SimulatedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    said = _command(capsys, NODE_NAME, "create_fails", "on")
    assert said.startswith("gpu-h200-01: create_fails is on: nvidia-smi creates no GPU instance")
    _command(capsys, "api-server", "api_unreachable", "on")
    assert commanded.faults() == {"*": ["api_unreachable"], NODE_NAME: ["create_fails"]}
    shown = _command(capsys, "--list")
    assert "  gpu-h200-01: create_fails\n" in shown
    assert "  api-server: api_unreachable\n" in shown
    assert all(name in shown for name in {*faults.NODE_FAULTS, *faults.CLUSTER_FAULTS})
    assert _command(capsys, NODE_NAME, "create_fails", "off") == (
        "gpu-h200-01: create_fails is off.\n"
    )
    _command(capsys, "api-server", "api_unreachable", "off")
    assert _command(capsys, "--list").endswith("Switched on:\n  none\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gpu-h200-01"], "Say what to switch"),
        ([], "Say what to switch"),
        (["gpu-h200-01", "--list"], "--list stands alone"),
        (["gpu-h200-01", "magic", "on"], "'magic' is no fault"),
        (["gpu-h200-01", "slow", "perhaps"], "invalid choice"),
    ],
    ids=["half", "nothing", "both", "unknown", "neither on nor off"],
)
def test_command_explains_bad_words(
    commanded: SimulatedCluster, words: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("lab_fault", *words)


def test_command_is_for_the_lab_only(settings: Settings) -> None:
    settings.CLUSTER = "kubernetes"
    with pytest.raises(CommandError, match="needs CLUSTER=simulated"):
        call_command("lab_fault", "--list")
