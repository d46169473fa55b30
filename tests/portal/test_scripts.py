"""The scripts that make and CI call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        ('<testcase classname="a" name="b"/>', 0, ""),
        ("", 1, "holds no test at all"),
        (
            '<testcase classname="a" name="b"><skipped message="no root"/></testcase>',
            1,
            "a::b was skipped: no root\n",
        ),
    ],
    ids=["all ran", "none ran", "one was skipped"],
)
def test_a_report_with_skipped_tests_is_refused(
    tmp_path: Path, cases: str, code: int, said: str
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")

    result = script(sys.executable, "scripts/check_junit.py", str(report))

    assert result.returncode == code
    assert said in result.stderr


def test_a_python_that_fits_is_found() -> None:
    result = script("scripts/find_python", PYTHON=sys.executable)

    assert result.returncode == 0
    assert Path(result.stdout.strip()).samefile(os.path.realpath(sys.executable))


def test_a_machine_without_a_fitting_python_is_told_what_to_do(tmp_path: Path) -> None:
    for name in ("python3", "python3.13"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)

    result = script(
        "/bin/sh", "scripts/find_python", PATH=str(tmp_path), HOME=str(tmp_path), PYTHON=""
    )

    assert result.returncode == 1
    assert result.stderr.startswith("No Python from 3.12 to 3.14 with its venv module was found")


def test_a_machine_without_node_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sed").symlink_to("/bin/sed")

    result = script("/bin/sh", "scripts/check_node", PATH=str(tmp_path))

    assert result.returncode == 1
    assert "need Node 20 or newer with npm" in result.stderr
    assert "found: none" in result.stderr


def test_translations_are_compiled_once_and_broken_ones_are_named(tmp_path: Path) -> None:
    scripts, folder = tmp_path / "scripts", tmp_path / "locale" / "zh_Hans" / "LC_MESSAGES"
    scripts.mkdir()
    folder.mkdir(parents=True)
    source = Path("scripts/compile_messages.py")
    (tmp_path / source).write_text((ROOT / source).read_text())
    catalogue = folder / "django.po"
    catalogue.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
        'msgid "Sign in"\nmsgstr "登录"\n',
        encoding="utf-8",
    )

    assert script(sys.executable, str(tmp_path / source)).returncode == 0
    compiled = folder / "django.mo"
    assert "登录".encode() in compiled.read_bytes()
    before = compiled.stat().st_mtime_ns
    assert script(sys.executable, str(tmp_path / source)).returncode == 0
    assert compiled.stat().st_mtime_ns == before

    catalogue.write_text('msgid "a"\ngarbage\n', encoding="utf-8")
    os.utime(catalogue, (2_000_000_000, 2_000_000_000))
    result = script(sys.executable, str(tmp_path / source))
    assert result.returncode == 1
    assert result.stderr.startswith("locale/zh_Hans/LC_MESSAGES/django.po cannot be read:")
