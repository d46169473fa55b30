"""Answers in place of a page that hangs because the database does: frozen, not gone.

A database that is gone refuses connections, and pages say so by themselves (`portal.outage`). One
that is frozen accepts them and says nothing, and no time-out of the driver ends that.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

import psycopg
import structlog
from django.conf import settings
from django.utils.csp import build_policy

from portal.outage import RETRY_SECONDS, outage_page

log = structlog.get_logger(__name__)

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type Application = Callable[[Message, Receive, Send], Awaitable[None]]

PATIENCE_SECONDS = 4.0
_CONNECT_SECONDS = 2


def database_answers() -> bool:
    """Say whether a new connection is let in within two seconds."""
    try:
        psycopg.connect(settings.DATABASE_URL, connect_timeout=_CONNECT_SECONDS).close()
    except psycopg.Error:
        return False
    return True


async def with_patience(pages: Application, scope: Message, receive: Receive, send: Send) -> None:
    """Serve a page, or say that the database does not answer when neither of them does for long.

    A page that is merely slow is waited for. The thread of one that is given up goes on until the
    database wakes up, and what it would send then is dropped.
    """
    has_begun = False

    async def note(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    page = asyncio.create_task(_awaited(pages(scope, receive, note)), name="page")
    try:
        while True:
            await asyncio.wait({page}, timeout=None if has_begun else PATIENCE_SECONDS)
            if page.done():
                return await page
            if not has_begun and not await asyncio.to_thread(database_answers) and not has_begun:
                break
    finally:
        page.cancel()
    log.error("database.frozen", path=scope["path"])
    await _answer(send)
    return None


async def _awaited(page: Awaitable[None]) -> None:
    await page


async def _answer(send: Send) -> None:
    policy = build_policy(cast("dict[str, list[str]]", settings.SECURE_CSP))
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        (b"hx-reswap", b"none"),
        (b"content-security-policy", policy.encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": outage_page().encode()})
