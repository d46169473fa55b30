"""Structured logs: one event with fields a line, with the request id on each."""

from typing import Any

import structlog
from structlog.typing import Processor

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.ExtraAdder(),
]
_QUIET = {  # each writes a line a request or a retry, and says nothing that ours do not
    "django.server": "WARNING",
    "uvicorn.access": "WARNING",
    "psycopg.pool": "ERROR",
    "celery.worker.strategy": "WARNING",
    "celery.app.trace": "WARNING",
    "celery.beat": "WARNING",
}


def logging_config(*, level: str, form: str) -> dict[str, Any]:
    """Return the `LOGGING` setting and point structlog at the standard library's handlers.

    Args:
        level: the lowest level to write, lower case.
        form: `console` for people or `json` for machines.
    """
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED[:-1],
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *_renderer(form),
                ],
            }
        },
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "structured"},
        },
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {name: {"level": level, "handlers": []} for name, level in _QUIET.items()},
    }


def _renderer(form: str) -> list[Processor]:
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    ]
