"""Compiles the translations under locale/ without GNU gettext; skips what is fresh."""

import sys
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import PoFileError, read_po

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Write each .mo beside its .po; return 1 when a file cannot be read."""
    for source in sorted((ROOT / "locale").glob("*/LC_MESSAGES/*.po")):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
            continue
        try:
            with source.open("rb") as file:
                catalogue = read_po(file, abort_invalid=True)
        except PoFileError as error:
            sys.stderr.write(f"{source.relative_to(ROOT)} cannot be read: {error}\n")
            return 1
        with target.open("wb") as file:
            write_mo(file, catalogue)
    return 0


if __name__ == "__main__":
    sys.exit(main())
