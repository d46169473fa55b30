"""The MIG table of a GPU model: its profiles and where their instances may lie."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, override

from gpu.planning.errors import PlanningError
from gpu.planning.placements import Placement
from gpu.planning.profiles import Engines, MigProfile, ProfileName


class UnknownProfileError(PlanningError):
    """The GPU model has no such profile."""


class UnpublishedTableError(PlanningError):
    """Nobody has published where this model's GPU instances may lie."""


class InvalidTableError(PlanningError):
    """A stored table cannot be read back."""


@dataclass(frozen=True, slots=True)
class GpuTable:
    """What one GPU model can be cut into; ``None`` is what nobody has published.

    `product` is the GFD product label, `memory_mib` the whole GPU's memory. `engine_totals` are
    the engines that all instances of a GPU share: a layout may not use more.
    """

    id: str
    product: str
    marketing: str
    family: str
    architecture: str
    memory_slices: int | None
    compute_slices: int | None
    memory_mib: int | None
    max_instances: int | None
    profiles: tuple[MigProfile, ...]
    mode_change_needs_reset: bool | None = None
    mode_survives_reboot: bool | None = None
    min_driver: str | None = None
    engine_totals: Engines | None = None

    @override
    def __hash__(self) -> int:
        # Tables are keys of caches on hot paths; equal tables share these two, and few others do.
        return hash((self.id, self.product))

    @property
    def is_published(self) -> bool:
        """Return whether placements and ids of all profiles are known, so that it can be cut."""
        return bool(self.profiles) and all(
            profile.placements and profile.gi_profile_id is not None for profile in self.profiles
        )

    def require_published(self) -> None:
        """Raise `UnpublishedTableError` when the model's placements are not known."""
        if not self.is_published:
            message = (
                f"Nobody has published where GPU instances may lie on {self.marketing}: read its"
                " table from a node that has one, with `nvidia-smi mig -lgip` and"
                " `nvidia-smi mig -lgipp`, and pass the text as --from-nvidia-smi FILE."
            )
            raise UnpublishedTableError(message)

    def profile(self, name: str) -> MigProfile:
        """Return the profile of that name or alias, in any case.

        Raises `InvalidProfileError` for no profile name at all, `UnknownProfileError`, naming near
        ones, for a profile that the model does not have.
        """
        wanted = str(ProfileName.parse(name))
        for profile in self.profiles:
            if wanted == profile.name or wanted in profile.aliases:
                return profile
        message = (
            f"{self.marketing} has no profile {wanted}; it has {', '.join(self._near(wanted))}."
        )
        raise UnknownProfileError(message)

    def profile_by_id(self, gi_profile_id: int) -> MigProfile:
        """Return the profile with that nvidia-smi id; raise `UnknownProfileError` otherwise."""
        for profile in self.profiles:
            if profile.gi_profile_id == gi_profile_id:
                return profile
        message = f"{self.marketing} has no profile with id {gi_profile_id}."
        raise UnknownProfileError(message)

    def _near(self, wanted: str) -> Iterable[str]:
        names = [profile.name for profile in self.profiles]
        same_slices = [name for name in names if name.partition("g.")[0] == wanted[0]]
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
        return dict.fromkeys([*near, *same_slices]) or names


def table_to_json(table: GpuTable) -> dict[str, Any]:
    """Return the table as plain JSON values, for storing; `table_from_json` reads it back."""
    return {
        "id": table.id,
        "product": table.product,
        "marketing": table.marketing,
        "family": table.family,
        "architecture": table.architecture,
        "memory_slices": table.memory_slices,
        "compute_slices": table.compute_slices,
        "memory_mib": table.memory_mib,
        "max_instances": table.max_instances,
        "mode_change_needs_reset": table.mode_change_needs_reset,
        "mode_survives_reboot": table.mode_survives_reboot,
        "min_driver": table.min_driver,
        "engine_totals": None if table.engine_totals is None else list(table.engine_totals),
        "profiles": [_profile_to_json(profile) for profile in table.profiles],
    }


def table_from_json(data: Mapping[str, Any]) -> GpuTable:
    """Read what `table_to_json` wrote; raise `InvalidTableError` for anything else.

    Equal tables come back as the same object.
    """
    try:
        values = dict(data)
        totals = values.pop("engine_totals")
        profiles = tuple(_profile_from_json(item) for item in values.pop("profiles"))
        table = GpuTable(
            **values,
            profiles=profiles,
            engine_totals=None if totals is None else Engines(*totals),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"The stored MIG table cannot be read ({error}); probe the node again."
        raise InvalidTableError(message) from error
    return _first_of_equals(table)


@lru_cache(maxsize=256)
def _first_of_equals(table: GpuTable) -> GpuTable:
    """Return the table that was equal to this one first: caches compare it by identity then."""
    return table


def _profile_to_json(profile: MigProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "gi_profile_id": profile.gi_profile_id,
        "compute_slices": profile.compute_slices,
        "memory_slices": profile.memory_slices,
        "memory_mib": profile.memory_mib,
        "max_instances": profile.max_instances,
        "placements": [[place.start, place.size] for place in profile.placements],
        "engines": list(profile.engines),
        "multiprocessors": profile.multiprocessors,
        "aliases": list(profile.aliases),
    }


def _profile_from_json(data: Mapping[str, Any]) -> MigProfile:
    values = dict(data)
    placements = tuple(Placement(start, size) for start, size in values.pop("placements"))
    engines = Engines(*values.pop("engines"))
    aliases = tuple(values.pop("aliases"))
    return MigProfile(**values, placements=placements, engines=engines, aliases=aliases)
