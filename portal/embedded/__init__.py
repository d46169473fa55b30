"""PostgreSQL and Valkey out of their wheels, for the demo and the tests: nothing to install.

    with services(state_dir) as running:
        running.database_url, running.redis_url

Both listen on free ports of the loopback address behind passwords of their own; everything is
under `state_dir` and kept. Whoever opens the same directory meanwhile shares them, and they stop
when the last one has gone, however it went (`portal.embedded.reaper`). Knows nothing of Django.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from portal.embedded import locks
from portal.embedded.errors import EmbeddedError
from portal.embedded.postgres import Postgres
from portal.embedded.reaper import start_reaper, stop_all
from portal.embedded.state import State
from portal.embedded.valkey import Valkey

__all__ = ["EmbeddedError", "Services", "running_services", "services"]


class Services:
    """The two addresses, and the care for what we run ourselves."""

    def __init__(self, *, database_url: str, redis_url: str, own: list[Postgres | Valkey]) -> None:
        self.database_url = database_url
        self.redis_url = redis_url
        self._own = own

    @property
    def environment(self) -> dict[str, str]:
        """Return the two addresses as environment variables."""
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}

    def restart_dead(self) -> list[str]:
        """Start again, at the same address, what has died; return the names of those.

        Raises:
            EmbeddedError: one of them does not come back.
        """
        dead = [service for service in self._own if not service.is_alive()]
        for service in dead:
            service.start(keeps_port=True)  # others know the address
        return [service.name for service in dead]


@contextlib.contextmanager
def services(
    state_dir: Path | str,
    *,
    database_url: str = "",
    redis_url: str = "",
    is_ephemeral: bool = False,
) -> Iterator[Services]:
    """Run PostgreSQL and Valkey while the block lasts, or share what already runs there.

    Args:
        state_dir: where data, logs and passwords are kept; made when missing.
        database_url: use this server and start no PostgreSQL.
        redis_url: use this server and start no Valkey.
        is_ephemeral: trade safety against power loss for speed (tests).

    Raises:
        EmbeddedError: one of them cannot be started; the message says why and what to do.
    """
    if database_url and redis_url:
        yield Services(database_url=database_url, redis_url=redis_url, own=[])
        return
    place = State.open(Path(state_dir))
    with locks.shared(
        place.users_lock,
        starting=place.start_lock,
        leave=lambda: stop_all(State.open(place.directory)),
    ):
        with locks.exclusive(place.start_lock):
            state = State.open(place.directory)  # others may have changed a port meanwhile
            start_reaper(state)
            own: list[Postgres | Valkey] = []
            if not database_url:
                own.append(Postgres(state, is_ephemeral=is_ephemeral))
            if not redis_url:
                own.append(Valkey(state))
            running = _started(own, database_url, redis_url)
        yield running


def _started(own: list[Postgres | Valkey], database_url: str, redis_url: str) -> Services:
    for service in own:
        if not service.is_running():
            service.start()
    urls = {service.name: service.url for service in own}
    return Services(
        database_url=database_url or urls["PostgreSQL"],
        redis_url=redis_url or urls["Valkey"],
        own=own,
    )


def running_services(state_dir: Path | str) -> dict[str, str]:
    """Return the addresses that the services of a directory have or last had; starts nothing."""
    path = Path(state_dir)
    if not (path / State.FILE).exists():
        return {}
    state = State.open(path)
    return {"DATABASE_URL": Postgres(state).url, "REDIS_URL": Valkey(state).url}
