"""Follows one kind of object: lists it once, then stays on its watch through whatever breaks.

A watch that breaks is taken up where it was, so that a restarted API server is not asked for
everything again; one that is too old, or that cannot be taken up, begins with a new list.
"""

import gc
import queue
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from gpu.ports import (
    EVERYTHING,
    Cluster,
    ClusterError,
    EventType,
    GoneError,
    Kind,
    Listing,
    UnreachableError,
    WatchEvent,
)

_log = structlog.get_logger(__name__)

_WATCH_S = 15.0
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 5.0
_MOST_ASKED_S = 60.0
_LIST_AGAIN_AFTER = 3


_collector = threading.Lock()
_pauses = 0


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep the cycle collector from going through a great list again and again while it is built.

    A list of ten thousand Pods is some million objects without a cycle. Blocks may overlap.
    """
    global _pauses  # noqa: PLW0603  # one collector for the process
    with _collector:
        _pauses += 1
        gc.disable()
    try:
        yield
    finally:
        with _collector:
            _pauses -= 1
            if not _pauses:
                gc.enable()


@dataclass(frozen=True, slots=True)
class Quiet:
    """All that has happened so far has been heard: what is known is fresh as of now."""


type News = Listing | WatchEvent
type Heard = News | Quiet


@dataclass(slots=True)
class BackOff:
    """How long to wait after each failure in a row: longer and longer, and never in step."""

    failures: int = 0

    def after(self, error: Exception) -> float:
        """Return the seconds to wait; a server that names a time is given at least that."""
        longest: float = min(_FIRST_WAIT_S * 2.0**self.failures, _LONGEST_WAIT_S)
        self.failures = min(self.failures + 1, 32)
        wait_s = longest * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        asked_s = error.retry_after_s if isinstance(error, UnreachableError) else 0.0
        return max(wait_s, min(asked_s, _MOST_ASKED_S) * random.uniform(1.0, 1.2))  # noqa: S311

    def reset(self) -> None:
        """Begin anew, for something went well."""
        self.failures = 0


@dataclass(slots=True)
class Follower:
    """Puts what it hears of one kind into a queue until told to stop; nothing ends it before."""

    cluster: Cluster
    kind: Kind
    heard: "queue.Queue[tuple[Kind, Heard]]"
    stopping: threading.Event
    start_over: threading.Event = field(default_factory=threading.Event)
    """Set by whoever could not use what was heard: everything is listed again."""
    _version: str = ""
    _back_off: BackOff = field(default_factory=BackOff)

    def run(self) -> None:
        """Follow until `stopping` is set; errors are logged and waited out."""
        while not self.stopping.is_set():
            try:
                self._list_if_needed()
                self._watch()
            except GoneError:
                _log.info("watch.too_old", kind=self.kind.plural)
                self._version = ""
                self.stopping.wait(_FIRST_WAIT_S)
            except ClusterError as error:
                _log.warning("watch.broken", kind=self.kind.plural, error=str(error))
                self._wait_after(error)
            except Exception as error:  # noqa: BLE001  # a follower that ended would go unseen
                _log.exception("watch.failed", kind=self.kind.plural)
                self._version = ""
                self._wait_after(error)

    def _list_if_needed(self) -> None:
        if self.start_over.is_set():
            self.start_over.clear()
            self._version = ""
        if self._version:
            return
        with no_collector():
            listing = self.cluster.list(self.kind, EVERYTHING)
        self._put(listing)
        self._version = listing.resource_version
        self._back_off.reset()

    def _watch(self) -> None:
        """Watch once, to the time-out; quiet ends and bookmarks say that nothing is missing."""
        events = self.cluster.watch(self.kind, EVERYTHING, self._version, timeout_s=_WATCH_S)
        for event in events:
            self._back_off.reset()
            self._put(Quiet() if event.type == EventType.BOOKMARK else event)
            self._version = event.object["metadata"]["resourceVersion"]
            if self.stopping.is_set() or self.start_over.is_set():
                return
        self._back_off.reset()
        self._put(Quiet())

    def _put(self, heard: Heard) -> None:
        self.heard.put((self.kind, heard))

    def _wait_after(self, error: Exception) -> None:
        wait_s = self._back_off.after(error)
        if self._back_off.failures >= _LIST_AGAIN_AFTER:
            self._version = ""  # a version that the server will never take must not be kept
        self.stopping.wait(wait_s)
