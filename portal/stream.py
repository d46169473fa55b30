"""The live stream: server-sent events for open pages, from one Redis listener per process.

It touches no database and no session, and holds no thread while a page is open. What a slow page
has not taken yet is one event a topic, the newest, so memory is bounded by what it listens to.
"""

import asyncio
import contextlib
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    MutableMapping,
)
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

import structlog
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import RedisError

from portal.live import BadTopicsError, channel_of, read_topics

log = structlog.get_logger(__name__)

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COALESCE_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
STUCK_SECONDS = 60.0
_IDLE_SECONDS = 2.0
_BACK_OFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)
_REMEMBERED_SECONDS = 300.0
_REMEMBERED_TOPICS = 5000
_CLOCK_SLACK_SECONDS = 1.0


class Subscription:
    """What one open page still has to be told: at most one event a name, the newest."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._pending: dict[str, str] = {}
        self._has_news = asyncio.Event()

    def offer(self, name: str, data: str) -> None:
        """Add an event, or replace the older one of the same name that nobody took."""
        self._pending[name] = data
        self._has_news.set()

    async def take(self) -> dict[str, str]:
        """Wait until there is something to tell, and return all of it."""
        await self._has_news.wait()
        self._has_news.clear()
        events, self._pending = self._pending, {}
        return events


class Hub:
    """Listens to Redis once for all pages of a process and event loop, and survives its loss."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = channel_of("")
        self._subscriptions: set[Subscription] = set()
        self._recent: dict[str, tuple[float, str]] = {}
        self._listening_since: float | None = None
        self._is_down = False
        self._reader: asyncio.Task[None] | None = None
        self._first_answer = asyncio.Event()

    @property
    def open_pages(self) -> int:
        """Return how many pages are listening."""
        return len(self._subscriptions)

    @contextlib.asynccontextmanager
    async def subscribed(
        self, topics: Iterable[str], *, since: float
    ) -> AsyncIterator[Subscription]:
        """Listen to topics, beginning with what has happened since a moment (Unix time)."""
        if self._reader is None or self._reader.done():
            self._first_answer.clear()
            self._reader = asyncio.create_task(self._read_for_ever(), name="live-reader")
        subscription = Subscription(topics)
        self._subscriptions.add(subscription)
        try:
            await self._first_answer.wait()
            self._catch_up(subscription, since)
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    async def close(self) -> None:
        """Stop listening."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def _catch_up(self, subscription: Subscription, since: float) -> None:
        if self._is_down or self._listening_since is None:
            subscription.offer("broker", "down")
            return
        if since < self._listening_since:
            subscription.offer("resync", "{}")
            return
        for topic in subscription.topics:
            at, data = self._recent.get(topic, (0.0, ""))
            if at >= since - _CLOCK_SLACK_SECONDS:
                subscription.offer(topic, data)

    async def _read_for_ever(self) -> None:
        attempt = 0
        while True:
            try:
                async for topic, data in self._messages():
                    attempt = 0
                    if topic:
                        self._spread(topic, data)
            except (RedisError, OSError, TimeoutError) as error:
                self._went_down(error)
            await asyncio.sleep(_BACK_OFF_SECONDS[min(attempt, len(_BACK_OFF_SECONDS) - 1)])
            attempt += 1

    async def _messages(self) -> AsyncIterator[tuple[str, str]]:
        """Yield topic and data of each event, or two empty strings after a quiet while."""
        client = Redis.from_url(
            self._url,
            decode_responses=True,
            socket_connect_timeout=_IDLE_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        async with client, client.pubsub() as pubsub:
            await pubsub.psubscribe(f"{self._prefix}*")
            is_silent = False
            while True:
                message = await pubsub.get_message(timeout=_IDLE_SECONDS)
                if message is None:
                    if is_silent:  # our ping of a while ago was not answered either
                        message_text = "the broker has stopped answering"
                        raise LostError(message_text)
                    is_silent = True
                    await pubsub.ping()
                    continue
                is_silent = False
                if message["type"] == "psubscribe":
                    self._came_up()
                if message["type"] == "pmessage":
                    yield str(message["channel"]).removeprefix(self._prefix), str(message["data"])
                else:
                    yield "", ""

    def _spread(self, topic: str, data: str) -> None:
        self._recent.pop(topic, None)
        self._recent[topic] = (time.time(), data)
        self._forget_old()
        for subscription in self._subscriptions:
            if topic in subscription.topics:
                subscription.offer(topic, data)

    def _forget_old(self) -> None:
        """Drop the oldest topics; should that reach into what is promised, pages fetch anew."""
        horizon = time.time() - _REMEMBERED_SECONDS
        while self._recent:
            topic, (at, _data) = next(iter(self._recent.items()))
            if at > horizon and len(self._recent) <= _REMEMBERED_TOPICS:
                break
            del self._recent[topic]
            self._listening_since = max(self._listening_since or 0.0, at)

    def _came_up(self) -> None:
        self._listening_since = time.time()
        self._recent.clear()
        if self._is_down:
            self._is_down = False
            log.info("live.broker_up")
            self._tell_all(("broker", "up"), ("resync", "{}"))
        self._first_answer.set()

    def _went_down(self, error: BaseException) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("live.broker_down", error=str(error))
            self._tell_all(("broker", "down"))
        self._first_answer.set()

    def _tell_all(self, *events: tuple[str, str]) -> None:
        for subscription in self._subscriptions:
            for name, data in events:
                subscription.offer(name, data)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def hub() -> Hub:
    """Return the hub of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub(settings.REDIS_URL)
    return _hubs[loop]


async def close_hub() -> None:
    """Stop the hub of the running event loop, if there is one."""
    found = _hubs.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.close()


async def event_stream(topics: Iterable[str], *, since: float) -> AsyncGenerator[bytes]:
    """Yield the stream's bytes: events as they come, at most four a second of each, and pulses."""
    yield b"retry: 2000\n: listening\n\n"
    async with hub().subscribed(topics, since=since) as subscription:
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    events = await subscription.take()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            now = f"{time.time():.3f}"
            yield "".join(
                f"id: {now}\nevent: {name}\ndata: {data}\n\n" for name, data in events.items()
            ).encode()
            await asyncio.sleep(COALESCE_SECONDS)


async def stream_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve `/live/?t=<token>` as an ASGI application."""
    if scope["method"] != "GET":
        await _refuse(send, 405, "Only GET is understood here.")
        return
    token = parse_qs(scope["query_string"].decode("latin-1")).get("t", [""])[0]
    try:
        topics = read_topics(token)
    except BadTopicsError as error:
        await _refuse(send, 403, str(error))
        return
    since = max(topics.signed_at, _last_event_time(scope))
    sender = asyncio.create_task(_send_events(send, topics.names, since), name="live-sender")
    watcher = asyncio.create_task(_until_disconnect(receive), name="live-watcher")
    try:
        await asyncio.wait((sender, watcher), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, watcher):
            task.cancel()
        await asyncio.gather(sender, watcher, return_exceptions=True)


async def _send_events(send: Send, topics: Iterable[str], since: float) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    async with contextlib.aclosing(event_stream(topics, since=since)) as chunks:
        async for chunk in chunks:
            # A page that takes nothing for so long is gone, or would never catch up.
            async with asyncio.timeout(STUCK_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{sentence}\n".encode()})


def _last_event_time(scope: Scope) -> float:
    """Return when a page that connects again was last told something, or 0."""
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            with contextlib.suppress(ValueError):
                return float(value)
    return 0.0


_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
