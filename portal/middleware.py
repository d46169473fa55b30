"""What happens around every request: an id, a log line, and calm when the database is away."""

import re
import time
import uuid
from collections.abc import Callable
from typing import Any, cast, override

import structlog
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from portal.http import PortalRequest
from portal.outage import is_database_outage, outage_response

log = structlog.get_logger(__name__)
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_QUIET_PATHS = ("/static/", "/healthz", "/readyz")


class RequestIdMiddleware(MiddlewareMixin):
    """Gives each request an id (a proxy's own is kept), on every log line and on the answer."""

    def process_request(self, request: HttpRequest) -> None:
        """Choose the id and bind it to the log context."""
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _ACCEPTABLE_ID.fullmatch(given) else uuid.uuid4().hex
        known = cast("PortalRequest", request)
        known.request_id, known.started_at = request_id, time.perf_counter()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)

    def process_response[R: HttpResponseBase](self, request: HttpRequest, response: R) -> R:
        """Name the id in the answer and write the request's one log line."""
        response.headers["X-Request-ID"] = getattr(request, "request_id", "")
        if not request.path.startswith(_QUIET_PATHS):
            elapsed = time.perf_counter() - getattr(request, "started_at", time.perf_counter())
            log.info(
                "http.request",
                method=request.method,
                path=request.path,
                status=response.status_code,
                milliseconds=round(elapsed * 1000, 1),
                actor=_known_actor(request),
            )
        return response


class DatabaseOutageMiddleware(MiddlewareMixin):
    """Turns a database that cannot be reached into a page that says so and asks again."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Answer 503 for an outage; leave every other error alone."""
        if not is_database_outage(exception):
            return None
        log.error("database.unreachable", error=str(exception).strip().split("\n")[0])
        return outage_response(request)


class SignInMiddleware(LoginRequiredMiddleware):
    """Django's rule that pages are private, calm when it cannot look the visitor up."""

    @override
    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        try:
            return super().process_view(request, view_func, view_args, view_kwargs)
        except Exception as error:
            # Django hands errors of this stage to no middleware: they would become a bare 500.
            if not is_database_outage(error):
                raise
            log.exception("database.unreachable")
            return outage_response(request)


def _known_actor(request: HttpRequest) -> str | None:
    """Return the visitor's name if somebody has looked it up already; asks no database."""
    user = getattr(request, "_cached_user", None)
    return user.get_username() if user is not None and user.is_authenticated else None
