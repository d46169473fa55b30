"""PostgreSQL and Valkey from their wheels: start, share, survive, stop.

Aspects: data are kept; a second user shares and the last one stops; a killed user leaves nothing
behind; a killed server comes back at its address with its data; stale pid files and taken ports;
private folders and foreign owners; servers given from outside.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis

from portal import embedded
from portal.embedded import account, postgres, processes
from portal.embedded.postgres import Postgres
from portal.embedded.state import State
from portal.embedded.valkey import Valkey

ROOT = Path(__file__).parents[2]
_HOLD = """
import sys, time
from portal import embedded
with embedded.services(sys.argv[1], is_ephemeral=True) as running:
    print(running.database_url, running.redis_url, flush=True)
    sys.stdin.read()
"""


def hold(state_dir: Path, *, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start another process that uses the services until its standard input is closed."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", _HOLD, str(state_dir)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def eventually(check: Callable[[], bool], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.05)
    return False


def processes_of(state_dir: Path) -> list[str]:
    """Return the command lines that name a state directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(state_dir) in line and process.pid != os.getpid():
            found.append(line)
    return found


def test_both_answer_only_on_loopback_and_only_with_a_password(tmp_path: Path) -> None:
    with embedded.services(tmp_path, is_ephemeral=True) as running:
        with psycopg.connect(running.database_url) as connection:
            row = connection.execute("SHOW listen_addresses").fetchone()
        assert row == ("127.0.0.1",)
        without = running.database_url.replace(State.open(tmp_path).values["postgres_password"], "")
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(without)
        with Redis.from_url(running.redis_url) as client:
            assert client.ping()
        assert "requirepass" not in " ".join(processes_of(tmp_path))


def test_rows_are_kept_between_runs_and_nothing_is_left_running(tmp_path: Path) -> None:
    with (
        embedded.services(tmp_path) as running,
        psycopg.connect(running.database_url) as connection,
    ):
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('here')")
    assert eventually(lambda: processes_of(tmp_path) == [])

    with (
        embedded.services(tmp_path) as running,
        psycopg.connect(running.database_url) as connection,
    ):
        assert connection.execute("SELECT word FROM kept").fetchone() == ("here",)


def test_a_second_user_shares_and_the_last_one_stops(tmp_path: Path) -> None:
    with embedded.services(tmp_path, is_ephemeral=True) as first:
        other = hold(tmp_path)
        assert first_line(other) == [first.database_url, first.redis_url]
    psycopg.connect(first.database_url).close()  # the other one still uses it

    finish(other)

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first.database_url)
    assert eventually(lambda: processes_of(tmp_path) == [])


def test_a_user_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    other = hold(tmp_path)
    assert len(first_line(other)) == 2

    other.kill()
    other.communicate()

    assert eventually(lambda: processes_of(tmp_path) == [])


def test_ten_users_at_once_start_one_of_each(tmp_path: Path) -> None:
    others = [hold(tmp_path) for _ in range(4)]

    assert len({tuple(first_line(other)) for other in others}) == 1
    for other in others:
        assert other.stdin is not None
        other.stdin.close()
    for other in others:
        other.wait(30)
        assert other.stdout is not None
        other.stdout.close()
    assert eventually(lambda: processes_of(tmp_path) == [])


def test_killed_servers_come_back_at_their_address_with_their_rows(tmp_path: Path) -> None:
    with embedded.services(tmp_path) as running:
        with psycopg.connect(running.database_url) as connection:
            connection.execute("CREATE TABLE kept (word text)")
        state = State.open(tmp_path)
        for service in (Postgres(state), Valkey(state)):
            process = service.process()
            assert process is not None
            process.kill()

        back: list[str] = []

        def both_are_back() -> bool:
            back.extend(running.restart_dead())
            return len(back) > 1

        assert eventually(both_are_back)

        assert sorted(back) == ["PostgreSQL", "Valkey"]
        assert running.restart_dead() == []
        with psycopg.connect(running.database_url) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        with Redis.from_url(running.redis_url) as client:
            assert client.ping()


def test_a_frozen_server_counts_as_alive_and_is_still_stopped(tmp_path: Path) -> None:
    with embedded.services(tmp_path, is_ephemeral=True) as running:
        process = Valkey(State.open(tmp_path)).process()
        assert process is not None
        process.suspend()
        assert running.restart_dead() == []

    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_pid_file_that_another_program_has_now_does_not_stop_the_start(tmp_path: Path) -> None:
    with embedded.services(tmp_path):
        pass
    pid_file = tmp_path / "postgres" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{tmp_path / 'postgres'}\n")
    (tmp_path / "valkey.pid").write_text(f"{os.getpid()}\n")

    with embedded.services(tmp_path) as running:
        psycopg.connect(running.database_url).close()


