"""The live stream on a real Valkey: who may listen, what comes when, and what a loss does.

Every test runs the real ASGI application in an event loop of its own.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import time_machine
from django.core import signing
from django.db import transaction
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings
from redis import Redis

from portal import live, stream
from portal.embedded.state import State
from portal.embedded.valkey import Valkey
from tests.portal.pages import OpenPage


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Play a story, and insist that it leaves no task behind."""

    async def play() -> None:
        try:
            async with asyncio.timeout(60):
                await story()
            assert stream.hub().open_pages == 0
        finally:
            await stream.close_hub()
        left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
        assert left == set()

    asyncio.run(play())


def tell(url: str, topic: str, data: str = "{}") -> None:
    with Redis.from_url(url) as client:
        client.publish(live.channel_of(topic), data)


@pytest.fixture
def own_valkey(tmp_path: Path, settings: Settings) -> Iterator[Valkey]:
    """A Valkey that the test may stop and start."""
    server = Valkey(State.open(tmp_path))
    server.start()
    settings.REDIS_URL = server.url
    yield server
    server.stop()


def test_a_page_hears_its_topics_and_no_others(valkey: str) -> None:
    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["operation-12", "map"])) as page:
            await page.listening()
            await page.event()  # resync: nobody listened before
            tell(valkey, "operation-13")
            tell(valkey, "operation-12", '{"step":"draining"}')
            assert await page.event() == ("operation-12", '{"step":"draining"}')

    run(story)


def test_a_burst_becomes_one_event_with_the_newest_content(valkey: str) -> None:
    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map"])) as page:
            assert await page.event() == ("resync", "{}")
            for number in range(50):
                tell(valkey, "map", json.dumps({"n": number}))
                await asyncio.sleep(0.002)
            seen = [await page.event()]
            started = time.monotonic()
            while seen[-1][1] != '{"n": 49}':
                seen.append(await page.event())
            assert len(seen) <= 2 + (time.monotonic() - started) / stream.COALESCE_SECONDS
            assert await page.is_quiet(2 * stream.COALESCE_SECONDS)

    run(story)


def test_what_happened_between_rendering_and_listening_is_told(valkey: str) -> None:
    async def story() -> None:
        async with OpenPage(live.sign_topics(1, ["other"])) as first:
            assert await first.event() == ("resync", "{}")
            await asyncio.sleep(0.01)
            token = live.sign_topics(7, ["map", "inbox"])
            tell(valkey, "map", '{"n":1}')
            await asyncio.sleep(0.1)
            async with OpenPage(token) as page:
                assert await page.event() == ("map", '{"n":1}')
                assert await page.is_quiet(0.4)

    run(story)


def test_a_page_that_connects_again_is_not_told_twice(valkey: str) -> None:
    async def story() -> None:
        token = live.sign_topics(7, ["map"])
        async with OpenPage(token) as page:
            await page.event()
            tell(valkey, "map")
            await page.event()
        later = f"{time.time() + 2:.3f}"
        async with OpenPage(token, last_event_id=later) as page:
            assert await page.is_quiet(0.4)

    run(story)


def test_pulses_come_while_nothing_happens(valkey: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.05)

    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map"])) as page:
            await page.event()
            assert [await page.line(), await page.line()] == [": still here"] * 2

    run(story)


def test_a_lost_broker_is_said_and_its_return_asks_for_everything(own_valkey: Valkey) -> None:
    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map"])) as page:
            assert await page.event() == ("resync", "{}")
            await asyncio.to_thread(own_valkey.stop)
            assert await page.event() == ("broker", "down")
            async with OpenPage(live.sign_topics(8, ["map"])) as newcomer:
                assert await newcomer.event() == ("broker", "down")
            await asyncio.to_thread(own_valkey.start)
            assert {await page.event(20), await page.event()} == {
                ("broker", "up"),
                ("resync", "{}"),
            }
            tell(own_valkey.url, "map")
            assert await page.event() == ("map", "{}")

    run(story)


