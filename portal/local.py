"""Running on one's own machine: what the environment does not say is filled in from `var/`.

Used by `manage.py` alone, when no `DATABASE_URL` is given and `DEPLOYMENT` is not `production`.
Commands that need a database get PostgreSQL and Valkey from their wheels for as long as they run.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

from portal import env
from portal.embedded import EmbeddedError, running_services, services

ROOT = Path(__file__).resolve().parent.parent
_NO_SERVICES = frozenset(
    {
        "check",
        "collectstatic",
        "compilemessages",
        "demo",
        "diffsettings",
        "findstatic",
        "help",
        "makemessages",
        "mig_plan",
        "mig_profiles",
        "version",
    }
)
_NOWHERE = {
    "DATABASE_URL": "postgres://127.0.0.1:1/slicedesk",
    "REDIS_URL": "redis://127.0.0.1:1/0",
}

given_urls: dict[str, str] = {}
"""The addresses that were in the environment before we filled its gaps; empty ones were not."""


def is_local(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Say whether the gaps of the environment are ours to fill."""
    deployment = environment.get("DEPLOYMENT", "").strip().lower()
    if deployment:
        return deployment == "local"
    return not (environment.get("DATABASE_URL") or environment.get("DATABASE_URL_FILE"))


def state_dir(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Return where everything that is kept between runs lies."""
    return Path(environment.get("SLICEDESK_STATE_DIR") or ROOT / "var").expanduser().resolve()


def fill_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what a local run needs and the environment does not say; starts nothing.

    Raises:
        EmbeddedError: the state directory cannot be written.
    """
    environment["DEPLOYMENT"] = "local"
    environment.setdefault("CLUSTER", "simulated")
    if not environment.get("SECRET_KEY") and not environment.get("SECRET_KEY_FILE"):
        environment["SECRET_KEY"] = _secret_key(state_dir(environment))
    known = {**_NOWHERE, **running_services(state_dir(environment))}
    for name, url in known.items():
        if not environment.get(name) and not environment.get(f"{name}_FILE"):
            environment[name] = url


@contextlib.contextmanager
def surroundings(arguments: Sequence[str]) -> Iterator[None]:
    """Provide the environment, and while the block lasts the services, that a command needs.

    Args:
        arguments: the command line after `manage.py`.

    Raises:
        EmbeddedError: a service does not start.
    """
    command = arguments[0] if arguments else "help"
    if command == "demo":
        os.environ.setdefault("DEPLOYMENT", "local")
    if not is_local():
        if command == "demo":
            message = "make demo is for one's own machine: leave DEPLOYMENT out of the environment."
            raise env.EnvError(message)
        yield
        return
    given_urls.update({name: env.secret(name, "") for name in _NOWHERE})
    if command in _NO_SERVICES or {"-h", "--help"} & set(arguments):
        fill_environment()
        yield
        return
    with services(
        state_dir(),
        database_url=given_urls["DATABASE_URL"],
        redis_url=given_urls["REDIS_URL"],
    ) as running:
        for name, url in running.environment.items():
            if not given_urls[name]:
                os.environ[name] = url
        fill_environment()
        yield


def _secret_key(directory: Path) -> str:
    """Return the key of this state directory, made at random the first time."""
    path = directory / "secret-key"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return path.read_text().strip()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another command was quicker
        return path.read_text().strip()
    except OSError as error:
        message = (
            f"The state directory {directory} cannot be written ({error.strerror}): "
            "point SLICEDESK_STATE_DIR at a folder that you may write."
        )
        raise EmbeddedError(message) from error
    key = secrets.token_urlsafe(48)
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    return key
