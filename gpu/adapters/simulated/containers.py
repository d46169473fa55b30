"""Containers that really run: `sh -c SCRIPT` as a process of its own, which outlives its starter.

A wrapper runs the script, keeps its output and exit status in a folder of the Pod, and inherits a
lock on it. Whoever comes next finds the lock held (it runs), the status written (it has ended), or
neither (it was killed half-way and is run again: scripts are idempotent). So a process that dies
while it waits loses nothing, and no script runs twice at a time.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpu.adapters.simulated import programs
from gpu.adapters.smi.run import DIRECTORY, VISIBLE
from gpu.ports import Manifest

TIME_LIMIT_S = 120.0
KILLED = 137
_PATIENCE_S = 10.0
_SHELLS = frozenset({"sh", "bash", "ash", "/bin/sh", "/bin/bash"})
_SHELL_WORDS = 3
_FINAL_SLEEP = re.compile(r"(^|;|&&|\n)\s*sleep\s+(\d+(?:\.\d+)?|infinity)\s*$")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WRAPPER = """\
echo $$ >"$1/pid"
cd "$1/home" && /bin/sh -c "$2" >"$1/output" 2>&1
echo $? >"$1/status.new"
mv "$1/status.new" "$1/status"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """What a container does: a script that is run, then a sleep in seconds; None is for ever.

    With `needs_success` a script that fails ends the container without the sleep.
    """

    text: str
    sleeps_s: float | None
    needs_success: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a Pod runs: where its node's GPUs are kept, and what it may see of them.

    `visible` is None for a container that stands on the host and sees everything.
    """

    uid: str
    text: str
    gpus: Path
    visible: str | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit status of a script and all that it printed."""

    code: int
    output: str


def program_of(pod: Manifest) -> Program | None:
    """Return what the Pod's container runs in a shell; None for an image's own program.

    A sleep at the end is not really slept: time passes in the lab by its clock.
    """
    container = pod["spec"]["containers"][0]
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) < _SHELL_WORDS or words[0] not in _SHELLS or words[1] not in {"-c", "-ec"}:
        return None
    text = str(words[2])
    match = _FINAL_SLEEP.search(text)
    if match is None:
        return Program(text, 0.0)
    seconds = None if match[2] == "infinity" else float(match[2])
    return Program(text[: match.start()].strip(), seconds, needs_success=match[1] == "&&")


def environment_of(pod: Manifest) -> dict[str, str]:
    """Return the variables that the Pod's container sets by value."""
    return {
        item["name"]: str(item.get("value", ""))
        for item in pod["spec"]["containers"][0].get("env") or ()
        if _ENVIRONMENT_NAME.fullmatch(item["name"]) and "valueFrom" not in item
    }


_left: list[subprocess.Popen[bytes]] = []


class Containers:
    """The containers that run scripts, by their Pods' uids, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, script: Script, is_wanted: Callable[[], bool]) -> Ended | None:
        """Run a script unless it runs or has ended already; None while it has not ended.

        `is_wanted` is asked once nobody else can run it: the result may have been taken meanwhile.
        """
        _reap()
        place = self._folder / script.uid
        with self._claimed(place) as lock:
            if lock is None:
                return None
            if not is_wanted():
                shutil.rmtree(place, ignore_errors=True)
                return None
            return _ended(place) or self._run(script, place, lock)

    def output(self, uid: str) -> str:
        """Return what a container has printed so far."""
        return _text(self._folder / uid / "output")

    def kill(self, uid: str) -> None:
        """End what a container runs, whoever started it."""
        _reap()
        place = self._folder / uid
        if not place.exists():
            return
        with self._claimed(place) as lock:
            number = _text(place / "pid").strip()
            if lock is None and number:
                _kill_group(int(number))

    def forget(self, uid: str) -> None:
        """Remove what was kept of a container whose result has been taken."""
        shutil.rmtree(self._folder / uid, ignore_errors=True)

    @contextmanager
    def _claimed(self, place: Path) -> Iterator[int | None]:
        """Hold the container's lock for the block; None when somebody else holds it."""
        place.mkdir(parents=True, exist_ok=True)
        try:
            file = (place / "lock").open("w")
        except FileNotFoundError:  # taken and forgotten just now
            yield None
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield file.fileno()

    def _run(self, script: Script, place: Path, lock: int) -> Ended | None:
        (place / "pid").unlink(missing_ok=True)
        (place / "home").mkdir(exist_ok=True)
        process = subprocess.Popen(  # noqa: S603  # the Pod's own script, as a kubelet does
            ["/bin/sh", "-c", _WRAPPER, "container", str(place), script.text],
            env=self._environment(script, place),
            pass_fds=(lock,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            _left.append(process)  # it goes on by itself; somebody collects it later
            return None
        ended = _ended(place)
        if ended is None:
            _kill_group(process.pid)  # somebody killed the wrapper; the script goes with it
            ended = Ended(KILLED, _text(place / "output"))
        return ended

    def _environment(self, script: Script, place: Path) -> dict[str, str]:
        binaries = programs.install(self._folder / "bin")
        environment = {
            **script.environment,
            "PATH": f"{binaries}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(place / "home"),
            DIRECTORY: str(script.gpus),
        }
        environment.pop(VISIBLE, None)
        if script.visible is not None:
            environment[VISIBLE] = script.visible
        return environment


def _reap() -> None:
    """Take the exit status of children that nobody waited for, so that no zombies stay."""
    _left[:] = [process for process in _left if process.poll() is None]


def _ended(place: Path) -> Ended | None:
    status = _text(place / "status").strip()
    return Ended(int(status), _text(place / "output")) if status else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _kill_group(number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)
