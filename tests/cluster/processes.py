"""Starts processes that cannot outlive the one that started them, and clears up after a crash."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_STOP_TIMEOUT_S = 10
_OWNER = "owner"
_PORTS = range(20000, 32000)
_CGROUPS = Path("/sys/fs/cgroup")


class ClusterStartError(RuntimeError):
    """A part of the cluster did not start; the text says which and where its log is."""


def start(command: Sequence[str | Path], *, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this one dies, with its output in a log."""
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603
            ["setpriv", "--pdeathsig", "KILL", *command],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the owner, who then stops things in order
        )


def stop(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    """End a process, politely first unless told otherwise, and wait until it is gone."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_TIMEOUT_S)


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float) -> None:
    """Poll until a condition holds; `ClusterStartError` names what did not happen in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            msg = f"{what}: not within {timeout_s:g} s"
            raise ClusterStartError(msg)
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Return TCP ports of loopback that nobody listens on just now.

    They lie below those that the kernel gives to outgoing connections, so that a server which is
    stopped and started again finds its port free.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            break
    return ports


def runs_directory() -> Path:
    """Return the folder of this user's running clusters; short, for socket paths have a limit."""
    return Path(tempfile.gettempdir()) / f"slicedesk-cluster-{os.geteuid()}"


def new_run_directory() -> Path:
    """Return a new folder for one cluster, marked as this process's own."""
    parent = runs_directory()
    parent.mkdir(mode=0o700, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=parent, prefix="run-"))
    (directory / _OWNER).write_text(_identity(os.getpid()))
    return directory


def sweep() -> list[Path]:
    """Remove what clusters whose owner has died left behind; return their folders."""
    parent = runs_directory()
    dead = [
        directory
        for directory in (sorted(parent.iterdir()) if parent.is_dir() else [])
        if directory.is_dir() and not owner_lives(directory)
    ]
    for directory in dead:
        remove_run_directory(directory)
    return dead


def owner_lives(directory: Path) -> bool:
    """Say whether the process that made the folder still runs."""
    owner = directory / _OWNER
    if not owner.exists():
        return False
    text = owner.read_text()
    return text == _identity(int(text.partition(" ")[0] or 0))


def remove_run_directory(directory: Path) -> None:
    """Delete a stopped cluster's files and the empty control groups of its nodes."""
    for node in directory.glob("node-*"):
        remove_cgroups(node)
    shutil.rmtree(directory, ignore_errors=True)


def remove_cgroups(node: Path) -> None:
    """Remove the control groups of a killed node's containers, which nobody else removes."""
    bundles = node / "run/containerd/io.containerd.runtime.v2.task/k8s.io"
    groups = [
        group
        for bundle in (bundles.iterdir() if bundles.is_dir() else ())
        for pattern in (f"k8s.io/{bundle.name}", f"*/k8s.io/{bundle.name}")
        for group in _CGROUPS.glob(pattern)
    ]
    for group in groups:
        _remove_emptied(group)
    for parent in {group.parent for group in groups}:
        with suppress(OSError):  # somebody else's containers may be in it
            parent.rmdir()


def _remove_emptied(group: Path) -> None:
    """Remove a control group whose processes have been killed and may still be going."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)


def _identity(pid: int) -> str:
    """Return `PID START` for a live process, else ""; the start time tells reused ids apart."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started_at = fields[0], fields[19]
    return "" if state in "ZX" else f"{pid} {started_at}"
