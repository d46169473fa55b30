"""Stops the services when nobody uses them any more, even when the last user was killed.

`python -m portal.embedded.reaper STATE_DIR` sleeps on the users' lock, which the kernel gives it
once no living process holds it.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from portal.embedded import locks, processes
from portal.embedded.postgres import Postgres
from portal.embedded.state import State
from portal.embedded.valkey import Valkey


def stop_all(state: State) -> None:
    """Stop what runs in a state directory; the caller knows that nobody uses it."""
    Valkey(state).stop()
    Postgres(state).stop()


def start_reaper(state: State) -> None:
    """Make sure that a reaper waits at a state directory."""
    root = Path(__file__).resolve().parent.parent.parent
    processes.keep(
        subprocess.Popen(
            [sys.executable, "-m", "portal.embedded.reaper", str(state.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            start_new_session=True,
        )
    )


def main(directory: Path) -> None:
    """Wait for the last user of a state directory to go, and stop what it leaves."""
    state = State.open(directory)
    with contextlib.ExitStack() as office:
        if not office.enter_context(locks.exclusive_or_not(state.reaper_lock)):
            return
        with locks.exclusive(state.users_lock):
            stop_all(State.open(directory))
            # A new user waits for the users' lock only: leave office first, or the reaper that it
            # starts would believe us to be still waiting and go away.
            office.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
