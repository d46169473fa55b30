"""The options by which commands are told of which GPU's MIG table to speak."""

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import CommandError

from gpu.planning.catalogue import find_table
from gpu.planning.driver_tables import driver_table, read_tables
from gpu.planning.errors import PlanningError
from gpu.planning.tables import GpuTable

BAD_INPUT = 2


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add --gpu, --from-nvidia-smi and --index; refusals of the parser are one line then."""
    parser.usage = argparse.SUPPRESS
    parser.add_argument(
        "--gpu",
        metavar="PRODUCT",
        help="a GFD product label, an nvidia-smi name or an id of the catalogue, in any case",
    )
    parser.add_argument(
        "--from-nvidia-smi",
        metavar="FILE",
        help="read the table from the text of `nvidia-smi mig -lgip` and `-lgipp`; - is stdin",
    )
    parser.add_argument(
        "--index", type=int, metavar="N", help="which GPU of FILE, and of the node; default 0"
    )


def refuse(reason: Exception | str, option: str = "") -> NoReturn:
    """End the command with code 2 and one line that names the option."""
    line = " ".join(str(reason).split())
    raise CommandError(f"{option}: {line}" if option else line, returncode=BAD_INPUT)


def chosen_table(options: dict[str, Any]) -> GpuTable:
    """Return the table that the options name; raise `CommandError` with code 2 otherwise."""
    product, path, index = options["gpu"], options["from_nvidia_smi"], options["index"]
    if index is not None and index < 0:
        refuse(f"A GPU's index is 0 or more, not {index}.", "--index")
    if path is None and product is None:
        refuse("Give --gpu PRODUCT or --from-nvidia-smi FILE.")
    read = None if path is None else _from_file(path, index)
    if product is None and read is not None:
        return read
    try:
        known = find_table(product or "", memory_mib=read.memory_mib if read else None)
    except PlanningError as error:
        refuse(error, "--gpu")
    if read is None:
        return known
    return driver_table(read.profiles, product=known.product, memory_mib=read.memory_mib)


def _from_file(path: str, index: int | None) -> GpuTable:
    option = "--from-nvidia-smi"
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        refuse(f"{path} cannot be read: {error.strerror}.", option)
    try:
        tables = read_tables(content.decode("utf-8-sig", errors="replace"))
    except PlanningError as error:
        refuse(error, option)
    if not tables:
        refuse("nvidia-smi says that no GPU of this node supports MIG.", option)
    if index is not None:
        if index not in tables:
            known = ", ".join(map(str, tables))
            refuse(f"The text has no GPU {index}, only {known}.", "--index")
        return tables[index]
    first = next(iter(tables.values()))
    if any(table != first for table in tables.values()):
        known = ", ".join(map(str, tables))
        refuse(f"GPUs {known} differ: choose one with --index N.", option)
    return first
