"""Telling a database that is away from a query that is wrong, and the page that says so."""

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from psycopg import Error as PostgresError

RETRY_SECONDS = 5
_CONNECTION_CLASSES = ("08", "57P", "53300")  # lost, shutting down, too many connections


def is_database_outage(error: BaseException | None) -> bool:
    """Say whether the database could not be reached (a dead lock or a time-out is no outage)."""
    if isinstance(error, InterfaceError):
        return True
    if not isinstance(error, OperationalError):
        return False
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, PostgresError) else None
    return state is None or state.startswith(_CONNECTION_CLASSES)


def outage_page(request_id: str = "") -> str:
    """Return a page that says what is wrong and asks again by itself; it needs no database."""
    context = {"retry_seconds": RETRY_SECONDS, "request_id": request_id}
    return render_to_string("503.html", context)


def outage_response(request: HttpRequest) -> HttpResponse:
    """Answer a request with that page."""
    return HttpResponse(
        outage_page(getattr(request, "request_id", "")),
        status=503,
        headers={
            "Retry-After": str(RETRY_SECONDS),
            "Cache-Control": "no-store",
            "HX-Reswap": "none",
        },
    )
