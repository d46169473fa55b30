"""A page that is open: the real ASGI application, driven by its protocol."""

import asyncio
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, Self

from portal.asgi import application

type Message = MutableMapping[str, Any]


class OpenPage:
    """Listens to `/live/` as a browser does; what comes is read with `event`."""

    def __init__(
        self, token: str, *, last_event_id: str | None = None, method: str = "GET"
    ) -> None:
        headers = [] if last_event_id is None else [(b"last-event-id", last_event_id.encode())]
        self._scope: Message = {
            "type": "http",
            "method": method,
            "path": "/live/",
            "query_string": f"t={token}".encode(),
            "headers": headers,
        }
        self._gone = asyncio.Event()
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._rest = ""
        self.status = 0
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(application(self._scope, self._receive, self._send))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gone.set()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the application has finished with this page."""
        assert self._task is not None
        async with asyncio.timeout(5):
            await self._task

    async def text(self) -> str:
        """Return all lines of an answer that is no stream."""
        await self.ended()
        return "".join(self._lines.get_nowait() for _ in range(self._lines.qsize())) + self._rest

    async def line(self, seconds: float = 5) -> str:
        """Return the next line that is not empty."""
        async with asyncio.timeout(seconds):
            while not (line := await self._lines.get()):
                pass
        return line

    async def event(self, seconds: float = 5) -> tuple[str, str]:
        """Return name and data of the next event."""
        while not (line := await self.line(seconds)).startswith("event: "):
            pass
        return line.removeprefix("event: "), (await self.line()).removeprefix("data: ")

    async def is_quiet(self, seconds: float) -> bool:
        """Say whether no event comes for a while."""
        try:
            await self.event(seconds)
        except TimeoutError:
            return True
        return False

    async def listening(self) -> None:
        """Wait until the stream has begun."""
        while await self.line() != ": listening":
            pass

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.is_reading.wait()
        *lines, self._rest = (self._rest + message["body"].decode()).split("\n")
        for line in lines:
            self._lines.put_nowait(line)
