"""Starts everything in order, tells what it does, and keeps it alive until told to stop."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from portal.demo.children import Child
from portal.embedded import EmbeddedError, Services, locks, services
from portal.local import ROOT

_TICK_SECONDS = 0.3
_HEALTHY_SECONDS = 90.0
_READY_SECONDS = 30.0
_STOP_SECONDS = 8.0


class DemoError(RuntimeError):
    """The demo cannot go on; the message is one sentence with the way out."""


class _StopRequestedError(Exception):
    """Ctrl-C or SIGTERM."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the environment say."""

    state_dir: Path
    port: int
    database_url: str = ""
    redis_url: str = ""
    logins: str = ""
    with_tour: bool = True
    stops_after_tour: bool = False
    on_cluster: bool = False


def run(options: Options, *, say: Callable[[str], None]) -> int:
    """Play the demo until it is told to stop; return the exit code.

    Raises:
        DemoError: the port is taken, or a step of the preparation fails.
        EmbeddedError: PostgreSQL or Valkey does not start.
    """
    _check_port(options.port)
    options.state_dir.mkdir(parents=True, exist_ok=True)
    with (
        locks.exclusive_or_not(options.state_dir / "demo.lock") as is_only,
        _stop_signals(),
    ):
        if not is_only:
            message = (
                f"A demo already runs from {options.state_dir}: stop it first, or give this one "
                "another folder with SLICEDESK_STATE_DIR."
            )
            raise DemoError(message)
        try:
            with services(
                options.state_dir,
                database_url=options.database_url,
                redis_url=options.redis_url,
            ) as running:
                return _Demo(options, running, say).play()
        except _StopRequestedError:
            say("Stopped. What was made is kept; make demo goes on from there.")
            return 0


class _Demo:
    """One run of the demo on services that are up."""

    def __init__(self, options: Options, running: Services, say: Callable[[str], None]) -> None:
        self._options = options
        self._services = running
        self._say = say
        self._environment = {
            **os.environ,
            **running.environment,
            "DEPLOYMENT": "local",
            "PYTHONUNBUFFERED": "1",
        }
        if options.on_cluster:
            self._environment["CLUSTER"] = "kubernetes"
        self._logs = options.state_dir / "log"
        self._logs.mkdir(exist_ok=True)
        python, manage = sys.executable, str(ROOT / "manage.py")
        celery = [python, "-m", "celery", "-A", "portal.celery"]
        self._children = [
            self._child("worker", *celery, *_WORKER_WORDS),
            self._child("beat", *celery, "beat", "--loglevel=WARNING", "--pidfile="),
            self._child("watcher", python, manage, "watch_cluster"),
            self._child("web", python, *_WEB_WORDS, f"--port={options.port}"),
        ]

    def play(self) -> int:
        """Prepare, start, show, and look after everything until told to stop."""
        self._say("PostgreSQL and Valkey are up.")
        self._prepare()
        try:
            for child in self._children:
                child.start()
            self._wait_until_served()
            code = self._tour() if self._options.with_tour else 0
            if self._options.stops_after_tour:
                return code
            self._say(f"\nThe portal is served at {self._address}  (Ctrl-C stops everything)")
            self._say(self._options.logins)
            while True:
                self._look_after_all()
        finally:
            self._say("Stopping …")
            for child in reversed(self._children):
                child.stop(seconds=_STOP_SECONDS)

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._options.port}"

    def _child(self, name: str, *command: str) -> Child:
        return Child(name, command, self._logs / f"{name}.log", self._environment)

    def _prepare(self) -> None:
        """Bring database and files up to date, and build the lab where there is none."""
        seed = ("seed_demo", "--on-cluster") if self._options.on_cluster else ("seed_demo",)
        for title, words in (
            ("The database is migrated.", ("migrate", "--noinput", "--verbosity=0")),
            ("Static files are collected.", ("collectstatic", "--noinput", "--verbosity=0")),
            ("The portal is filled.", seed),
        ):
            self._manage(*words)
            self._say(title)

    def _manage(self, *words: str) -> None:
        result = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            log = self._logs / f"{words[0]}.log"
            log.write_text(result.stdout + result.stderr)
            message = f"manage.py {words[0]} failed: {_reason(result.stderr)} (all of it: {log})"
            raise DemoError(message)
        if news := result.stdout.rstrip():
            self._say(news)

    def _wait_until_served(self) -> None:
        """Wait until pages are served and, for a while, until worker and watcher are seen."""
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while _status(f"{self._address}/healthz") != _OK:
            self._look_after_all()
            if time.monotonic() > deadline:
                message = f"The portal does not answer at {self._address}: see {self._logs}."
                raise DemoError(message)
        self._say("The portal answers.")
        deadline = time.monotonic() + _READY_SECONDS
        while not _is_ready(f"{self._address}/readyz") and time.monotonic() < deadline:
            self._look_after_all()

    def _tour(self) -> int:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "tour"],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
        try:
            while (code := process.poll()) is None:
                self._look_after_all()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if code:
            self._say("The tour did not come to its end; what went wrong stands above.")
        return code

    def _look_after_all(self) -> None:
        """Start again what has died; takes one tick."""
        try:
            for name in self._services.restart_dead():
                self._say(f"{name} had ended and was started again.")
        except EmbeddedError as error:
            self._say(f"{error} Trying again.")
            time.sleep(1)
        for child in self._children:
            if news := child.look_after():
                self._say(news)
        time.sleep(_TICK_SECONDS)


_OK = 200
_WORKER_WORDS = (
    "worker",
    "--concurrency=2",
    "--loglevel=WARNING",
    "--without-gossip",
    "--without-mingle",
    "--hostname=worker@demo",
)
_WEB_WORDS = (
    "-m",
    "uvicorn",
    "portal.asgi:application",
    "--host=127.0.0.1",
    "--log-level=warning",
    "--no-access-log",
    "--timeout-graceful-shutdown=2",
)


def _reason(stderr: str) -> str:
    """Return the line of an error output that names the error."""
    lines = stderr.strip().split("\n")
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    return (named or lines)[-1].strip()


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            message = (
                f"Port {port} of 127.0.0.1 cannot be used ({error.strerror}): stop what listens "
                f"there, or choose another one, for example PORT={port + 1} make demo."
            )
            raise DemoError(message) from error


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  our own address
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  our own address
            return b'"state": "ok"' in answer.read()
    except OSError:
        return False


@contextlib.contextmanager
def _stop_signals() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into an orderly stop, and ignore those that follow."""

    def stop(*_arguments: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise _StopRequestedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
