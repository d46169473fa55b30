"""The built-in catalogue: GPU models by name, for where no driver can be asked."""

import difflib
from dataclasses import replace

from gpu.planning.errors import PlanningError
from gpu.planning.facts import SEVEN_SLICE, Counts, SevenSlice
from gpu.planning.facts_other import OTHER, Other
from gpu.planning.placements import Placement
from gpu.planning.products import (
    comparable,
    find_whole_gpu,
    has_profile_suffix,
    known_whole_gpus,
)
from gpu.planning.profiles import Engines, MigProfile, ProfileName
from gpu.planning.tables import GpuTable

# Profile, id, index of its gigabytes and memory, compute slices, most instances, size, starts.
_SEVEN_SLICE_SHAPES = (
    ("1g", "", 19, 0, 1, 7, 1, range(7)),
    ("1g", "+me", 20, 0, 1, 1, 1, range(7)),
    ("1g", "", 15, 1, 1, 4, 2, range(0, 8, 2)),
    ("2g", "", 14, 1, 2, 3, 2, range(0, 6, 2)),
    ("3g", "", 9, 2, 3, 2, 4, range(0, 8, 4)),
    ("4g", "", 5, 2, 4, 1, 4, range(1)),
    ("7g", "", 0, 3, 7, 1, 8, range(1)),
)
_SHORTEST_CUT_LABEL = 12
_MEMORY_TOLERANCE = 0.03


class UnknownGpuError(PlanningError):
    """The product is not in the catalogue."""


class AmbiguousGpuError(UnknownGpuError):
    """Two models bear the product's name."""


class NotMigCapableError(PlanningError):
    """The GPU cannot do MIG."""


def find_table(product: str, *, memory_mib: int | None = None) -> GpuTable:
    """Return the table of a GFD product label, an nvidia-smi name or a catalogue id, in any case.

    `memory_mib`, the whole GPU's memory, tells models of one name apart. Raises `UnknownGpuError`
    with near names, its subclass `AmbiguousGpuError`, or `NotMigCapableError`.
    """
    entries = _BY_NAME.get(comparable(product)) or _cut_short(product)
    if not entries:
        raise _not_found(product)
    return _tell_apart(product, entries, memory_mib if len(entries) > 1 else None)


def all_tables() -> tuple[GpuTable, ...]:
    """Return the tables of all models in the catalogue, with the first label of each."""
    return tuple(_BY_NAME[table_id][0] for table_id in _IDS)


def gpu_memory_mib(product: str) -> int | None:
    """Return the whole GPU's memory in MiB, with or without MIG; ``None`` where unknown."""
    entries = _BY_NAME.get(comparable(product)) or _cut_short(product)
    if entries:
        return entries[0].memory_mib if len(entries) == 1 else None
    gpu = find_whole_gpu(product)
    return gpu.memory_mib if gpu else None


def _cut_short(product: str) -> tuple[GpuTable, ...]:
    """Find the model behind a label whose model part was cut to fit 63 characters."""
    name = comparable(product)
    if not has_profile_suffix(product) or len(name) < _SHORTEST_CUT_LABEL:
        return ()
    found = {tables[0].product: tables for key, tables in _BY_NAME.items() if key.startswith(name)}
    models = {table.id for tables in found.values() for table in tables}
    return next(iter(found.values())) if len(models) == 1 else ()


def _tell_apart(product: str, entries: tuple[GpuTable, ...], memory_mib: int | None) -> GpuTable:
    if memory_mib is not None:
        known = [table for table in entries if _is_about(table.memory_mib, memory_mib)]
        entries = tuple(known) or tuple(item for item in entries if item.memory_mib is None)
    if len(entries) == 1:
        return entries[0]
    choices = " or ".join(
        f"{table.id} (its smallest profile is {table.profiles[0].name})" for table in entries
    )
    message = (
        f"{product.strip()} is the name of more than one model: give {choices};"
        " `nvidia-smi mig -lgip` on the node shows which."
    )
    raise AmbiguousGpuError(message)


def _is_about(known: int | None, memory_mib: int) -> bool:
    return known is not None and abs(known - memory_mib) <= known * _MEMORY_TOLERANCE


