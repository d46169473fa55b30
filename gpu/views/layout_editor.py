"""What the layout editor offers: every legal placement, and why some do not fit now."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gpu.planning.arrangements import best_arrangement
from gpu.planning.geometry import (
    Geometry,
    Instance,
    Layout,
    Load,
    Shape,
    Slot,
    geometry,
    layout_of,
    load_of,
    may_add,
)
from gpu.planning.layouts import presets
from gpu.planning.tables import GpuTable
from gpu.selectors.occupancy import GpuOccupancy, Hold, Use
from gpu.views.layout_wish import Wish
from gpu.views.wording import TIMES, gib_words

_SEVENTH = 7


@dataclass(frozen=True, slots=True)
class Choice:
    """One legal placement: wanted or not, and what a click makes of the layout.

    `layout` is the layout after the click, None where a click is refused; then `reason` says why.
    """

    profile: str
    start: int
    size: int
    is_wanted: bool
    is_there: bool
    layout: str | None
    reason: str = ""

    @property
    def name(self) -> str:
        """Return `3g.40gb@4`."""
        return f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """A profile of the model with all its placements."""

    profile: str
    memory: str
    compute: str
    size: int
    wanted: int
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class PresetChoice:
    """A layout that one click asks for; instances in use stay in it."""

    label: str
    layout: str
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Editor:
    """All that the editor shows besides the preview."""

    memory_slices: int
    lines: tuple[ProfileLine, ...]
    presets: tuple[PresetChoice, ...]
    in_use: tuple[str, ...]

    @property
    def slice_numbers(self) -> range:
        """Return the numbers of the memory slices, for the head of the columns."""
        return range(self.memory_slices)


def held_instances(seen: GpuOccupancy) -> dict[Instance, Hold]:
    """Return the instances that somebody has, or may have, a Pod on."""
    return {
        Instance(item.instance.profile, item.instance.start): item.hold
        for item in seen.instances
        if item.hold.use in {Use.IN_USE, Use.UNKNOWN}
    }


def build_editor(seen: GpuOccupancy, table: GpuTable, wish: Wish, *, is_unlocked: bool) -> Editor:
    """Return what may be added to and taken from a wish; instances in use only when unlocked."""
    shapes = geometry(table)
    there = {Instance(i.instance.profile, i.instance.start) for i in seen.instances}
    held = held_instances(seen)
    locked = {} if is_unlocked else held
    bench = _Bench(shapes, wish, load_of(shapes, wish.layout), there, locked)
    memory = {profile.name: profile.memory_mib for profile in table.profiles}
    lines = tuple(
        ProfileLine(
            profile=shape.name,
            memory=gib_words(memory[shape.name]),
            compute=_compute_words(shape.compute, shapes.compute_slices),
            size=shape.size,
            wanted=sum(1 for item in wish.layout if item.profile == shape.name),
            choices=tuple(bench.choice(shape, slot) for slot in shape.slots),
        )
        for shape in shapes.shapes
    )
    fixed = layout_of(item for item in there if item in locked)
    return Editor(
        memory_slices=shapes.memory_slices,
        lines=lines,
        presets=tuple(_presets(table, fixed, wish)),
        in_use=tuple(str(item) for item in sorted(held, key=lambda item: item.start)),
    )


@dataclass(frozen=True, slots=True)
class _Bench:
    shapes: Geometry
    wish: Wish
    load: Load
    there: set[Instance]
    locked: dict[Instance, Hold]

    def choice(self, shape: Shape, slot: Slot) -> Choice:
        """Return what a click on one placement does, or why it does nothing."""
        item = slot.instance
        is_wanted = item in self.wish.layout
        if is_wanted:
            hold = self.locked.get(item)
            layout = None if hold else self.wish.without(item).text
            reason = locked_words(hold) if hold else ""
        else:
            reason = self._refusal(shape, slot)
            layout = None if reason else self.wish.with_instance(item).text
        return Choice(
            profile=item.profile,
            start=item.start,
            size=shape.size,
            is_wanted=is_wanted,
            is_there=item in self.there,
            layout=layout,
            reason=reason,
        )

    def _refusal(self, shape: Shape, slot: Slot) -> str:
        others = [o for o in self.wish.layout if self.shapes.slot_of(o)[1].mask & slot.mask]
        if others:
            return _("overlaps %(others)s") % {"others": ", ".join(map(str, others))}
        if may_add(self.shapes, self.load, shape):
            return ""
        if self.load.counts[shape.index] >= shape.limit:
            return ngettext(
                "a GPU of this model holds at most %(count)d of these",
                "a GPU of this model holds at most %(count)d of these",
                shape.limit,
            ) % {"count": shape.limit}
        return _("the other instances leave no media engine for it")


def locked_words(hold: Hold) -> str:
    """Return why an instance stays where it is."""
    names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in hold.pods)
    if hold.use == Use.UNKNOWN:
        return _("may be in use by %(pods)s") % {"pods": names}
    return _("in use by %(pods)s") % {"pods": names}


def _presets(table: GpuTable, fixed: Layout, wish: Wish) -> Iterable[PresetChoice]:
    shapes = geometry(table)
    for shape in shapes.shapes:
        if not shape.name.endswith("gb"):
            continue  # attributes such as +me are for a single instance, not for a whole GPU
        count, layout = _as_many(table, fixed, shape)
        if layout is not None:
            yield _preset(f"{count} {TIMES} {shape.name}", layout, wish)
    balanced = next((p for p in presets(table) if p.name == "all-balanced"), None)
    if balanced is not None and not fixed:
        yield _preset(_("balanced"), balanced.layout, wish)
    yield _preset(_("all free slices uncut") if fixed else _("empty"), fixed, wish)
    if not fixed:
        yield PresetChoice(_("MIG off"), "off", is_wanted=not wish.is_mig_on)


def _as_many(table: GpuTable, fixed: Layout, shape: Shape) -> tuple[int, Layout | None]:
    """Return the most instances of a profile beside `fixed`, and where they lie."""
    for count in range(len(shape.slots), 0, -1):
        layout = best_arrangement(table, fixed, Counter({shape.name: count}))
        if layout is not None:
            return count, layout
    return 0, None


def _preset(label: str, layout: Layout, wish: Wish) -> PresetChoice:
    is_wanted = wish.is_mig_on and set(wish.layout) == set(layout)
    return PresetChoice(label, Wish(is_mig_on=True, layout=layout).text, is_wanted=is_wanted)


def _compute_words(compute: int, total: int) -> str:
    return _("%(part)d of %(all)d compute slices") % {"part": compute, "all": total}
