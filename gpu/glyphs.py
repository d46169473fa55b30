"""The GPU glyph's facts: what is drawn, and the same in words for ears, tips and tables.

Nothing here reads the database or draws; `gpu.selectors.glyphs` fills it, the tag `gpu_glyph`
draws it. The words follow the language that is active when they are asked for.
"""

from dataclasses import dataclass
from enum import StrEnum

from django.utils.translation import gettext as _
from django.utils.translation import ngettext


class Kind(StrEnum):
    """How a GPU is handed out."""

    MIG = "mig"
    SHARES = "shares"
    WHOLE = "whole"


class SegmentState(StrEnum):
    """What is drawn for one piece of a GPU; each has a fill or outline of its own."""

    IN_USE = "in_use"
    GRANTED_IDLE = "granted_idle"
    FREE_INSTANCE = "free_instance"
    UNCUT = "uncut"
    UNREACHABLE = "unreachable"
    CHANGING = "changing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of a GPU: an instance, uncut slices, a share, or the whole.

    `start` and `size` count memory slices, or shares. `palette` is the tenant's colour, 0 to 11.
    `note` says what the picture cannot: the Pods, the step of a change, why a slice is lost.
    """

    start: int
    size: int
    state: SegmentState
    profile: str = ""
    holder: str = ""
    palette: int | None = None
    memory: str = ""
    note: str = ""

    @property
    def short_name(self) -> str:
        """Return what of the profile's name is left where there is little room: `3g`, `1g`."""
        return self.profile.partition(".")[0]

    @property
    def name_rest(self) -> str:
        """Return the part of the profile's name that may be left out: `.71gb`."""
        return self.profile.removeprefix(self.short_name)

    @property
    def place(self) -> str:
        """Return `slice 6` or `slices 0 to 3`."""
        if self.size == 1:
            return _("slice %(number)d") % {"number": self.start}
        last = self.start + self.size - 1
        return _("slices %(first)d to %(last)d") % {"first": self.start, "last": last}

    @property
    def state_words(self) -> str:
        """Return the state in a few words, without the holder."""
        return {
            SegmentState.IN_USE: _("in use"),
            SegmentState.GRANTED_IDLE: _("granted, no Pod on it"),
            SegmentState.FREE_INSTANCE: _("free"),
            SegmentState.UNCUT: _("free, not cut"),
            SegmentState.UNREACHABLE: _("out of reach of every legal instance"),
            SegmentState.CHANGING: _("changing"),
            SegmentState.UNKNOWN: _("holder unknown"),
        }[self.state]

    @property
    def held_words(self) -> str:
        """Return the state with its holder and note: `in use by Team Vision (train-7f)`."""
        words = self.state_words
        if self.holder and self.state == SegmentState.IN_USE:
            words = _("in use by %(holder)s") % {"holder": self.holder}
        elif self.holder and self.state == SegmentState.GRANTED_IDLE:
            words = _("granted to %(holder)s, no Pod on it") % {"holder": self.holder}
        if not self.note:
            return words
        return _("%(words)s (%(note)s)") % {"words": words, "note": self.note}


@dataclass(frozen=True, slots=True)
class GlyphGpu:
    """One GPU as the glyph shows it.

    `slices` are the memory slices of a MIG layout, or the number of shares. `stale_words` is the
    age of what is known, set only when that is too old; `change_words` names the step of a change
    that is under way. `isolation_words` says what shares do not keep apart.
    """

    label: str
    kind: Kind
    slices: int
    segments: tuple[Segment, ...]
    is_mig_capable: bool = True
    is_in_service: bool = True
    service_note: str = ""
    sharing_words: str = ""
    isolation_words: str = ""
    stale_words: str = ""
    change_words: str = ""
    url: str = ""

    @property
    def caption(self) -> str:
        """Return the one line that stands beside the bar."""
        if self.stale_words:
            return _("not seen for %(age)s") % {"age": self.stale_words}
        if not self.is_in_service:
            return _("out of service")
        if self.change_words:
            return self.change_words
        match self.kind:
            case Kind.MIG:
                return self._mig_caption()
            case Kind.SHARES:
                return self._shares_caption()
            case Kind.WHOLE:
                return _("MIG off") if self.is_mig_capable else _("cannot do MIG")

    @property
    def facts(self) -> tuple[str, ...]:
        """Return one clause for each segment, in the order of the bar."""
        return tuple(self._fact(segment) for segment in self.segments)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what holds of the whole GPU: caption, missing isolation, why out of service."""
        found = [self.caption, self.isolation_words]
        if not self.is_in_service:
            found += [_("out of service"), self.service_note]
        return tuple(dict.fromkeys(words for words in found if words))

    @property
    def sentence(self) -> str:
        """Return everything in one sentence: the glyph's accessible name."""
        separator = _("; ")
        clauses = separator.join((*self.remarks, *self.facts))
        return _("%(gpu)s: %(clauses)s.") % {"gpu": self.label, "clauses": clauses}

    @property
    def tip(self) -> str:
        """Return the same in lines, the name first."""
        return "\n".join((self.label, *self.remarks, *self.facts))

    def _mig_caption(self) -> str:
        free = sum(s.size for s in self.segments if s.state == SegmentState.UNCUT)
        instances = sum(1 for s in self.segments if s.state == SegmentState.FREE_INSTANCE)
        parts = []
        if instances:
            parts.append(
                ngettext("%(count)d instance free", "%(count)d instances free", instances)
                % {"count": instances}
            )
        if free:
            parts.append(
                ngettext("%(count)d slice not cut", "%(count)d slices not cut", free)
                % {"count": free}
            )
        separator = _(", ")
        return separator.join(["MIG", *(parts or [_("no slice free")])])

    def _shares_caption(self) -> str:
        used = sum(1 for s in self.segments if s.state == SegmentState.IN_USE)
        return _("%(sharing)s, %(used)d of %(count)d in use") % {
            "sharing": self.sharing_words,
            "used": used,
            "count": self.slices,
        }

    def _fact(self, segment: Segment) -> str:
        words = {"subject": self._subject(segment), "words": segment.held_words}
        return _("%(subject)s %(words)s") % words

    def _subject(self, segment: Segment) -> str:
        if self.kind == Kind.SHARES:
            return _("share %(number)d") % {"number": segment.start + 1}
        if self.kind == Kind.WHOLE:
            return _("whole GPU")
        if segment.profile:
            return _("%(profile)s at %(place)s") % {
                "profile": segment.profile,
                "place": segment.place,
            }
        return segment.place
