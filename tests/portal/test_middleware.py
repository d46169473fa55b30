"""Around every request: ids, one log line, and calm when the database or the broker is away."""

from collections.abc import Callable

import psycopg
import pytest
import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from pytest_django import Settings

from portal import views
from portal.middleware import DatabaseOutageMiddleware, SignInMiddleware
from portal.outage import is_database_outage


def lost() -> OperationalError:
    """Return what Django raises when the server is gone."""
    return caused_by(psycopg.OperationalError("connection refused\nIs it running?"))


def caused_by(cause: Exception) -> OperationalError:
    error = OperationalError(str(cause))
    error.__cause__ = cause
    return error


def fail(error: Exception) -> Callable[[HttpRequest], HttpResponse]:
    def view(_request: HttpRequest) -> HttpResponse:
        raise error

    return view


def last_resort(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return what the last handler answers while an error is being handled."""
    try:
        raise error
    except type(error):
        return views.server_error(request)


def test_an_answer_carries_the_proxys_request_id(client: Client) -> None:
    answer = client.get("/healthz", headers={"X-Request-ID": "abc-123456"})

    assert answer.headers["X-Request-ID"] == "abc-123456"


@pytest.mark.parametrize("given", ["", "short", "with blank in it", "x" * 65, "a\tb-12345678"])
def test_a_request_id_that_could_spoil_the_log_is_replaced(client: Client, given: str) -> None:
    answer = client.get("/healthz", headers={"X-Request-ID": given})

    assert len(answer.headers["X-Request-ID"]) == 32


def test_each_request_writes_one_event_with_its_fields(client: Client) -> None:
    with structlog.testing.capture_logs() as events:
        client.get("/sign-in-please", headers={"X-Request-ID": "abc-123456"})

    (event,) = [event for event in events if event["event"] == "http.request"]
    assert (event["method"], event["path"], event["status"]) == ("GET", "/sign-in-please", 404)
    assert event["actor"] is None


def test_health_checks_write_no_log_line(client: Client) -> None:
    with structlog.testing.capture_logs() as events:
        client.get("/healthz")

    assert events == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lost(), True),
        (InterfaceError("connection already closed"), True),
        (caused_by(psycopg.errors.AdminShutdown()), True),
        (caused_by(psycopg.errors.CannotConnectNow()), True),
        (caused_by(psycopg.errors.TooManyConnections()), True),
        (caused_by(psycopg.errors.DeadlockDetected()), False),
        (caused_by(psycopg.errors.QueryCanceled()), False),
        (caused_by(psycopg.errors.LockNotAvailable()), False),
        (DatabaseError("syntax"), False),
        (ValueError("x"), False),
        (None, False),
    ],
    ids=lambda value: repr(getattr(value, "__cause__", None) or value)[:40],
)
def test_only_a_database_that_cannot_be_reached_is_an_outage(
    error: Exception | None, *, expected: bool
) -> None:
    assert is_database_outage(error) is expected


def test_an_outage_in_a_view_becomes_a_page_that_asks_again(rf: RequestFactory) -> None:
    middleware = DatabaseOutageMiddleware(fail(lost()))

    with structlog.testing.capture_logs() as events:
        answer = middleware.process_exception(rf.get("/"), lost())

    assert isinstance(answer, HttpResponse)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    assert "The database does not answer" in answer.content.decode()
    assert 'http-equiv="refresh"' in answer.content.decode()
    assert events[0]["error"] == "connection refused"


def test_another_error_in_a_view_is_left_alone(rf: RequestFactory) -> None:
    middleware = DatabaseOutageMiddleware(fail(ValueError("x")))

    assert middleware.process_exception(rf.get("/"), ValueError("x")) is None


def test_an_outage_while_the_visitor_is_looked_up_is_calm_too(rf: RequestFactory) -> None:
    request = rf.get("/")

    class Visitor:
        @property
        def is_authenticated(self) -> bool:
            raise lost()

    request.user = Visitor()  # type: ignore[assignment]  # one that cannot be looked up
    middleware = SignInMiddleware(lambda _request: HttpResponse())

    answer = middleware.process_view(request, lambda _request: HttpResponse(), (), {})

    assert answer is not None
    assert answer.status_code == 503


def test_an_outage_anywhere_else_is_calm_too(rf: RequestFactory) -> None:
    assert last_resort(rf.get("/"), lost()).status_code == 503


def test_an_unexpected_error_names_the_request_and_no_detail(rf: RequestFactory) -> None:
    request = rf.get("/")
    request.request_id = "abc-123456"  # type: ignore[attr-defined]  # set by the middleware

    answer = last_resort(request, ValueError("secret detail"))

    assert answer.status_code == 500
    assert "abc-123456" in answer.content.decode()
    assert "secret detail" not in answer.content.decode()


def test_a_real_page_is_calm_without_a_database(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_wrapper: BaseDatabaseWrapper) -> None:
        raise lost()

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", refuse)
    client.cookies[settings.SESSION_COOKIE_NAME] = "x" * 32

    answer = client.get("/admin/")

    assert answer.status_code == 503
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_pages_are_private_unless_they_say_otherwise(client: Client) -> None:
    answer = client.get("/admin/")

    assert answer.status_code == 302
    assert answer.headers["Location"] == "/admin/login/?next=/admin/"
    onward = client.get(answer.headers["Location"])
    assert (onward.status_code, onward.headers["Location"]) == (302, "/sign-in/?next=/admin/")
