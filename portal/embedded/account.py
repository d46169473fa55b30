"""Who runs PostgreSQL: it refuses root, so root hands it to an account without rights."""

import functools
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from portal.embedded.errors import EmbeddedError

_NAME = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group id without rights."""

    uid: int
    gid: int


def account(data: Path) -> Account | None:
    """Return who must own and run PostgreSQL's data folder; None means whoever we are.

    Raises:
        EmbeddedError: we are root and there is no account without rights.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and (known := data.stat()).st_uid != 0:
        return Account(known.st_uid, known.st_gid)
    try:
        entry = pwd.getpwnam(_NAME)
    except KeyError as error:
        message = (
            f"PostgreSQL refuses to run as root and there is no user {_NAME!r}: "
            "run as another user, or point DATABASE_URL at a server."
        )
        raise EmbeddedError(message) from error
    return Account(entry.pw_uid, entry.pw_gid)


def prefix(who: Account | None, *needed: Path) -> tuple[str, ...]:
    """Return the words to put before a command so that it does not run as root.

    An account without rights may not reach a checkout inside a private folder such as root's
    home: then it is given the one right to read past folder permissions, and nothing else.

    Raises:
        EmbeddedError: no way was found that reaches the needed files and folders.
    """
    return () if who is None else _prefix(who, needed)


@functools.cache
def _prefix(who: Account, needed: tuple[Path, ...]) -> tuple[str, ...]:
    tool = shutil.which("setpriv")
    if tool is None:
        message = (
            "PostgreSQL refuses to run as root and setpriv (util-linux) is not installed: "
            "run as another user, or point DATABASE_URL at a server."
        )
        raise EmbeddedError(message)
    plain = (tool, f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups")
    reading = (
        *plain,
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
        "--securebits=+no_setuid_fixup",
    )
    for words in (plain, reading):
        if all(_reaches(words, path) for path in needed):
            return words
    message = (
        f"PostgreSQL refuses to run as root, and user {who.uid} cannot reach "
        f"{needed[0]}: move the checkout out of private folders, run as another user, or point "
        "DATABASE_URL at a server."
    )
    raise EmbeddedError(message)


def _reaches(words: tuple[str, ...], path: Path) -> bool:
    test = "-d" if path.is_dir() else "-x"
    result = subprocess.run(
        [*words, "/bin/sh", "-c", f'test {test} "$0" && test -r "$0"', str(path)],
        cwd="/",
        capture_output=True,
        check=False,
    )
    return result.returncode == 0
