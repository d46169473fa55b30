"""Running on one's own machine: which gaps are filled, with what, and which are not."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from portal import command_line, local
from portal.embedded import EmbeddedError, services

_NAMES = ("DEPLOYMENT", "DATABASE_URL", "REDIS_URL", "SECRET_KEY", "CLUSTER", "SLICEDESK_STATE_DIR")


@pytest.fixture(autouse=True)
def bare(tmp_path: Path) -> Iterator[None]:
    """An environment that says nothing but where state lies."""
    with patch.dict(os.environ):
        for name in _NAMES:
            os.environ.pop(name, None)
        os.environ["SLICEDESK_STATE_DIR"] = str(tmp_path / "var")
        local.given_urls.clear()
        yield


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"DEPLOYMENT": "local"}, True),
        ({"DEPLOYMENT": "Local", "DATABASE_URL": "postgres://db/x"}, True),
        ({"DEPLOYMENT": "production"}, False),
        ({"DATABASE_URL": "postgres://db/x"}, False),
        ({"DATABASE_URL_FILE": "/run/secrets/db"}, False),
    ],
    ids=str,
)
def test_only_a_run_without_a_database_of_its_own_is_local(
    environment: dict[str, str], *, expected: bool
) -> None:
    assert local.is_local(environment) is expected


def test_a_command_that_needs_nothing_starts_nothing(tmp_path: Path) -> None:
    with local.surroundings(["mig_profiles", "--gpu", "A100"]):
        assert os.environ["CLUSTER"] == "simulated"
        assert os.environ["DATABASE_URL"] == "postgres://127.0.0.1:1/slicedesk"
    assert sorted(path.name for path in (tmp_path / "var").iterdir()) == ["secret-key"]


def test_help_for_a_command_starts_nothing(tmp_path: Path) -> None:
    with local.surroundings(["migrate", "--help"]):
        pass
    assert not (tmp_path / "var" / "postgres").exists()


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    keys = set()
    for _ in range(2):
        os.environ.pop("SECRET_KEY", None)
        with local.surroundings(["check"]):
            keys.add(os.environ["SECRET_KEY"])

    assert len(keys) == 1
    assert len(keys.pop()) >= 50


def test_a_command_that_needs_a_database_has_one_while_it_runs() -> None:
    with local.surroundings(["migrate"]):
        url = os.environ["DATABASE_URL"]
        assert url.startswith("postgres://slicedesk:")
        assert os.environ["REDIS_URL"].startswith("redis://:")
        assert local.given_urls == {"DATABASE_URL": "", "REDIS_URL": ""}


def test_a_given_server_is_used_beside_ours(tmp_path: Path) -> None:
    os.environ.update(DEPLOYMENT="local", DATABASE_URL="postgres://db/x")

    with local.surroundings(["migrate"]):
        assert os.environ["DATABASE_URL"] == "postgres://db/x"
        assert os.environ["REDIS_URL"].startswith("redis://:")
    assert not (tmp_path / "var" / "postgres").exists()


def test_commands_beside_a_running_demo_reach_its_services(tmp_path: Path) -> None:
    with services(tmp_path / "var", is_ephemeral=True) as running:
        with local.surroundings(["check"]):
            assert os.environ["DATABASE_URL"] == running.database_url
        with local.surroundings(["shell"]):
            assert os.environ["DATABASE_URL"] == running.database_url


def test_production_gets_nothing(tmp_path: Path) -> None:
    os.environ["DEPLOYMENT"] = "production"

    with local.surroundings(["migrate"]):
        assert "DATABASE_URL" not in os.environ
    assert not (tmp_path / "var").exists()


def test_the_command_line_answers_a_bad_set_up_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "var").write_text("in the way")

    code = command_line.run(["manage.py", "migrate"])

    assert code == 2
    assert capsys.readouterr().err == (
        f"Error: The state directory {tmp_path / 'var'} cannot be used (File exists): "
        "point SLICEDESK_STATE_DIR at a folder that you may write.\n"
    )


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_argv: list[str]) -> None:
        raise LookupError

    monkeypatch.setattr(command_line, "execute_from_command_line", fail)

    with pytest.raises(LookupError):
        command_line.run(["manage.py", "check"])


def test_ctrl_c_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_argv: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "execute_from_command_line", interrupt)

    assert command_line.run(["manage.py", "check"]) == 130


def test_a_state_folder_without_rights_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.environ["SLICEDESK_STATE_DIR"] = str(tmp_path / "file" / "var")

    with (
        pytest.raises(EmbeddedError, match="cannot be written"),
        local.surroundings(["check"]),
    ):
        pass