def test_a_frozen_broker_is_noticed(own_valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_IDLE_SECONDS", 0.2)

    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map"])) as page:
            await page.event()
            process = own_valkey.process()
            assert process is not None
            process.suspend()
            assert await page.event() == ("broker", "down")
            process.resume()
            assert await page.event() == ("broker", "up")

    run(story)


def test_a_page_that_takes_nothing_holds_one_event_a_topic_and_is_let_go(
    valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STUCK_SECONDS", 0.3)

    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map", "inbox"])) as page:
            await page.event()
            page.is_reading.clear()
            for number in range(500):
                tell(valkey, "map", json.dumps({"n": number}))
                tell(valkey, "inbox")
            (subscription,) = stream.hub()._subscriptions
            await asyncio.sleep(0.1)
            assert len(subscription._pending) <= 2
            await page.ended()

    run(story)


def test_a_hundred_pages_come_and_go_and_leave_nothing(valkey: str) -> None:
    async def story() -> None:
        pages = [OpenPage(live.sign_topics(n, ["map", f"user-{n}"])) for n in range(100)]
        for page in pages:
            await page.__aenter__()
        for page in pages:
            await page.listening()
            await page.event()
        with Redis.from_url(valkey) as client:
            listeners = client.client_list(_type="pubsub")
        database = valkey.rpartition("/")[2]
        assert len([one for one in listeners if one["db"] == database]) == 1
        assert stream.hub().open_pages == 100
        for page in pages:
            await page.__aexit__(None, None, None)

    run(story)


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("", "This live address is not one that the portal handed out: reload the page."),
        ("garbage", "This live address is not one that the portal handed out: reload the page."),
        (
            signing.dumps({"u": 1, "t": ["map"], "at": 0.0}, salt="another"),
            "This live address is not one that the portal handed out: reload the page.",
        ),
    ],
    ids=["missing", "garbage", "signed for something else"],
)
def test_a_wrong_token_is_refused_with_a_sentence(token: str, sentence: str) -> None:
    async def story() -> None:
        async with OpenPage(token) as page:
            assert await page.text() == sentence
            assert page.status == 403

    run(story)


def test_an_old_token_is_refused_with_the_way_out() -> None:
    with time_machine.travel(time.time() - live.TOKEN_SECONDS - 60, tick=False):
        token = live.sign_topics(7, ["map"])

    with pytest.raises(live.BadTopicsError, match="too old to be kept live: reload it"):
        live.read_topics(token)


def test_another_method_than_get_is_refused() -> None:
    async def story() -> None:
        async with OpenPage(live.sign_topics(7, ["map"]), method="POST") as page:
            await page.ended()
            assert page.status == 405

    run(story)


@pytest.mark.parametrize("topic", ["", "Map", "a b", "broker", "resync", "x" * 81, "a\nb"])
def test_a_topic_that_would_break_the_stream_cannot_be_signed(topic: str) -> None:
    with pytest.raises(ValueError, match="cannot be a live topic"):
        live.sign_topics(7, [topic])


def test_a_token_tells_who_what_and_when() -> None:
    with time_machine.travel(1_900_000_000, tick=False):
        topics = live.read_topics(live.sign_topics(7, ["map", "inbox", "map"]))

    assert topics == live.Topics(7, frozenset({"inbox", "map"}), 1_900_000_000.0)


@pytest.mark.django_db
def test_publish_waits_for_the_commit(
    valkey: str, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with Redis.from_url(valkey, decode_responses=True) as client, client.pubsub() as listener:
        listener.subscribe(live.channel_of("map"))
        assert listener.get_message(timeout=2) is not None
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            live.publish("map", {"node": "n1"})
            assert listener.get_message(timeout=0.2) is None
        message = listener.get_message(timeout=2)

    assert message is not None
    assert message["data"] == '{"node":"n1"}'


@pytest.mark.django_db
def test_publish_without_a_broker_raises_nothing_and_does_not_wait_twice(
    settings: Settings, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    started = time.monotonic()

    with django_capture_on_commit_callbacks(execute=True):
        for _ in range(100):
            live.publish("map")

    assert time.monotonic() - started < 2


def test_django_alone_says_that_the_stream_needs_asgi(client: Client) -> None:
    answer = client.get("/live/")

    assert answer.status_code == 503
    assert "uvicorn portal.asgi:application" in answer.content.decode()