def test_a_port_that_is_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    with embedded.services(tmp_path):
        pass
    state = State.open(tmp_path)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", state.port("postgres")))
        squatter.listen()
        with embedded.services(tmp_path) as running:
            assert f":{state.port('postgres')}/" not in running.database_url
            psycopg.connect(running.database_url).close()


def test_servers_from_outside_are_used_and_nothing_is_started(tmp_path: Path) -> None:
    with embedded.services(
        tmp_path, database_url="postgres://db/x", redis_url="redis://r/0"
    ) as running:
        assert running.environment == {
            "DATABASE_URL": "postgres://db/x",
            "REDIS_URL": "redis://r/0",
        }
        assert running.restart_dead() == []
    assert list(tmp_path.iterdir()) == []


def test_one_server_from_outside_leaves_the_other_to_us(tmp_path: Path) -> None:
    with embedded.services(tmp_path, database_url="postgres://db/x") as running:
        assert running.database_url == "postgres://db/x"
        with Redis.from_url(running.redis_url) as client:
            assert client.ping()
    assert not (tmp_path / "postgres").exists()


def test_a_damaged_memory_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "services.json").write_text("{")

    with (
        pytest.raises(embedded.EmbeddedError, match=r"is damaged: delete .* to begin anew"),
        embedded.services(tmp_path),
    ):
        pass


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with embedded.services(tmp_path):
        pass
    (tmp_path / "postgres" / "postgresql.auto.conf").write_text("no_such_setting = 1\n")

    with (
        pytest.raises(embedded.EmbeddedError, match=r"PostgreSQL did not start: .*log"),
        embedded.services(tmp_path),
    ):
        pass
    assert eventually(lambda: processes_of(tmp_path) == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_runs_for_a_user_without_rights(tmp_path: Path) -> None:
    state_dir = tmp_path / "daemon"
    state_dir.mkdir()
    os.chown(state_dir, 1, 1)
    # The right to read past folder permissions stands in for an interpreter outside root's home.
    prefix = (
        "setpriv",
        "--reuid=1",
        "--regid=1",
        "--clear-groups",
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
        "--securebits=+no_setuid_fixup",
    )
    for folder in (
        tmp_path,
        tmp_path.parent,
        tmp_path.parent.parent,
        tmp_path.parent.parent.parent,
    ):
        folder.chmod(0o755)
    other = hold(state_dir, prefix=prefix)
    database_url, _redis_url = first_line(other)

    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert (state_dir / "postgres").stat().st_uid == 1

    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert eventually(lambda: processes_of(state_dir) == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="for root only")
def test_root_may_keep_the_state_in_a_private_folder(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    with embedded.services(private / "var", is_ephemeral=True) as running:
        psycopg.connect(running.database_url).close()

    assert private.stat().st_mode & 0o777 == 0o700


def test_a_server_that_does_not_listen_is_killed_with_its_children(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    log = tmp_path / "log"
    processes.start([sys.executable, "-c", script], log=log)
    assert eventually(lambda: "ready" in log.read_text())
    server = psutil.Process(processes._children[-1].pid)
    family = [server, *server.children()]

    processes.stop(server, signal.SIGTERM, seconds=0.2)

    assert len(family) == 2
    assert eventually(lambda: all(one.status() == "zombie" for one in family if one.is_running()))


def test_a_pid_file_with_anything_else_in_it_names_no_process(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    assert processes.find(path, marks=[]) is None
    path.write_text("not a number")
    assert processes.find(path, marks=[]) is None
    path.write_text(f"{os.getpid()}\n")
    assert processes.find(path, marks=["no such word in a command line 1234"]) is None
    assert processes.find(path, marks=[]) is not None


def test_without_the_wheel_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(embedded.EmbeddedError, match="run make setup, or point DATABASE_URL"):
        postgres.binaries()


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account._prefix.cache_clear()


@pytest.mark.usefixtures("as_root")
def test_root_without_setpriv_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)

    with pytest.raises(embedded.EmbeddedError, match=r"setpriv \(util-linux\) is not installed"):
        account.prefix(account.Account(65534, 65534), tmp_path)


@pytest.mark.usefixtures("as_root")
def test_root_whose_folder_nobody_reaches_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_reaches", lambda _words, _path: False)

    with pytest.raises(embedded.EmbeddedError, match="move the checkout out of private folders"):
        account.prefix(account.Account(65534, 65534), tmp_path)


@pytest.mark.usefixtures("as_root")
def test_root_on_a_machine_without_nobody_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_name: str) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwnam", unknown)

    with pytest.raises(embedded.EmbeddedError, match="there is no user 'nobody'"):
        account.account(tmp_path / "new")


def test_somebody_without_rights_needs_no_words_before_the_command(tmp_path: Path) -> None:
    assert account.prefix(None, tmp_path) == ()
