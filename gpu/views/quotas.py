"""A tenant's quota as lines with a bar: what is granted, what this would add, and the limit."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from gpu.selectors.inbox import Meter, QuotaImpact
from gpu.views.amounts import gib, sevenths

WIDTH = 1000


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One amount in words, and a bar of `WIDTH`: first what is granted, then what is added."""

    label: str
    words: str
    first: int
    second: int
    is_over: bool


def quota_lines(quota: QuotaImpact) -> list[QuotaLine]:
    """Return the lines for memory and, where it is known, for compute."""
    lines = [_line(_("GPU memory"), quota.memory, [gib(amount) for amount in _of(quota.memory)])]
    if quota.compute is not None:
        said = [sevenths(amount) for amount in _of(quota.compute)]
        lines.append(_line(_("Compute, in sevenths of a GPU"), quota.compute, said))
    return lines


def _of(meter: Meter) -> tuple[int, int, int]:
    return meter.before, meter.after, meter.limit


def _line(label: str, meter: Meter, said: list[str]) -> QuotaLine:
    before, after, limit = said
    values = {"before": before, "after": after, "limit": limit}
    words = _("%(before)s of %(limit)s") % values
    if meter.after != meter.before:
        words = _("%(before)s → %(after)s of %(limit)s") % values
    whole = max(meter.limit, meter.after, 1)
    first = WIDTH * meter.before // whole
    return QuotaLine(
        label=label,
        words=words,
        first=first,
        second=WIDTH * meter.after // whole - first,
        is_over=meter.is_exceeded,
    )
