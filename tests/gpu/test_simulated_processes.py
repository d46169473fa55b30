"""The simulated lab under several processes at once, and under processes that die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from gpu.adapters.simulated import SimulatedCluster, build_lab, containers
from gpu.objects import PodObject
from gpu.ports import CONFIG_MAP, NAMESPACE, NODE, POD, RESOURCE_QUOTA, Scope
from tests.gpu.simulation import GPU, HOST, SPACE, manifest, pod

ROOT = Path(__file__).parents[2]
_PREAMBLE = """\
import sys, time
from pathlib import Path
from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.ports import *
from tests.gpu.simulation import *
cluster = SimulatedCluster(Path(sys.argv[1]), pace=0.0)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lab.sqlite3"


@pytest.fixture
def lab(path: Path) -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(path, pace=0.0)
    build_lab(cluster)
    cluster.create(manifest(NAMESPACE, SPACE))
    yield cluster
    for pid in path.with_suffix(".run").glob("*/pid"):  # what a test that failed has left
        with suppress(ProcessLookupError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)


def _start(path: Path, code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603  # our own code
        [sys.executable, "-c", _PREAMBLE + code, str(path), *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def _running(path: Path, code: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    process = _start(path, code, *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def _outcomes(path: Path, code: str, count: int) -> list[str]:
    processes = [_start(path, code, number) for number in range(count)]
    outcomes = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        outcomes.append(out.strip())
    return outcomes


def _wait(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_many_processes_write_at_once_and_nothing_is_lost(
    lab: SimulatedCluster, path: Path
) -> None:
    since = lab.list(CONFIG_MAP, Scope(SPACE)).resource_version
    code = """
for number in range(15):
    cluster.create(manifest(CONFIG_MAP, f"c-{sys.argv[2]}-{number}"))
    cluster.list(POD)
"""
    _outcomes(path, code, 4)
    assert len(lab.list(CONFIG_MAP, Scope(SPACE)).items) == 60
    versions = [
        int(event.object["metadata"]["resourceVersion"])
        for event in lab.watch(CONFIG_MAP, Scope(SPACE), since, timeout_s=0)
        if event.type == "ADDED"
    ]
    assert len(versions) == 60
    assert versions == sorted(set(versions))


def test_exactly_as_many_as_the_quota_allows_are_admitted(
    lab: SimulatedCluster, path: Path
) -> None:
    lab.apply(manifest(RESOURCE_QUOTA, "team", spec={"hard": {f"requests.{GPU}": "3"}}))
    code = """
count = 0
for number in range(4):
    try:
        cluster.create(pod(f"p-{sys.argv[2]}-{number}", node="gpu-l40s-01", limits={GPU: 1}))
        count += 1
    except RefusedError:
        pass
print(count)
"""
    assert sum(map(int, _outcomes(path, code, 4))) == 3
    pods = [PodObject.from_manifest(item) for item in lab.list(POD, Scope(SPACE)).items]
    devices = [device for item in pods for device in (item.devices or {})[GPU]]
    assert len(devices) == len(set(devices)) == 3


def test_lab_is_built_once(path: Path) -> None:
    outcomes = _outcomes(path, "print(build_lab(cluster))", 4)
    assert sorted(outcomes) == ["False", "False", "False", "True"]
    cluster = SimulatedCluster(path, pace=0.0)
    assert len(cluster.list(NODE).items) == 8


def test_lab_whose_building_was_killed_is_built_whole(path: Path) -> None:
    for delay in (0.0, 0.02, 0.05):
        with _running(path, "print('go', flush=True); build_lab(cluster)") as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
    cluster = SimulatedCluster(path, pace=0.0)
    build_lab(cluster)
    offers = [
        sum(int(count) for key, count in item["status"]["allocatable"].items() if "nvidia" in key)
        for item in cluster.list(NODE).items
    ]
    assert len(offers) == 8
    assert all(offers)


def _slow_script(folder: Path) -> str:
    return (
        f"chroot /host nvidia-smi -L; echo begin >>{folder}/marks;"
        f" while [ ! -e {folder}/go ]; do sleep 0.02; done; echo end >>{folder}/marks"
    )


_BEGIN = """
body = pod("work", script=sys.argv[2])
body["spec"]["containers"][0]["securityContext"] = HOST
cluster.create(body)
"""


def test_script_outlives_the_process_that_started_it(
    lab: SimulatedCluster, path: Path, tmp_path: Path
) -> None:
    with _running(path, _BEGIN, _slow_script(tmp_path)) as process:
        _wait(lambda: _lines(tmp_path / "marks") == ["begin"])
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    # Others see it run, wait for nothing, and start no second one.
    started = time.monotonic()
    assert PodObject.from_manifest(lab.read(POD, "work", SPACE)).phase == "Running"
    assert time.monotonic() - started < 2
    assert lab.read_log("work", SPACE).startswith("GPU 0: NVIDIA H200")
    (tmp_path / "go").touch()
    _wait(lambda: PodObject.from_manifest(lab.read(POD, "work", SPACE)).is_finished)
    assert _lines(tmp_path / "marks") == ["begin", "end"]
    assert PodObject.from_manifest(lab.read(POD, "work", SPACE)).phase == "Succeeded"


def test_script_that_died_with_its_process_is_run_again(
    lab: SimulatedCluster, path: Path, tmp_path: Path
) -> None:
    with _running(path, _BEGIN, _slow_script(tmp_path)) as process:
        _wait(lambda: _lines(tmp_path / "marks") == ["begin"])
        [pid] = (tmp_path / "lab.run").glob("*/pid")
        process.send_signal(signal.SIGKILL)
        os.killpg(int(pid.read_text()), signal.SIGKILL)
        process.wait(10)
    (tmp_path / "go").touch()
    # Nobody has written since: whoever reads next finds the script still wanted.
    _wait(lambda: PodObject.from_manifest(lab.read(POD, "work", SPACE)).phase == "Succeeded")
    assert _lines(tmp_path / "marks") == ["begin", "begin", "end"]
    assert list((tmp_path / "lab.run").glob("*/pid")) == []


def test_deleted_pod_ends_with_its_processes(
    lab: SimulatedCluster, path: Path, tmp_path: Path
) -> None:
    with _running(path, _BEGIN, _slow_script(tmp_path)) as process:
        _wait(lambda: _lines(tmp_path / "marks") == ["begin"])
        [pid] = (tmp_path / "lab.run").glob("*/pid")
        group = int(pid.read_text())
        lab.delete(POD, "work", SPACE)
        assert lab.list(POD, Scope(SPACE)).items == ()
        process.wait(20)
    _wait(lambda: not _is_alive(group))
    (tmp_path / "go").touch()
    assert _lines(tmp_path / "marks") == ["begin"]


def _is_alive(group: int) -> bool:
    processes = [item for item in psutil.process_iter(["status"]) if _group(item.pid) == group]
    return any(item.info["status"] != psutil.STATUS_ZOMBIE for item in processes)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def test_long_script_holds_up_nobody_and_is_collected_later(
    lab: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_PATIENCE_S", 0.1)
    body = pod("work", script=_slow_script(tmp_path))
    body["spec"]["containers"][0]["securityContext"] = HOST
    lab.create(body)
    lab.create(pod("other", script="echo done"))
    assert PodObject.from_manifest(lab.read(POD, "other", SPACE)).phase == "Succeeded"
    assert PodObject.from_manifest(lab.read(POD, "work", SPACE)).phase == "Running"
    (tmp_path / "go").touch()
    _wait(lambda: PodObject.from_manifest(lab.read(POD, "work", SPACE)).phase == "Succeeded")
    assert _lines(tmp_path / "marks") == ["begin", "end"]


def test_script_without_an_end_is_ended(
    tmp_path: Path, lab: SimulatedCluster, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_PATIENCE_S", 0.1)
    lab.create(pod("endless", script="echo begin; while :; do sleep 0.05; done"))
    assert PodObject.from_manifest(lab.read(POD, "endless", SPACE)).phase == "Running"
    [pid] = (tmp_path / "lab.run").glob("*/pid")
    group = int(pid.read_text())
    later = SimulatedCluster(
        path, clock=lambda: time.time() + containers.TIME_LIMIT_S + 1, pace=0.0
    )
    ended = later.read(POD, "endless", SPACE)["status"]
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == containers.KILLED
    assert later.read_log("endless", SPACE) == "begin\n"
    _wait(lambda: not _is_alive(group))
