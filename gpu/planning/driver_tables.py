"""Tables as a node's own driver gives them, completed with what only the catalogue knows."""

from gpu.planning.catalogue import all_tables, find_table
from gpu.planning.errors import PlanningError
from gpu.planning.nvidia_smi import (
    UnreadableOutputError,
    read_gpus,
    read_listing,
    read_profiles,
)
from gpu.planning.profiles import Engines, MigProfile
from gpu.planning.tables import GpuTable


def read_tables(text: str) -> dict[int, GpuTable]:
    """Return the table of each GPU by index from ``mig -lgip`` and ``-lgipp`` output.

    With ``-L`` or ``--query-gpu`` output in the same text the product is known too; without, it is
    empty. Nothing when nvidia-smi says that no GPU supports MIG; raises `UnreadableOutputError`.
    """
    named = _named(text)
    tables = {}
    for gpu, profiles in read_profiles(text).items():
        name, memory_mib = named.get(gpu, ("", None))
        tables[gpu] = driver_table(profiles, product=name, memory_mib=memory_mib)
    return tables


def driver_table(
    profiles: tuple[MigProfile, ...], *, product: str = "", memory_mib: int | None = None
) -> GpuTable:
    """Return the table of the profiles that a driver listed.

    `product` is a name or label, empty when unknown. How MIG mode behaves is not in a driver's
    list: that comes from the catalogue, by the product, or else by the profiles when all models
    that have just these are of one family.
    """
    model = _model(product, memory_mib)
    alike = model or _alike(profiles)
    label = product.replace(" ", "-")
    return GpuTable(
        id=model.id if model else "",
        product=label,
        marketing=model.marketing if model else label or "this GPU",
        family=alike.family if alike else "",
        architecture=alike.architecture if alike else "",
        memory_slices=max(place.end for item in profiles for place in item.placements),
        compute_slices=max(item.compute_slices for item in profiles),
        memory_mib=memory_mib or (model.memory_mib if model else None),
        max_instances=max(item.max_instances or 0 for item in profiles),
        profiles=profiles,
        mode_change_needs_reset=alike.mode_change_needs_reset if alike else None,
        mode_survives_reboot=alike.mode_survives_reboot if alike else None,
        min_driver=model.min_driver if model else None,
        engine_totals=_engine_totals(profiles),
    )


def _engine_totals(profiles: tuple[MigProfile, ...]) -> Engines:
    """Return what the instances share: all media engines, which the whole-GPU instance has."""
    whole = max(profiles, key=lambda item: (item.compute_slices, item.engines.ofa or 0))
    return Engines(None, *list(whole.engines)[1:])


def _named(text: str) -> dict[int, tuple[str, int | None]]:
    named: dict[int, tuple[str, int | None]] = {}
    try:
        named.update({gpu.index: (gpu.name, None) for gpu in read_listing(text)})
    except UnreadableOutputError:
        named.clear()  # no -L in the text
    try:
        named.update({gpu.index: (gpu.name, gpu.memory_mib) for gpu in read_gpus(text)})
    except UnreadableOutputError:
        return named  # no --query-gpu in the text
    return named


def _model(product: str, memory_mib: int | None) -> GpuTable | None:
    if not product:
        return None
    try:
        return find_table(product, memory_mib=memory_mib)
    except PlanningError:
        return None  # a model newer than the catalogue: its driver speaks for it


def _alike(profiles: tuple[MigProfile, ...]) -> GpuTable | None:
    """Return a model with just these profiles, if all such models are of one family."""
    shape = _shape(profiles)
    models = [table for table in all_tables() if _shape(table.profiles) == shape]
    memory = [item.memory_mib for item in profiles]
    exact = [table for table in models if [p.memory_mib for p in table.profiles] == memory]
    models = exact or models
    return models[0] if len({table.family for table in models}) == 1 else None


def _shape(profiles: tuple[MigProfile, ...]) -> list[tuple[object, ...]]:
    return [(item.name, item.gi_profile_id, item.placements) for item in profiles]
