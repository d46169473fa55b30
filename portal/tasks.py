"""Celery entry points of the portal itself."""

from portal import health
from portal.celery import app


@app.task(name="portal.pulse")
def pulse() -> None:
    """Show that beat, broker and a worker are all alive."""
    health.beat("worker")
