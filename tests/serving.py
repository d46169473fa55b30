"""The portal served for a while: the real ASGI application behind a real socket."""

import contextlib
import threading
import time
from collections.abc import Iterator

import uvicorn

from portal.asgi import application
from portal.embedded.state import free_port

_START_SECONDS = 15.0


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve the portal from a thread of this process and yield its address."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            host="127.0.0.1",
            port=port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, name="portal", daemon=True)
    thread.start()
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            message = "the portal did not start"
            raise RuntimeError(message)
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(_START_SECONDS)
