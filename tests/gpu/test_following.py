"""Following a watch: taken up where it broke, begun anew when it is too old, never in step."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpu.ports import (
    NODE,
    ClusterError,
    EventType,
    GoneError,
    Kind,
    Listing,
    RefusedError,
    Scope,
    UnreachableError,
    WatchEvent,
)
from gpu.reconcilers import following
from gpu.reconcilers.following import BackOff, Follower, Quiet

type Act = Callable[[], Any]


def event(version: str, kind: EventType = EventType.MODIFIED) -> WatchEvent:
    return WatchEvent(kind, {"metadata": {"uid": "u", "name": "n", "resourceVersion": version}})


class Script:
    """A cluster whose watches end as written; the last ends the follower."""

    def __init__(self, stopping: threading.Event, *watches: list[WatchEvent | Exception]) -> None:
        self.asked: list[str] = []
        self.lists = 0
        self.list_errors: list[Exception] = []
        self._stopping = stopping
        self._watches = list(watches)

    def list(self, _kind: Kind, _scope: Scope) -> Listing:
        if self.list_errors:
            raise self.list_errors.pop()
        self.lists += 1
        return Listing((), f"list-{self.lists}")

    def watch(
        self, _kind: Kind, _scope: Scope, since: str, *, timeout_s: float
    ) -> Iterator[WatchEvent]:
        assert timeout_s > 0
        self.asked.append(since)
        acts = self._watches.pop(0)
        if not self._watches:
            self._stopping.set()
        for act in acts:
            if isinstance(act, Exception):
                raise act
            yield act


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_WAIT_S", "_LONGEST_WAIT_S"):
        monkeypatch.setattr(following, name, 0.001)


def follow(*watches: list[WatchEvent | Exception], **also: Any) -> tuple[Script, list[Any]]:  # noqa: ANN401
    stopping = threading.Event()
    script = Script(stopping, *watches)
    for name, value in also.items():
        setattr(script, name, value)
    heard: queue.Queue[Any] = queue.Queue()
    Follower(script, NODE, heard, stopping).run()  # type: ignore[arg-type]  # as much as is used
    return script, [heard.get()[1] for _ in range(heard.qsize())]


def test_a_broken_watch_is_taken_up_where_it_was() -> None:
    script, heard = follow([event("7"), UnreachableError("cut")], [event("8")], [])
    assert script.asked == ["list-1", "7", "8"]
    assert script.lists == 1
    assert [item for item in heard if isinstance(item, WatchEvent)] == [event("7"), event("8")]


def test_a_watch_that_is_too_old_begins_with_a_new_list() -> None:
    script, heard = follow([event("7"), GoneError("410")], [])
    assert (script.asked, script.lists) == (["list-1", "list-2"], 2)
    assert [type(item) for item in heard] == [Listing, WatchEvent, Listing, Quiet]


def test_a_version_that_is_never_taken_is_given_up() -> None:
    late = UnreachableError("Too large resource version")
    script, _heard = follow([late], [late], [late], [])
    assert script.asked == ["list-1", "list-1", "list-1", "list-2"]


def test_bookmarks_move_on_and_say_that_nothing_is_missing() -> None:
    script, heard = follow([event("9", EventType.BOOKMARK), UnreachableError("cut")], [])
    assert script.asked == ["list-1", "9"]
    assert heard == [Listing((), "list-1"), Quiet(), Quiet()]


def test_a_broken_watch_says_nothing_of_freshness() -> None:
    _script, heard = follow([UnreachableError("cut")], [event("8"), RefusedError("no")])
    assert Quiet() not in heard


def test_a_list_that_fails_is_asked_for_again() -> None:
    errors: list[ClusterError] = [UnreachableError("down"), RefusedError("nodes is forbidden")]
    script, _heard = follow([], list_errors=errors)
    assert script.lists == 1


def test_a_fault_of_ours_does_not_end_it() -> None:
    script, _heard = follow([ValueError("a bug")], [])
    assert script.lists == 2


def test_waits_grow_to_a_bound_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FIRST_WAIT_S", 0.25)
    monkeypatch.setattr(following, "_LONGEST_WAIT_S", 5.0)
    back_off = BackOff()
    waits = [back_off.after(UnreachableError("down")) for _ in range(40)]
    assert 0.125 <= waits[0] <= 0.25
    assert all(2.5 <= wait <= 5 for wait in waits[6:])
    assert len(set(waits)) == len(waits)
    back_off.reset()
    assert back_off.after(UnreachableError("down")) <= 0.25


def test_a_server_that_asks_to_be_left_alone_is() -> None:
    assert 10 <= BackOff().after(UnreachableError("busy", retry_after_s=10)) <= 12
    assert BackOff().after(UnreachableError("busy", retry_after_s=86_400)) <= 72
