"""What is remembered of the services between runs: ports and passwords."""

import json
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from portal.embedded import locks
from portal.embedded.errors import EmbeddedError


@dataclass(slots=True)
class State:
    """A state directory; every value is written to its file as soon as it is chosen."""

    FILE: ClassVar[str] = "services.json"

    directory: Path
    values: dict[str, str]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read a directory, which is made with its passwords when it is new.

        Raises:
            EmbeddedError: the directory cannot be written.
        """
        try:
            directory = directory.expanduser().resolve()
            directory.mkdir(parents=True, exist_ok=True)
            with locks.exclusive(directory / "services.json.lock"):
                return cls._read(directory)
        except OSError as error:
            message = (
                f"The state directory {directory} cannot be used ({error.strerror}): "
                "point SLICEDESK_STATE_DIR at a folder that you may write."
            )
            raise EmbeddedError(message) from error

    @classmethod
    def _read(cls, directory: Path) -> Self:
        path = directory / cls.FILE
        if path.exists():
            try:
                return cls(directory, dict(json.loads(path.read_text())))
            except ValueError as error:
                message = f"{path} is damaged: delete {directory} to begin anew."
                raise EmbeddedError(message) from error
        state = cls(directory, {})
        for name in ("postgres_password", "valkey_password"):
            state.values[name] = secrets.token_hex(16)
        for name in ("postgres_port", "valkey_port"):
            state.values[name] = str(free_port())
        state.save()
        return state

    @property
    def users_lock(self) -> Path:
        """Return the lock that everybody who uses the services holds together."""
        return self.directory / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Return the lock that is held alone while services are started or left."""
        return self.directory / "start.lock"

    @property
    def reaper_lock(self) -> Path:
        """Return the lock of the one process that waits for the last user to go."""
        return self.directory / "reaper.lock"

    def port(self, name: str) -> int:
        """Return the port kept for a service."""
        return int(self.values[f"{name}_port"])

    def choose_port(self, name: str) -> int:
        """Return the port kept for a service, or another one when it is taken; keep it."""
        port = self.port(name)
        if not is_free(port):
            port = free_port()
            self.values[f"{name}_port"] = str(port)
            self.save()
        return port

    def save(self) -> None:
        """Write the file so that it is whole at any moment, and for its owner's eyes only."""
        path = self.directory / self.FILE
        fresh = path.with_suffix(".tmp")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self.values, file, indent=1)
        fresh.replace(path)


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Say whether a port of the loopback address can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
