"""Starts a cluster by hand: `python -m tests.cluster up|down|status|serve|build|demo`."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.cluster import device_plugin
from tests.cluster.build import CannotBuildError, build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import GPU_TOOLS
from tests.cluster.node import DEFAULT_MODELS, LabNode
from tests.cluster.packages import reason_against_nodes
from tests.cluster.processes import (
    ClusterStartError,
    new_run_directory,
    owner_lives,
    remove_run_directory,
    runs_directory,
    sweep,
    wait_until,
)

_STOP_TIMEOUT_S = 30
_START_TIMEOUT_S = 1800


def main() -> int:
    """Run one command; 0 when it did what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "serve", "build", "demo"])
    parser.add_argument(
        "--node",
        action="append",
        metavar="MODEL[,MODEL…]",
        help=f"the GPUs of a node, by id in gpu_models.json; default {','.join(DEFAULT_MODELS)}",
    )
    options = parser.parse_args()
    commands = {
        "up": _up,
        "down": _down,
        "status": _status,
        "serve": _serve,
        "build": _build,
        "demo": _demo,
    }
    try:
        return commands[options.command](options.node or [",".join(DEFAULT_MODELS)])
    except (CannotBuildError, ClusterStartError) as error:
        _say(str(error), is_error=True)
        return 1


def _build(_: list[str]) -> int:
    programs = build()
    _say(f"{programs.control_plane.parent}\n{programs.standins}")
    return 0


def _serve(nodes: list[str]) -> int:
    """Start everything and stay until SIGTERM or Ctrl-C."""
    with _cluster(nodes) as (control_plane, stopped):
        _say(f"KUBECONFIG={control_plane.kubeconfig}")
        while not stopped.wait(2):
            control_plane.check()
    return 0


def _demo(nodes: list[str]) -> int:
    """Run the whole portal on a real cluster of our own until Ctrl-C; nothing is kept."""
    _say("Starting a real Kubernetes cluster (the first time it is built, about 9 minutes) …")
    with _cluster(nodes) as (control_plane, stopped):
        environment = {**os.environ, **demo_environment(control_plane)}
        demo = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--on-cluster"], env=environment
        )
        while demo.poll() is None:
            if stopped.wait(1):
                demo.send_signal(signal.SIGINT)
                demo.wait(_STOP_TIMEOUT_S)
        return demo.returncode


def demo_environment(control_plane: ControlPlane) -> dict[str, str]:
    """Return what a portal needs in order to work on this cluster."""
    return {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "SLICEDESK_STATE_DIR": str(control_plane.directory / "portal"),
        "TOOLS_IMAGE": GPU_TOOLS,
        "VERIFY_IMAGE": GPU_TOOLS,
        "SLICE_IMAGE": GPU_TOOLS,
    }


@contextmanager
def _cluster(nodes: list[str]) -> Iterator[tuple[ControlPlane, threading.Event]]:
    """Run a cluster; the event is set by SIGTERM or Ctrl-C."""
    if reason := reason_against_nodes():
        raise ClusterStartError(reason)
    stopped = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stopped.set())
    sweep()
    programs = build()
    directory = new_run_directory()
    try:
        with ExitStack() as stack:
            control_plane = stack.enter_context(ControlPlane(programs, directory))
            for number, models in enumerate(nodes, start=1):
                node = LabNode(control_plane, number=number, models=tuple(models.split(",")))
                stack.enter_context(node)
            device_plugin.install(control_plane.api)
            (directory / "served").write_text(json.dumps({"nodes": nodes}))
            yield control_plane, stopped
    finally:
        remove_run_directory(directory)


def _up(nodes: list[str]) -> int:
    if _served():
        return _status(nodes)
    build()
    runs_directory().mkdir(mode=0o700, exist_ok=True)
    log = runs_directory() / "serve.log"
    command = [sys.executable, "-m", "tests.cluster", "serve"]
    with log.open("w") as file:
        server = subprocess.Popen(  # noqa: S603
            [*command, *(f"--node={models}" for models in nodes)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    wait_until(
        lambda: bool(_served()) or server.poll() is not None,
        "the cluster",
        timeout_s=_START_TIMEOUT_S,
    )
    if server.poll() is not None:
        _say(log.read_text(), is_error=True)
        return 1
    return _status(nodes)


def _down(_: list[str]) -> int:
    for directory in _served():
        pid = int((directory / "owner").read_text().split()[0])
        subprocess.run(["kill", "-TERM", str(pid)], check=False)  # noqa: S603, S607
        wait_until(partial(_is_gone, directory), f"{directory} gone", timeout_s=_STOP_TIMEOUT_S)
    for directory in sweep():
        _say(f"cleared up after {directory.name}")
    return 0


def _is_gone(directory: Path) -> bool:
    return not directory.exists()


def _status(_: list[str]) -> int:
    served = _served()
    for directory in served:
        nodes = json.loads((directory / "served").read_text())["nodes"]
        _say(f"KUBECONFIG={directory / 'kubeconfig'}")
        for number, models in enumerate(nodes, start=1):
            _say(f"node-{number}: {models}")
    if not served:
        _say("no cluster runs; start one with: python -m tests.cluster up")
    return 0 if served else 1


def _served() -> list[Path]:
    """Return the folders of clusters that were started by hand and run."""
    return [
        marker.parent
        for marker in sorted(runs_directory().glob("run-*/served"))
        if owner_lives(marker.parent)
    ]


def _say(text: str, *, is_error: bool = False) -> None:
    (sys.stderr if is_error else sys.stdout).write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
