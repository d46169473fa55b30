"""`python -m bench [--only B1] [--full]`: exit status 1 when a floor is missed."""

import argparse
import sys

from bench.pages import who_has_which
from bench.report import BENCHMARKS, FULL, OUT, SHORT, Book, write
from bench.sync import syncing

ON_A_CLUSTER = {"sync": syncing, "B6": who_has_which}
"""Run only when they are named: they start a real control plane, which takes its time."""


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="bench", description="Benchmarks of Slicedesk.")
    every = {**BENCHMARKS, **ON_A_CLUSTER}
    parser.add_argument("--only", choices=every, help="one of them")
    parser.add_argument("--full", action="store_true", help="at full length")
    arguments = parser.parse_args()
    book = Book(say=lambda line: print(line, flush=True))  # noqa: T201  # a command's output
    for name in [arguments.only] if arguments.only else BENCHMARKS:
        every[name](book, FULL if arguments.full else SHORT)
    write(book, OUT)
    for floor in book.missed:
        print(f"MISSED {floor}")  # noqa: T201
    return 1 if book.missed else 0


if __name__ == "__main__":
    sys.exit(main())
