"""The scripts that the executor runs on nodes, against the stand-in driver: twice is once."""

import subprocess
from pathlib import Path

import pytest

from gpu.executors import scripts
from gpu.executors.nvidia_smi import Target, UnreachableLayoutError, lines_to
from gpu.executors.probing import UnreadableProbeError, read_probe
from gpu.planning.catalogue import find_table
from gpu.planning.observed import ObservedGpu, ObservedNode
from tests.cluster.build import Programs
from tests.cluster.gpus import Gpus, new_state

pytestmark = pytest.mark.cluster


@pytest.fixture
def gpus(cluster_programs: Programs, tmp_path: Path) -> Gpus:
    found = Gpus(tmp_path, cluster_programs.standins / "nvidia-smi")
    found.install(new_state("n1", ["a100-40gb", "h200-141gb-sxm"]))
    return found


def _run(gpus: Gpus, script: str) -> tuple[int, str]:
    done = subprocess.run(  # noqa: S603  # our own script
        ["/bin/sh", "-c", script],
        env={"PATH": "/usr/bin:/bin", "STANDIN_GPUS": str(gpus.directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def _probe(gpus: Gpus) -> ObservedNode:
    _code, log = _run(gpus, scripts.probe_script(str(gpus.nvidia_smi_program)))
    return read_probe(log)


def _bring(gpus: Gpus, index: int, target: Target) -> tuple[int, str, ObservedGpu]:
    gpu = _probe(gpus).gpus[index]
    lines = lines_to(gpu, gpu.table or find_table(gpu.name), target)
    code, log = _run(gpus, scripts.apply_script(str(gpus.nvidia_smi_program), lines))
    return code, log, _probe(gpus).gpus[index]


def _target(*instances: tuple[str, int]) -> Target:
    return Target(is_mig_enabled=True, instances=frozenset(instances))


def test_probe_reads_gpus_and_the_drivers_own_tables(gpus: Gpus) -> None:
    a100, h200 = _probe(gpus).gpus
    assert (a100.name, a100.is_mig_enabled, a100.instances) == (
        "NVIDIA A100-SXM4-40GB",
        False,
        (),
    )
    assert h200.table is not None
    assert h200.table.profile("1g.18gb").memory_mib == 16384


def test_ampere_is_switched_with_a_reset_and_cut_at_the_planned_places(gpus: Gpus) -> None:
    code, log, gpu = _bring(gpus, 0, _target(("3g.20gb", 4), ("1g.5gb", 0)))
    assert code == 0
    assert scripts.commands_run(log) == [
        "nvidia-smi -i 0 -mig 1",
        "nvidia-smi --gpu-reset -i 0",
        "nvidia-smi mig -cgi 19:0 -C -i 0",
        "nvidia-smi mig -cgi 9:4 -C -i 0",
    ]
    assert gpu.layout == (("1g.5gb", 0), ("3g.20gb", 4))
    assert all(instance.mig_uuid.startswith("MIG-") for instance in gpu.instances)


def test_hopper_is_switched_without_a_reset(gpus: Gpus) -> None:
    _code, log, gpu = _bring(gpus, 1, _target(("1g.18gb", 0)))
    assert scripts.commands_run(log) == [
        "nvidia-smi -i 1 -mig 1",
        "nvidia-smi mig -cgi 19:0 -C -i 1",
    ]
    assert gpu.is_mig_enabled


def test_script_that_runs_twice_does_everything_once(gpus: Gpus) -> None:
    _bring(gpus, 0, _target(("3g.20gb", 4), ("1g.5gb", 0)))
    gpu = _probe(gpus).gpus[0]
    lines = lines_to(gpu, find_table(gpu.name), _target(("3g.20gb", 4), ("2g.10gb", 0)))
    script = scripts.apply_script(str(gpus.nvidia_smi_program), lines)
    assert _run(gpus, script)[0] == 0
    first = _probe(gpus)
    code, log = _run(gpus, script)
    assert (code, scripts.commands_run(log)) == (0, [])
    assert _probe(gpus) == first


def test_half_made_instance_is_completed(gpus: Gpus) -> None:
    _bring(gpus, 0, _target(("1g.5gb", 0)))
    with gpus.edit() as state:
        state["gpus"][0]["instances"][0]["compute"] = []
    _code, log, gpu = _bring(gpus, 0, _target(("1g.5gb", 0)))
    assert scripts.commands_run(log) == ["nvidia-smi mig -cci -i 0 -gi 7"]
    assert gpu.instances[0].mig_uuid


def test_instance_in_use_stops_the_script_with_the_drivers_words(gpus: Gpus) -> None:
    _code, _log, gpu = _bring(gpus, 0, _target(("1g.5gb", 0)))
    with gpus.held(gpu.instances[0].mig_uuid):
        code, log, after = _bring(gpus, 0, _target(("2g.10gb", 0)))
    assert code != 0
    assert "in use" in scripts.refusal(log).lower()
    assert after.layout == (("1g.5gb", 0),)


def test_everything_goes_when_mig_is_switched_off(gpus: Gpus) -> None:
    _bring(gpus, 0, _target(("3g.20gb", 4), ("1g.5gb", 0)))
    code, _log, gpu = _bring(gpus, 0, Target(is_mig_enabled=False))
    assert (code, gpu.is_mig_enabled, gpu.instances) == (0, False, ())


def test_nothing_is_left_to_do_when_the_gpu_is_as_wanted(gpus: Gpus) -> None:
    target = _target(("3g.20gb", 4))
    _code, _log, gpu = _bring(gpus, 0, target)
    assert lines_to(gpu, gpu.table, target) == ()
    assert Target.from_json(Target.of(gpu).to_json()) == target


def test_start_that_the_table_does_not_have_is_refused(gpus: Gpus) -> None:
    gpu = _probe(gpus).gpus[0]
    with pytest.raises(UnreachableLayoutError, match=r"3g\.20gb cannot start at memory slice 2"):
        lines_to(gpu, find_table(gpu.name), _target(("3g.20gb", 2)))


@pytest.mark.parametrize(
    ("log", "words"),
    [("", "ended before"), ("## nvidia-smi -L\nNVML: Driver not loaded\nrc=9\n", "status 9")],
    ids=["nothing", "driver fails"],
)
def test_unreadable_probe_says_which_command_failed(log: str, words: str) -> None:
    with pytest.raises(UnreadableProbeError, match=words):
        read_probe(log)
