"""Server processes that outlive their parent: start, find again, stop."""

import atexit
import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

_children: list[subprocess.Popen[bytes]] = []


def keep(process: subprocess.Popen[bytes]) -> None:
    """Remember a process that is meant to outlive whoever started it, and forget dead ones."""
    _children[:] = [child for child in _children if child.poll() is None]
    _children.append(process)


@atexit.register
def _disown() -> None:
    """Tell Python that what still runs when we end is meant to: it would warn otherwise."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


def start(
    command: Sequence[str], *, log: Path, stdin: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own (Ctrl-C is not meant for it), writing to a log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )
    keep(process)
    if stdin is not None and process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin.encode())
            process.stdin.close()
    return process


def find(pid_file: Path, *, marks: Sequence[str]) -> psutil.Process | None:
    """Return the living process of a pid file, or None; a pid that others have now is no match.

    Args:
        pid_file: a file whose first line is a pid.
        marks: words that must all be in the process's command line.
    """
    try:
        process = psutil.Process(int(pid_file.read_text().split("\n")[0]))
        command = "\n".join(process.cmdline())
        is_living = process.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, psutil.Error):
        return None
    return process if is_living and all(mark in command for mark in marks) else None


def stop(process: psutil.Process, how: signal.Signals, *, seconds: float) -> None:
    """Stop a server politely, and roughly when it takes longer than the given time."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()  # one that is frozen hears nothing
        process.send_signal(how)
    if _is_gone(process, within=seconds):
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for victim in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
    _is_gone(process, within=seconds)


def _is_gone(process: psutil.Process, *, within: float) -> bool:
    """Wait for a process to end; one that its parent has not buried yet counts as gone."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
