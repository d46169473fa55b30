"""Reading a PostgreSQL address into Django's database settings."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from portal.env import EnvError

POOL_WAIT_SECONDS = 4
CONNECT_SECONDS = 3
RECONNECT_SECONDS = 3


def database_settings(
    url: str, *, pool_size: int = 0, name: str = "DATABASE_URL"
) -> dict[str, Any]:
    """Return the entry of `DATABASES` for an address such as `postgres://me:pw@host:5432/portal`.

    What follows `?` is handed to libpq as it is (`sslmode=require`, `host=/run/postgresql`).

    Args:
        url: the address.
        pool_size: connections that one process may hold at once; 0 means one for each thread.
        name: the variable to blame when no database is named.

    Raises:
        EnvError: the address names no database.
    """
    parts = urlsplit(url)
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        message = f"{name} names no database: end it with one, for example …:5432/slicedesk."
        raise EnvError(message)
    options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **dict(parse_qsl(parts.query))}
    host = options.pop("host", None) or unquote(parts.hostname or "")
    if pool_size:
        options["pool"] = {
            "min_size": 1,
            "max_size": pool_size,
            "timeout": POOL_WAIT_SECONDS,
            # After so long a page's own wish for a connection starts the next attempt, at once,
            # instead of a back-off that outlasts the outage.
            "reconnect_timeout": RECONNECT_SECONDS,
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(parts.port or ""),
        "OPTIONS": options,
        "CONN_HEALTH_CHECKS": True,
        "CONN_MAX_AGE": 0 if pool_size else 60,
    }
