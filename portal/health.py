"""How the parts stand: database, broker, worker and watcher."""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import structlog
from django.db import Error as DatabaseError
from django.db import connection
from redis.exceptions import RedisError

from portal.broker import broker

log = structlog.get_logger(__name__)

type State = Literal["ok", "degraded", "down"]

STALE_SECONDS = {"worker": 30, "watcher": 30}
"""How old a heartbeat may be, in seconds, before its process counts as silent."""
_KEY = "slicedesk:heartbeats"
_GLANCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Part:
    """One part: whether it works, and one sentence or figure about it."""

    name: str
    is_ok: bool
    detail: str
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All parts at one moment."""

    parts: tuple[Part, ...]

    @property
    def state(self) -> State:
        """Return `down` without a database, `degraded` when any other part is missing."""
        broken = {part.name for part in self.parts if not part.is_ok}
        if "database" in broken:
            return "down"
        return "degraded" if broken else "ok"

    def as_json(self) -> dict[str, Any]:
        """Return the report as `/readyz` shows it."""
        return {
            "state": self.state,
            **{
                part.name: {
                    "ok": part.is_ok,
                    "detail": part.detail,
                    **({} if part.age_seconds is None else {"age_seconds": part.age_seconds}),
                }
                for part in self.parts
            },
        }


def beat(name: str) -> None:
    """Note that the named process is alive; never raises."""
    try:
        broker().hset(_KEY, name, f"{time.time():.3f}")
    except (RedisError, OSError) as error:
        log.warning("heartbeat.lost", name=name, error=type(error).__name__)


def report() -> Report:
    """Look at every part now; takes a few seconds at most and never raises."""
    beats = _heartbeats()
    is_broker_ok = beats is not None
    return Report(
        (
            _database(),
            Part("broker", is_broker_ok, "answers" if is_broker_ok else "does not answer"),
            *(_process(name, beats) for name in STALE_SECONDS),
        )
    )


def broken_parts() -> tuple[str, ...]:
    """Return the names of the parts besides the database that do not work, at most 2 s old.

    Cheap enough for every page: one look at the broker per process in that time.
    """
    return _glance(int(time.monotonic() / _GLANCE_SECONDS))


def forget() -> None:
    """Look anew at the next page instead of relying on the last look."""
    _glance.cache_clear()


@lru_cache(maxsize=1)
def _glance(_moment: int) -> tuple[str, ...]:
    beats = _heartbeats()
    broken = ["broker"] if beats is None else []
    return (*broken, *(name for name in STALE_SECONDS if not _process(name, beats).is_ok))


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Part("database", is_ok=False, detail=str(error).strip().split("\n")[0])
    return Part("database", is_ok=True, detail="answers")


def _heartbeats() -> dict[str, str] | None:
    """Return the heartbeats, or None when the broker cannot be asked."""
    try:
        return dict(broker().hgetall(_KEY))  # type: ignore[arg-type]  # the client is not async
    except (RedisError, OSError):
        return None


def _process(name: str, beats: dict[str, str] | None) -> Part:
    if beats is None:
        return Part(name, is_ok=False, detail="unknown: the broker does not answer")
    if name not in beats:
        return Part(name, is_ok=False, detail="has not been seen yet")
    age = max(0.0, round(time.time() - float(beats[name]), 1))
    is_ok = age <= STALE_SECONDS[name]
    return Part(name, is_ok, "alive" if is_ok else "silent", age)
