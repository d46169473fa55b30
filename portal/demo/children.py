"""A process that the demo keeps alive."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_BACK_OFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)
_STEADY_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """One long-running process: started, looked after, stopped; its output goes to a log."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    _process: subprocess.Popen[bytes] | None = None
    _started_at: float = 0.0
    _restart_at: float | None = None
    _deaths: int = field(default=0)

    @property
    def pid(self) -> int | None:
        """Return the process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def has_ended(self) -> bool:
        """Say whether the process was started and is not there any more."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start the process in a group of its own: Ctrl-C is ours to pass on, in order."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  the supervisor has one thread
            )
        self._started_at, self._restart_at = time.monotonic(), None

    def look_after(self) -> str | None:
        """Start the process again when its time has come; return what there is to tell."""
        if self._restart_at is not None:
            if time.monotonic() < self._restart_at:
                return None
            self.start()
            return f"{self.name} started again."
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return None
        is_steady = time.monotonic() - self._started_at > _STEADY_SECONDS
        self._deaths = 1 if is_steady else self._deaths + 1
        delay = _BACK_OFF_SECONDS[min(self._deaths, len(_BACK_OFF_SECONDS)) - 1]
        self._process, self._restart_at = None, time.monotonic() + delay
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"{self.name} ended {how}; starting it again in {delay:g} s (see {self.log})."

    def stop(self, *, seconds: float) -> None:
        """Ask the process to end, and end it together with its own children if it does not."""
        process, self._process, self._restart_at = self._process, None, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _die_with_parent() -> None:
    """Make the kernel end this process when the supervisor is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
