"""Settings come from the environment alone, and say in one line what is wrong with it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_COVERAGE = {name: value for name, value in os.environ.items() if name.startswith("COV")}
PRODUCTION = {
    "DEPLOYMENT": "production",
    "SECRET_KEY": "k" * 25 + "0123456789" * 4,
    "ALLOWED_HOSTS": "gpu.lab.example",
    "DATABASE_URL": "postgres://portal:pw@db:5432/portal",
    "REDIS_URL": "redis://redis:6379/0",
}


def manage(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py with this environment and nothing else."""
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        env={"PATH": os.environ["PATH"], **_COVERAGE, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_production_passes_the_deployment_check_without_a_warning() -> None:
    result = manage(PRODUCTION, "check", "--deploy", "--fail-level", "WARNING")

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"SECRET_KEY": ""},
            "SECRET_KEY is not set: give it a value, or the path of a file in SECRET_KEY_FILE.",
        ),
        ({"ALLOWED_HOSTS": ""}, "ALLOWED_HOSTS is not set: give it a value in the environment."),
        (
            {"DATABASE_URL": ""},
            "DATABASE_URL is not set: give it a value, or the path of a file in DATABASE_URL_FILE.",
        ),
        (
            {"DATABASE_URL": "mysql://db/x"},
            (
                "DATABASE_URL must begin with postgres:// or postgresql://, for example "
                "postgres://slicedesk:password@db:5432/slicedesk."
            ),
        ),
        (
            {"REDIS_URL": "memcached://x"},
            "REDIS_URL must begin with redis:// or rediss://, for example redis://redis:6379/0.",
        ),
        (
            {"DEBUG": "true"},
            "DEBUG must be false unless DEPLOYMENT is local: error pages would show secrets.",
        ),
        (
            {"TIME_ZONE": "Mars/Olympus"},
            "TIME_ZONE must be a zone such as UTC or Asia/Shanghai, not 'Mars/Olympus'.",
        ),
        ({"CLUSTER": "fake"}, "CLUSTER must be simulated or kubernetes, not 'fake'."),
        (
            {"DATABASE_POOL_SIZE": "many"},
            "DATABASE_POOL_SIZE must be a whole number from 0 to 1000, not 'many'.",
        ),
        ({"DEPLOYMENT": "prod"}, "DEPLOYMENT must be local or production, not 'prod'."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_variable_ends_in_one_line_and_exit_code_2(
    change: dict[str, str], sentence: str
) -> None:
    result = manage({**PRODUCTION, **change}, "check")

    assert result.stderr == f"Error: {sentence}\n"
    assert result.returncode == 2


def test_the_demo_refuses_to_run_as_production() -> None:
    result = manage(PRODUCTION, "demo")

    assert result.returncode == 2
    assert result.stderr == (
        "Error: make demo is for one's own machine: leave DEPLOYMENT out of the environment.\n"
    )


def test_a_command_without_any_environment_fills_the_gaps_for_this_machine(tmp_path: Path) -> None:
    result = manage({"SLICEDESK_STATE_DIR": str(tmp_path)}, "check")

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "secret-key").stat().st_mode & 0o777 == 0o600


def test_a_command_that_needs_a_database_brings_it_along(tmp_path: Path) -> None:
    result = manage({"SLICEDESK_STATE_DIR": str(tmp_path)}, "showmigrations", "audit")

    assert result.returncode == 0, result.stderr
    assert "0001_initial" in result.stdout
    assert (tmp_path / "postgres" / "PG_VERSION").exists()
    assert not (tmp_path / "postgres" / "postmaster.pid").exists()


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    result = manage({"SLICEDESK_STATE_DIR": str(blocked / "var")}, "check")

    assert result.returncode == 2
    assert result.stderr == (
        f"Error: The state directory {blocked / 'var'} cannot be written (Not a directory): "
        "point SLICEDESK_STATE_DIR at a folder that you may write.\n"
    )


def test_a_database_that_does_not_answer_ends_in_one_line() -> None:
    result = manage(
        {**PRODUCTION, "DATABASE_URL": "postgres://127.0.0.1:1/portal"}, "showmigrations"
    )

    assert result.returncode == 2
    assert result.stderr.startswith("Error: The database does not answer (")
    assert result.stderr.count("\n") == 1


def test_every_variable_is_explained_in_the_readme() -> None:
    source = (ROOT / "portal" / "settings.py").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"env\.\w+\(\s*\"([A-Z_]+)\"", source))

    assert len(names) > 25
    assert {name for name in names if f"`{name}`" not in readme} == set()
