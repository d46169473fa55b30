"""Print the MIG table of a GPU model: its profiles and where their instances may lie."""

import json
from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from gpu.management.table_options import add_table_options, chosen_table
from gpu.planning.profiles import MigProfile
from gpu.planning.tables import GpuTable

_UNKNOWN = "unknown"
_HEADINGS = (
    "profile",
    "id",
    "compute",
    "memory",
    "GiB",
    "most",
    "placements",
    "Kubernetes resource",
)


class Command(BaseCommand):
    """`manage.py mig_profiles --gpu PRODUCT`; needs neither database nor broker."""

    help = "Print the MIG profiles of a GPU model, from the catalogue or from nvidia-smi's text."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_table_options(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        table = chosen_table(options)
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(table), indent=2))
        else:
            self.stdout.write("\n".join(_as_text(table)))


def _as_json(table: GpuTable) -> dict[str, Any]:
    return {
        "product": table.product or None,
        "memory_slices": table.memory_slices,
        "profiles": [
            {
                "name": profile.name,
                "id": profile.gi_profile_id,
                "memory_slices": profile.memory_slices,
                "compute_slices": profile.compute_slices,
                "memory_gib": _gib(profile),
                "max_instances": profile.max_instances,
                "placements": [
                    {"start": place.start, "size": place.size} for place in profile.placements
                ]
                or None,
                "resource_name": profile.resource_name,
            }
            for profile in table.profiles
        ],
    }


def _gib(profile: MigProfile) -> float | None:
    """Return GiB with two decimals, rounded as nvidia-smi does."""
    return None if profile.memory_mib is None else round(profile.memory_mib / 1024, 2)


def _as_text(table: GpuTable) -> list[str]:
    rows = [_HEADINGS, *(_row(profile) for profile in table.profiles)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    slices = f"{_shown(table.memory_slices)} memory and {_shown(table.compute_slices)} compute"
    name = f"{table.marketing} ({table.product})" if table.product else table.marketing
    return [f"{name}: {slices} slices", *lines]


def _row(profile: MigProfile) -> tuple[str, ...]:
    starts = ",".join(str(place.start) for place in profile.placements)
    memory_gib = _gib(profile)
    return (
        profile.name,
        _shown(profile.gi_profile_id),
        str(profile.compute_slices),
        _shown(profile.memory_slices),
        _UNKNOWN if memory_gib is None else f"{memory_gib:.2f}",
        _shown(profile.max_instances),
        f"{{{starts}}}:{profile.placements[0].size}" if profile.placements else _UNKNOWN,
        profile.resource_name,
    )


def _shown(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)
