"""`make demo` as a person runs it: from an empty folder to a verified slice, and to its end.

Aspects: the tour's timeline; readiness; killed servers and workers come back and are said; a second
demo from the same folder is refused; Ctrl-C leaves nothing running and keeps what was made.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from portal.embedded.postgres import Postgres
from portal.embedded.state import State, free_port
from portal.embedded.valkey import Valkey

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.e2e

_END = "(it has ended, or says nothing more)"


class Demo:
    """A demo in a terminal of its own, read line by line."""

    def __init__(self, state_dir: Path, port: int) -> None:
        self.state_dir, self.port = state_dir, port
        kept = {name: value for name, value in os.environ.items() if name not in _OURS}
        self.environment = {**kept, "SLICEDESK_STATE_DIR": str(state_dir), "PORT": str(port)}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo"],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(_END)

    def until(self, *parts: str, seconds: float = 120) -> None:
        """Read on until a line holds each of the parts, in any order."""
        left = set(parts)
        deadline = time.monotonic() + seconds
        while left:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = _END
            if line is _END:
                message = f"{left} was not said; what was:\n" + "\n".join(self.said)
                raise AssertionError(message)
            self.said.append(line)
            left -= {part for part in left if part in line}

    def readiness(self) -> dict[str, object]:
        """Return what /readyz says, or nothing while it says nothing."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/readyz", timeout=10
            ) as answer:
                found: dict[str, object] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}


_OURS = {  # what tests/settings.py puts into the environment
    "CLUSTER",
    "DATABASE_URL",
    "DEPLOYMENT",
    "DJANGO_SETTINGS_MODULE",
    "LOG_LEVEL",
    "REDIS_URL",
    "SECRET_KEY",
    "SIMULATED_PACE",
}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    found = Demo(tmp_path / "var", free_port())
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.send_signal(signal.SIGTERM)
        found.process.wait(60)
        assert found.process.stdout is not None
        found.process.stdout.close()


def eventually(check: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.2)
    return False


def left_over(state_dir: Path) -> list[str]:
    """Return the command lines of processes that use a state directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            words = [*(process.info["cmdline"] or ()), *process.environ().values()]
        except (psutil.Error, OSError):
            continue
        if any(str(state_dir) in word for word in words) and process.pid != os.getpid():
            found.append(" ".join(process.info["cmdline"] or ()))
    return found


def worker_of(demo: Demo) -> psutil.Process:
    """Return the worker's main process."""
    (found,) = [
        child
        for child in psutil.Process(demo.process.pid).children()
        if child.status() != psutil.STATUS_ZOMBIE and "worker@demo" in " ".join(child.cmdline())
    ]
    return found


@pytest.mark.timeout(400)
def test_the_demo_from_an_empty_folder_to_its_end(demo: Demo) -> None:
    demo.until("slice ready", "The portal is served at", "grace", seconds=240)
    assert demo.readiness()["state"] == "ok"

    second = subprocess.run(
        [sys.executable, "manage.py", "demo"],
        cwd=ROOT,
        env={**demo.environment, "PORT": str(free_port())},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode == 2
    assert second.stderr.startswith("Error: A demo already runs from ")

    state = State.open(demo.state_dir)
    victims = [Postgres(state).process(), Valkey(state).process(), worker_of(demo)]
    for victim in victims:
        assert victim is not None
        victim.kill()
    demo.until(
        "PostgreSQL had ended and was started again.",
        "Valkey had ended and was started again.",
        "worker started again.",
        seconds=30,
    )
    assert eventually(lambda: demo.readiness().get("state") == "ok", 60)

    demo.process.send_signal(signal.SIGINT)
    demo.until("Stopped. What was made is kept", seconds=40)
    assert demo.process.wait(10) == 0
    assert eventually(lambda: left_over(demo.state_dir) == [], 10), left_over(demo.state_dir)
    assert (demo.state_dir / "postgres" / "PG_VERSION").exists()
