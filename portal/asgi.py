"""ASGI entry point: the live stream beside Django.

The stream is answered before Django, which keeps a thread for every request that is open: pages
stay open for hours.
"""

import os
from collections.abc import Awaitable, Callable

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
os.environ.setdefault("DATABASE_POOL_SIZE", "16")

_pages: Callable[..., Awaitable[None]] = get_asgi_application()

from portal.patience import with_patience  # noqa: E402  needs settings
from portal.stream import Receive, Scope, Send, close_hub, stream_app  # noqa: E402  needs settings

LIVE_PATH = "/live/"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one connection."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"] == LIVE_PATH:
        await stream_app(scope, receive, send)
    else:
        await with_patience(_pages, scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    """Stop listening to Redis when the server stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await close_hub()
            await send({"type": "lifespan.shutdown.complete"})
            return