def _not_found(product: str) -> PlanningError:
    whole = find_whole_gpu(product)
    if whole:
        return NotMigCapableError(
            f"{whole.name} cannot do MIG: it can be given whole, or shared by time-slicing (memory"
            " is not isolated) or by MPS (memory is limited, faults are not isolated)."
        )
    names = {comparable(name): name for name in _all_names()}
    wanted = comparable(product)
    near = [name for key, name in names.items() if wanted and wanted in key]
    close = difflib.get_close_matches(wanted, names, n=4, cutoff=0.5)
    near = list(dict.fromkeys([*near, *(names[key] for key in close)]))[:4]
    advice = (
        f"near it: {', '.join(near)}" if near else "give a GFD product label such as NVIDIA-H200"
    )
    return UnknownGpuError(f"{product.strip()[:80]!r} is not a GPU of the catalogue; {advice}.")


def _all_names() -> list[str]:
    tables = {table.product: None for tables in _BY_NAME.values() for table in tables}
    return [*tables, *_IDS, *(gpu.name for gpu in known_whole_gpus())]


def _seven_slice_table(facts: SevenSlice) -> GpuTable:
    aliases = dict(facts.aliases)
    profiles = []
    for index, shape in enumerate(_SEVEN_SLICE_SHAPES):
        slices, attribute, gi_profile_id, step, compute, most, size, starts = shape
        name = f"{slices}.{facts.gigabytes[step]}gb{attribute}"
        profiles.append(
            MigProfile(
                name=name,
                gi_profile_id=gi_profile_id,
                compute_slices=compute,
                memory_slices=size,
                memory_mib=facts.memory[step],
                max_instances=most,
                placements=tuple(Placement(start, size) for start in starts),
                engines=Engines(*facts.engines[index]),
                multiprocessors=facts.multiprocessors[index],
                aliases=(aliases[name],) if name in aliases else (),
            )
        )
    # NVIDIA counts JPEG engines for each instance since Hopper, on Ampere one serves the card.
    jpeg = 1 if facts.architecture == "Ampere" else None
    return _table(
        facts,
        profiles=profiles,
        slices=(8, 7),
        max_instances=7,
        engine_totals=Engines(jpeg=jpeg, ofa=1),
    )


def _other_table(facts: Other) -> GpuTable:
    profiles = [
        MigProfile(
            name=name,
            gi_profile_id=gi_profile_id,
            compute_slices=ProfileName.parse(name).slices,
            memory_slices=size,
            memory_mib=memory_mib,
            max_instances=most,
            placements=tuple(Placement(start or 0, size or 1) for start in starts),
            engines=Engines(*engines),
            multiprocessors=multiprocessors,
        )
        for name, gi_profile_id, size, memory_mib, most, starts, engines, multiprocessors in (
            facts.profiles
        )
    ]
    return _table(
        facts,
        profiles=profiles,
        slices=(facts.memory_slices, facts.compute_slices),
        max_instances=facts.max_instances,
        engine_totals=None if facts.engine_totals is None else Engines(*facts.engine_totals),
    )


def _table(
    facts: SevenSlice | Other,
    *,
    profiles: list[MigProfile],
    slices: Counts,
    max_instances: int | None,
    engine_totals: Engines | None,
) -> GpuTable:
    is_ampere = facts.architecture == "Ampere"
    is_known = facts.id != "thor-igpu"  # nobody has said how its mode behaves
    return GpuTable(
        id=facts.id,
        product=facts.names[0].replace(" ", "-") if facts.names else facts.id,
        marketing=facts.marketing,
        family=facts.architecture.lower() if is_known else "undefined",
        architecture=facts.architecture,
        memory_slices=slices[0],
        compute_slices=slices[1],
        memory_mib=facts.memory_mib,
        max_instances=max_instances,
        profiles=tuple(profiles),
        mode_change_needs_reset=is_ampere if is_known else None,
        mode_survives_reboot=is_ampere if is_known else None,
        min_driver=facts.min_driver,
        engine_totals=engine_totals,
    )


def _index() -> tuple[dict[str, tuple[GpuTable, ...]], tuple[str, ...]]:
    named = [(facts.names, _seven_slice_table(facts)) for facts in SEVEN_SLICE]
    named += [(facts.names, _other_table(facts)) for facts in OTHER]
    by_name: dict[str, tuple[GpuTable, ...]] = {table.id: (table,) for _, table in named}
    for names, table in named:
        for name in names:
            key = comparable(name)
            others = by_name.get(key, ())
            if table.id not in {other.id for other in others}:
                by_name[key] = (*others, replace(table, product=name.replace(" ", "-")))
    return by_name, tuple(sorted(table.id for _, table in named))


_BY_NAME, _IDS = _index()
