"""Watches: changes of one kind out of the change log, as seen through a scope."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu.adapters.simulated.selectors import in_scope
from gpu.adapters.simulated.store import Change, Store, public
from gpu.ports import EventType, GoneError, Kind, RefusedError, Scope, WatchEvent

_POLL_S = 0.2
_BOOKMARK_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched; `arrive` lets the time pass before each look."""

    store: Store
    kind: Kind
    scope: Scope
    arrive: Callable[[], None]

    def events(self, since: str, *, timeout_s: float) -> Iterator[WatchEvent]:
        """Yield what changes after `since`, and bookmarks when it is quiet, until the time-out.

        `0` begins with everything that is there. `GoneError` when `since` is too old, or of a lab
        that is not there any more.
        """
        end = time.monotonic() + timeout_s
        bookmark_at = min(end, time.monotonic() + _BOOKMARK_EVERY_S)
        version = _version(since)
        if version == 0:
            present, version = self._everything()
            yield from present
        told = version
        while True:
            changes, version = self._changes(version)
            for change in changes:
                event = _event(change, self.scope)
                if event is not None:
                    told = change.version
                    yield event
            if version > told and time.monotonic() >= bookmark_at:
                bookmark_at = min(end, time.monotonic() + _BOOKMARK_EVERY_S)
                told = version
                yield self._bookmark(version)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_S, left))
            self.arrive()

    def _everything(self) -> tuple[list[WatchEvent], int]:
        with self.store.reading() as tx:
            bodies = tx.select(self.kind, self.scope.namespace)
            _oldest, newest = tx.versions()
        found = [public(body) for body in bodies if in_scope(body, self.scope)]
        return [WatchEvent(EventType.ADDED, body) for body in found], newest

    def _changes(self, version: int) -> tuple[list[Change], int]:
        with self.store.reading() as tx:
            oldest, newest = tx.versions()
            if not oldest <= version <= newest:
                msg = f"too old resource version: {version} ({oldest})"
                raise GoneError(msg)
            return tx.changes_since(self.kind, version), newest

    def _bookmark(self, version: int) -> WatchEvent:
        body = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "metadata": {"resourceVersion": str(version)},
        }
        return WatchEvent(EventType.BOOKMARK, body)


def _version(since: str) -> int:
    if not since.isdecimal() and since:
        msg = f"resourceVersion: Invalid value: {since!r}"
        raise RefusedError(msg)
    return int(since or 0)


def _event(change: Change, scope: Scope) -> WatchEvent | None:
    before, body = change.before, change.body
    was_in = before is not None and in_scope(before, scope)
    is_in = in_scope(body, scope) and change.type != EventType.DELETED
    if not was_in and not is_in:
        return None
    if was_in and not is_in:
        return WatchEvent(EventType.DELETED, body)
    return WatchEvent(EventType.MODIFIED if was_in else EventType.ADDED, body)
