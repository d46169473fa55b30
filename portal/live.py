"""The live stream's words: signed topics for pages, and telling open pages what has changed.

A page subscribes with `{% url "live" %}?t={{ token }}`, the token being `sign_topics(…)`. What
comes is a hint to fetch a fragment anew, never the content: tokens and payloads grant no access,
and payloads must hold nothing confidential. `portal.stream` serves it.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from redis.exceptions import RedisError

from portal.broker import broker

log = structlog.get_logger(__name__)

TOKEN_SECONDS = 12 * 3600
RESERVED_TOPICS = frozenset({"broker", "resync"})
_SALT = "portal.live"
_TOPIC = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")
_MUTE_SECONDS = 1.0
_muted_until = 0.0


class BadTopicsError(ValueError):
    """A token that is forged, too old or garbage; the message is for the visitor."""


@dataclass(frozen=True, slots=True)
class Topics:
    """What a page may listen to: whose page, which topics, and when it was rendered (Unix time)."""

    user_id: int
    names: frozenset[str]
    signed_at: float


def sign_topics(user_id: int, topics: Iterable[str]) -> str:
    """Return a token that lets the bearer listen to the topics for half a day.

    Raises:
        ValueError: a topic is not made of lower-case letters, digits, hyphens, dots and
            underscores, or is one of the stream's own words.
    """
    names = sorted(set(topics))
    for name in names:
        if not _TOPIC.fullmatch(name) or name in RESERVED_TOPICS:
            message = f"{name!r} cannot be a live topic."
            raise ValueError(message)
    payload = {"u": user_id, "t": names, "at": round(time.time(), 3)}
    return signing.dumps(payload, salt=_SALT, compress=True)


def read_topics(token: str) -> Topics:
    """Return what a token allows.

    Raises:
        BadTopicsError: it was not made by `sign_topics`, or longer ago than half a day.
    """
    try:
        payload = signing.loads(token, salt=_SALT, max_age=TOKEN_SECONDS)
    except signing.SignatureExpired:
        message = "This page is too old to be kept live: reload it."
        raise BadTopicsError(message) from None
    except signing.BadSignature:
        message = "This live address is not one that the portal handed out: reload the page."
        raise BadTopicsError(message) from None
    return Topics(payload["u"], frozenset(payload["t"]), payload["at"])


def channel_of(topic: str) -> str:
    """Return the Redis channel of a topic; pub/sub knows no database numbers, so ours is in it."""
    database = urlsplit(settings.REDIS_URL).path.strip("/") or "0"
    return f"slicedesk:live:{database}:{topic}"


def publish(topic: str, payload: Mapping[str, object] | None = None) -> None:
    """Tell open pages, once the current transaction has committed, that something has changed.

    Never raises for a broker that is away: pages fetch everything anew when it is back.
    """
    data = json.dumps(payload or {}, separators=(",", ":"))
    transaction.on_commit(partial(_send, topic, data), robust=True)


@login_not_required
def stream(_request: HttpRequest) -> HttpResponse:
    """Name the stream's address; `portal.asgi` answers it before Django does.

    Under a server without ASGI a page is simply not live, and says how to make it so.
    """
    return HttpResponse(
        "The live stream needs an ASGI server: run uvicorn portal.asgi:application.\n",
        status=503,
        content_type="text/plain",
    )


def _send(topic: str, data: str) -> None:
    global _muted_until  # noqa: PLW0603  one circuit breaker for the process
    if time.monotonic() < _muted_until:
        return
    try:
        broker().publish(channel_of(topic), data)
    except (RedisError, OSError) as error:
        _muted_until = time.monotonic() + _MUTE_SECONDS
        log.warning("live.not_published", topic=topic, error=type(error).__name__)
