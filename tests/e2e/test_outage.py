"""The portal while its database is stopped, frozen and back, and while its broker is.

A web process of its own on services of its own: what is stopped here is nobody else's.
"""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from portal.embedded import Services, services
from portal.embedded.postgres import Postgres
from portal.embedded.state import State, free_port
from portal.embedded.valkey import Valkey

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.e2e


@dataclass(frozen=True, slots=True)
class Running:
    """A served portal and the servers under it."""

    port: int
    postgres: Postgres
    valkey: Valkey
    running: Services

    def get(self, path: str) -> tuple[int, str, float]:
        """Return status, text and seconds of a page asked for by somebody who has a session."""
        started = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Cookie": f"slicedesk_session={'x' * 32}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), time.monotonic() - started
        finally:
            connection.close()

    def until(self, path: str, status: int, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if self.get(path)[0] == status:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        message = f"{path} did not answer {status} within {seconds} s"
        raise AssertionError(message)


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state_dir = tmp_path_factory.mktemp("outage")
    port = free_port()
    with services(state_dir, is_ephemeral=True) as running:
        environment = {
            **os.environ,
            **running.environment,
            "DEPLOYMENT": "local",
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "SECRET_KEY": "only-for-tests",
            "SLICEDESK_STATE_DIR": str(state_dir),
        }
        for words in (["migrate"], ["collectstatic", "--noinput"]):
            manage = [sys.executable, str(ROOT / "manage.py"), *words, "--verbosity=0"]
            subprocess.run(manage, env=environment, cwd=ROOT, check=True)
        web = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "portal.asgi:application", f"--port={port}"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        state = State.open(state_dir)
        try:
            found = Running(port, Postgres(state), Valkey(state), running)
            found.until("/healthz", 200)
            yield found
        finally:
            web.kill()
            web.wait()


def test_a_stopped_database_is_said_at_once_and_pages_are_back_without_a_restart(
    portal: Running,
) -> None:
    assert portal.get("/admin/")[0] == 302
    portal.postgres.stop()

    status, text, seconds = portal.get("/admin/")

    assert (status, "The database does not answer" in text) == (503, True)
    assert seconds < 8
    assert portal.get("/readyz")[0] == 503
    assert portal.get("/healthz")[0] == 200
    portal.running.restart_dead()
    portal.until("/admin/", 302)


def test_a_frozen_database_is_said_too(portal: Running) -> None:
    portal.until("/admin/", 302)
    process = portal.postgres.process()
    assert process is not None
    family = [process, *process.children()]
    for one in family:
        one.suspend()

    try:
        status, text, seconds = portal.get("/admin/")
    finally:
        for one in family:
            one.resume()

    assert (status, "The database does not answer" in text) == (503, True)
    assert seconds < 10
    portal.until("/admin/", 302)


def test_pages_are_served_while_the_broker_is_stopped_or_frozen(portal: Running) -> None:
    portal.until("/admin/", 302)
    process = portal.valkey.process()
    assert process is not None
    process.suspend()
    assert portal.get("/admin/")[0] == 302
    assert portal.get("/sign-in/")[0] == 200
    status, text, seconds = portal.get("/readyz")
    process.resume()
    assert (status, '"state": "degraded"' in text) == (200, True)
    assert seconds < 3

    portal.valkey.stop()
    assert portal.get("/sign-in/")[0] == 200
    portal.running.restart_dead()
