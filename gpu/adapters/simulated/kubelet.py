"""The kubelets: they start Pods, give them devices, and really run scripts that ask for GPUs."""

import contextlib
import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.adapters.simulated import programs
from gpu.adapters.simulated.admission import FINAL_PHASES
from gpu.adapters.simulated.scheduling import pod_requests
from gpu.adapters.simulated.store import hidden
from gpu.adapters.smi.run import DIRECTORY, VISIBLE
from gpu.ports import Manifest

_SCRIPT_LIMIT_S = 120
_FINAL_SLEEP = re.compile(r";\s*sleep (\d+)\s*$")


class NoDeviceError(Exception):
    """The kubelet cannot give a Pod what the scheduler promised it."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script that a Pod runs: where its node's GPUs are kept, and what it may see of them."""

    uid: str
    text: str
    gpus: Path
    visible: str | None


def script_of(pod: Manifest) -> str | None:
    """Return the shell script that has to be run for real, or None for a Pod that just runs."""
    command = pod["spec"]["containers"][0].get("command") or []
    if command[:2] == ["sh", "-c"] and "nvidia-smi" in command[2]:
        return _FINAL_SLEEP.sub("", command[2])
    return None


def sleeps_after_s(pod: Manifest) -> float:
    """Return how long a script sleeps at its end, which is not really waited for."""
    match = _FINAL_SLEEP.search((pod["spec"]["containers"][0].get("command") or [""])[-1])
    return float(match[1]) if match else 0.0


def runs_for_s(pod: Manifest) -> float | None:
    """Return how long a Pod runs before it ends well; None for ever."""
    text = (pod["metadata"].get("annotations") or {}).get("slicedesk.io/simulated-runtime-seconds")
    return float(text) if text else None


def give_devices(
    pod: Manifest, registered: Mapping[str, list[str]], others: list[Manifest]
) -> dict[str, list[str]]:
    """Return distinct free devices for a Pod; `NoDeviceError` says which resource is short."""
    taken: set[str] = set()
    for other in others:
        if other.get("status", {}).get("phase") not in FINAL_PHASES:
            for ids in hidden(other).get("devices", {}).values():
                taken |= set(ids)
    given: dict[str, list[str]] = {}
    for key, count in pod_requests(pod).items():
        if not key.startswith("nvidia.com/") or not count:
            continue
        free = [device for device in registered.get(key, []) if device not in taken]
        if len(free) < count:
            msg = (
                f"Pod was rejected: Allocate failed due to requested number of devices unavailable"
                f" for {key}. Requested: {count}, Available: {len(free)}, which is unexpected"
            )
            raise NoDeviceError(msg)
        given[key] = free[:count]
    return given


def visible_devices(pod: Manifest) -> str | None:
    """Return NVIDIA_VISIBLE_DEVICES as the container has it; None for one that stands on the host.

    Without a device of its own a container sees nothing, whatever its environment asks for.
    """
    container = pod["spec"]["containers"][0]
    if (container.get("securityContext") or {}).get("privileged"):
        return None
    ids = [d for given in hidden(pod).get("devices", {}).values() for d in given]
    return ",".join(device.split("::")[0] for device in ids) or "void"


def device_status(devices: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Return `allocatedResourcesStatus` for a container that holds these."""
    return [
        {
            "name": name,
            "resources": [{"resourceID": device, "health": "Healthy"} for device in ids],
        }
        for name, ids in devices.items()
    ]


def run_script(script: Script, folder: Path) -> tuple[int, str]:
    """Run a script to its end and return exit status and output.

    A lock that the child inherits keeps a second run waiting until an orphaned one has ended, so
    that the script, which may run twice, never runs twice at a time.
    """
    binaries = programs.install(folder / "bin")
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / script.uid).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with tempfile.TemporaryDirectory() as home:
            return _run(script, binaries, home, lock.fileno())


def forget_script(uid: str, folder: Path) -> None:
    """Remove what was kept for a Pod that has gone."""
    with contextlib.suppress(FileNotFoundError):
        (folder / "locks" / uid).unlink()


def _run(script: Script, binaries: Path, home: str, lock: int) -> tuple[int, str]:
    environment = {
        "PATH": f"{binaries}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": home,
        DIRECTORY: str(script.gpus),
    }
    if script.visible is not None:
        environment[VISIBLE] = script.visible
    try:
        done = subprocess.run(  # noqa: S603  # the Pod's own script, as a kubelet does
            ["/bin/sh", "-c", script.text],
            env=environment,
            cwd=home,
            pass_fds=(lock,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SCRIPT_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return 137, "the simulated kubelet ended the script after its time limit\n"
    return done.returncode, done.stdout
