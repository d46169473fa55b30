"""The programs that scripts find on a simulated node: `nvidia-smi`, and `chroot` for the host's."""

import shlex
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def nvidia_smi_command(python: str) -> list[str]:
    """Return the command of the stand-in; isolated and without site packages it starts quickly."""
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r});"
        " from gpu.adapters.smi.run import main; main()"
    )
    return [python, "-I", "-S", "-c", code]


def install(folder: Path) -> Path:
    """Write the programs into a folder, unless they are there, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join(nvidia_smi_command(sys.executable))
    _write(folder / "nvidia-smi", f'#!/bin/sh\nexec {command} "$@"\n')
    _write(folder / "chroot", '#!/bin/sh\nshift\nexec "$@"\n')
    return folder


def _write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(path)
