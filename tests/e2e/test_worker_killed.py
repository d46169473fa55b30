"""A real Celery worker, killed fifty times at random while it changes GPUs."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from django.db import connection, transaction
from django.utils import timezone

from gpu import dispatch
from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.models import Gpu, Operation
from gpu.objects import NodeObject
from gpu.ports import NODE
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.services import inventory, operations
from gpu.services.operations import Change
from portal.celery import app
from portal.local import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(420)]

NODE_NAME = "gpu-h200-01"
KILLS = 50
KILLS_EACH = 6
PACE = 0.05
WHOLE_WORKER = 0.1
STRIKES = 0.4
TARGETS: tuple[list[tuple[str, int]], ...] = (
    [("7g.141gb", 0)],
    [("1g.18gb", 0), ("3g.71gb", 4)],
    [("4g.71gb", 0), ("2g.35gb", 4)],
    [],
)


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    found = SimulatedCluster(tmp_path / "lab.sqlite3", pace=PACE)
    build_lab(found)
    node = NodeObject.from_manifest(found.read(NODE, NODE_NAME))
    inventory.record_nodes([node], now=timezone.now(), is_complete=True)
    while read_unread_nodes(cluster=found):
        time.sleep(0.05)
    return found


class Worker:
    """A worker under a supervisor that starts it again, as every deployment has one."""

    def __init__(self, folder: Path, broker: str) -> None:
        settings = connection.settings_dict
        place = f"{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": f"postgres://{settings['USER']}:{settings['PASSWORD']}@{place}",
            "REDIS_URL": broker,
            "SLICEDESK_STATE_DIR": str(folder),
            "SIMULATED_PACE": str(PACE),
            "OPERATION_LEASE_S": "1",
        }
        self._log = folder / "worker.log"
        self._process = self._start()

    def keep_alive(self) -> None:
        """Start the worker again when it has died."""
        if self._process.poll() is not None:
            self._process = self._start()

    def kill_one(self, chance: random.Random) -> bool:
        """Kill the process that does the work, now and then the whole worker; False if none."""
        children = psutil.Process(self._process.pid).children() if self._is_up() else []
        if not children:
            return False
        children[0].kill()
        if chance.random() < WHOLE_WORKER:
            self._process.kill()
            self._process.wait(10)
        return True

    def stop(self) -> None:
        """End it for good."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def _is_up(self) -> bool:
        return self._process.poll() is None

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "portal", "worker"]
        command += ["-c", "1", "-l", "ERROR", "--without-gossip", "--without-mingle"]
        with self._log.open("a") as log:
            return subprocess.Popen(  # our own worker
                command,
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@pytest.fixture
def worker(tmp_path: Path, valkey: str) -> Iterator[Worker]:
    found = Worker(tmp_path, valkey)
    yield found
    found.stop()


def _open(gpu: Gpu, target: list[tuple[str, int]]) -> Operation:
    desired = {"mig": True, "instances": [list(pair) for pair in target]}
    with transaction.atomic():
        return operations.open_operation(Change(gpu=gpu, desired=desired), actor=None)


def _wake(operation: Operation, broker: str) -> None:
    """Do what the sweep does every few seconds."""
    with app.connection_for_write(broker) as wire:
        app.send_task(dispatch.RECONCILE_OPERATION, args=[operation.pk], connection=wire)


def test_operation_ends_well_however_often_its_worker_is_killed(
    cluster: SimulatedCluster, worker: Worker, valkey: str
) -> None:
    chance = random.Random(20261201)  # noqa: S311  # no secret
    gpu = Gpu.objects.get(node__name=NODE_NAME, index=1)
    kills = rounds = 0
    states: set[str] = set()
    while kills < KILLS:
        target = TARGETS[rounds % len(TARGETS)]
        rounds += 1
        done_before = len(cluster.files.history(NODE_NAME))
        operation = _open(gpu, target)
        most = min(KILLS, kills + KILLS_EACH)
        end = time.monotonic() + 120
        while not operation.is_finished:
            assert time.monotonic() < end, (operation.state, operation.memory)
            worker.keep_alive()
            _wake(operation, valkey)
            time.sleep(chance.uniform(0.02, 0.6))
            operation.refresh_from_db()
            is_at_work = operation.lease_until is not None
            is_new = operation.state not in states
            strikes = kills < most and is_at_work and (is_new or chance.random() < STRIKES)
            if strikes and worker.kill_one(chance):
                states.add(operation.state)
                kills += 1
        assert operation.state == Operation.State.DONE, operation.failure_said
        commands = cluster.files.history(NODE_NAME)[done_before:]
        created = [words for words in commands if "-cgi" in words]
        assert len(created) == len(set(created)) == len(target), commands
        node = NodeObject.from_manifest(cluster.read(NODE, NODE_NAME))
        assert node.is_schedulable
        assert "slicedesk.io/cordoned-by" not in node.annotations
        layout = {(i.profile, i.start) for i in gpu.instances.all()}
        assert layout == set(target)
    assert len(states) > 3, f"the kills hit only {states}"
