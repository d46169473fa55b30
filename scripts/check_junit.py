"""Refuses a test report in which nothing ran or something was skipped; says which and why."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def main(path: Path) -> int:
    """Return 1 with one line for each skipped test, or when no test ran."""
    cases = list(ET.parse(path).iter("testcase"))  # noqa: S314  pytest's own file of a moment ago
    skipped = [
        f"{case.get('classname')}::{case.get('name')} was skipped: {reason.get('message')}"
        for case in cases
        if (reason := case.find("skipped")) is not None
    ]
    if not cases:
        skipped.append(f"{path} holds no test at all")
    for line in skipped:
        sys.stderr.write(f"{line}\n")
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
