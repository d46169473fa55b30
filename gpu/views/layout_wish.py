"""The layout that an admin has put together, as the address keeps it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from gpu.models import Gpu
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance, Layout, layout_of
from gpu.planning.landings import landings, likely_landing, profiles_of
from gpu.planning.layouts import check_layout
from gpu.planning.tables import GpuTable

OFF = "off"


class WishError(ValueError):
    """The text is no layout of this GPU; the message is one sentence for the admin."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A layout that is wanted: MIG off, or on with these instances."""

    is_mig_on: bool
    layout: Layout = ()

    @property
    def text(self) -> str:
        """Return the form that stands in an address: `off`, or `3g.40gb@4,1g.10gb@0`."""
        return ",".join(str(item) for item in self.layout) if self.is_mig_on else OFF

    def as_json(self) -> dict[str, Any]:
        """Return the form that operations store."""
        return {
            "mig": self.is_mig_on,
            "instances": [[item.profile, item.start] for item in self.layout],
        }

    def with_instance(self, instance: Instance) -> "Wish":
        """Return the wish with one more instance."""
        return Wish(is_mig_on=True, layout=layout_of((*self.layout, instance)))

    def without(self, instance: Instance) -> "Wish":
        """Return the wish without one instance."""
        return Wish(is_mig_on=True, layout=tuple(item for item in self.layout if item != instance))


def stored_wish(layout: Mapping[str, Any]) -> Wish:
    """Return a layout in the form that operations store as a wish."""
    instances = tuple(Instance(profile, start) for profile, start in layout["instances"])
    return Wish(is_mig_on=layout["mig"], layout=instances)


def present_layout(gpu: Gpu) -> Wish:
    """Return what is on a GPU whose instances are loaded."""
    if not gpu.is_mig_enabled:
        return Wish(is_mig_on=False)
    return Wish(
        is_mig_on=True,
        layout=layout_of(Instance(item.profile, item.start) for item in gpu.instances.all()),
    )


def problem_by_counts(wish: Wish, table: GpuTable) -> str:
    """Return why mig-manager cannot make a layout, being told counts; empty when it can."""
    pairs = frozenset((item.profile, item.start) for item in wish.layout)
    if not wish.is_mig_on or pairs in landings(table, profiles_of(pairs)):
        return ""
    likely = likely_landing(table, pairs)
    if likely is None:
        return _("mig-manager is told counts, not places, and finds no order in which these fit.")
    way = layout_of(Instance(*pair) for pair in likely)
    return _(
        "mig-manager is told counts, not places: it would make %(layout)s. Choose that, or another"
        " layout."
    ) % {"layout": ", ".join(str(item) for item in way)}


def read_wish(text: str, table: GpuTable) -> Wish:
    """Read a layout out of an address.

    Raises `WishError` for what is not written like one, or cannot lie on this model.
    """
    if text.strip().lower() == OFF:
        return Wish(is_mig_on=False)
    layout: Layout = ()
    for item in _instances(text):
        try:
            layout = check_layout(table, (*layout, item))
        except PlanningError as error:
            raise WishError(_refusal(table, layout, item)) from error
    return Wish(is_mig_on=True, layout=layout)


def _refusal(table: GpuTable, layout: Layout, item: Instance) -> str:
    """Say why an instance cannot lie beside a layout, in the reader's language."""
    names = {"model": table.marketing, "profile": item.profile[:40], "start": item.start}
    try:
        profile = table.profile(item.profile)
    except PlanningError:
        return _("%(model)s has no profile “%(profile)s”.") % names
    starts = [placement.start for placement in profile.placements]
    if item.start not in starts:
        return _("%(profile)s cannot start at memory slice %(start)s, only at %(starts)s.") % {
            **names,
            "starts": ", ".join(map(str, starts)),
        }
    return _("%(item)s does not fit beside %(others)s.") % {
        "item": item,
        "others": ", ".join(map(str, layout)),
    }


def _instances(text: str) -> Iterable[Instance]:
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        profile, at, start = part.partition("@")
        if not at or not start.isdecimal() or len(start) > 2:  # noqa: PLR2004  # digits
            raise WishError(
                _("“%(part)s” is not a placement; one looks like 3g.40gb@4.") % {"part": part[:40]}
            )
        yield Instance(profile, int(start))
