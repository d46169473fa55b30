"""The demo's supervisor: what it refuses, and how it keeps a process alive."""

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from portal.demo import children, supervisor
from portal.demo.children import Child
from portal.demo.supervisor import DemoError, Options, run
from portal.embedded import locks
from portal.embedded.state import free_port


def child(tmp_path: Path, script: str) -> Child:
    return Child("web", [sys.executable, "-c", script], tmp_path / "web.log", dict(os.environ))


def eventually(check: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def test_a_process_that_ends_is_started_again_after_a_while_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_BACK_OFF_SECONDS", (0.1, 0.2))
    web = child(tmp_path, "print('bye'); raise SystemExit(3)")
    said: list[str] = []

    def look() -> bool:
        if news := web.look_after():
            said.append(news)
        return len(said) >= 5

    web.start()
    assert eventually(look)
    web.stop(seconds=1)

    again = "web started again."
    assert said[0] == (
        f"web ended with exit code 3; starting it again in 0.1 s (see {tmp_path / 'web.log'})."
    )
    assert said[1] == again
    assert "in 0.2 s" in said[2]
    assert "in 0.2 s" in said[4]
    assert (tmp_path / "web.log").read_text().startswith("bye\nbye\n")


def test_a_killed_process_is_told_from_one_that_failed(tmp_path: Path) -> None:
    web = child(tmp_path, "import time; time.sleep(60)")
    web.start()
    assert web.look_after() is None
    assert web.pid is not None
    psutil.Process(web.pid).kill()

    assert eventually(lambda: web.has_ended)

    assert str(web.look_after()).startswith("web ended by signal 9; starting it again in 1 s")


def test_a_process_that_will_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    web = child(tmp_path, script)
    web.start()
    assert eventually(lambda: "ready" in web.log.read_text())
    assert web.pid is not None
    family = [psutil.Process(web.pid), *psutil.Process(web.pid).children()]
    assert len(family) == 2

    web.stop(seconds=0.2)

    assert eventually(
        lambda: all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in family)
    )


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        with pytest.raises(DemoError) as caught:
            run(Options(tmp_path, port), say=print)

    assert str(caught.value) == (
        f"Port {port} of 127.0.0.1 cannot be used (Address already in use): stop what listens "
        f"there, or choose another one, for example PORT={port + 1} make demo."
    )


def test_a_second_demo_from_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        locks.exclusive_or_not(tmp_path / "demo.lock"),
        pytest.raises(DemoError, match=r"A demo already runs from .*: stop it first"),
    ):
        run(Options(tmp_path, free_port()), say=print)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("Traceback …\n  File x\nValueError: too bad\n", "ValueError: too bad"),
        (
            "psycopg.errors.X: a\ndjango.db.utils.ProgrammingError: a\nLINE 1: INSERT\n     ^\n",
            "django.db.utils.ProgrammingError: a",
        ),
        ("Error: The database does not answer (x): start it.\n", "Error: The database does not …"),
        ("CommandError: Unknown thing\n", "CommandError: Unknown thing"),
        ("killed\n", "killed"),
        ("", ""),
    ],
    ids=["plain", "with a caret", "ours", "a command's", "no error at all", "nothing"],
)
def test_a_failed_step_is_told_by_the_line_that_names_the_error(stderr: str, expected: str) -> None:
    assert supervisor._reason(stderr).startswith(expected.removesuffix("…"))
