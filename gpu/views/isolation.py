"""The three kinds of slices in plain words: what each gives, and what it does not."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from gpu.models import Offering
from gpu.models.requests import Isolation

type Text = str | Promise


@dataclass(frozen=True, slots=True)
class Honesty:
    """What a kind of isolation is called, what one gets, and what one does not get.

    `word` is its name within a sentence; `in_short` says in a line or two what is not given, and
    `lacks` point by point.
    """

    title: Text
    word: Text
    gives: Text
    in_short: Text
    lacks: tuple[Text, ...]


HONESTY = {
    Isolation.ISOLATED: Honesty(
        _("Isolated slice (MIG)"),
        _("isolated"),
        _(
            "A part of a GPU that is cut off in hardware: its memory and its compute are yours"
            " alone, and what neighbours do wrong does not reach you."
        ),
        _(
            "Not given: NVLink or peer-to-peer between slices, graphics, and a power and clock of"
            " its own."
        ),
        (
            _("Power, clock and the path to the host are shared with the rest of the GPU."),
            _("No NVLink and no peer-to-peer: several slices do not work as one larger GPU."),
            _("Graphics does not run in it, only compute."),
        ),
    ),
    Isolation.SHARED: Honesty(
        _("Share of a GPU"),
        _("shared"),
        _("A turn on a GPU that others use at the same time. Good for notebooks and small tests."),
        _(
            "Not given: memory of its own (a neighbour can fill it), a steady speed, and safety"
            " from a neighbour's crash. A share is not a GPU: use one share a Pod."
        ),
        (
            _(
                "Memory is not kept apart: a neighbour can fill it, and your program then fails"
                " with “out of memory”."
            ),
            _("Speed is not promised: the more neighbours work, the slower you are."),
            _("Faults are not kept apart: what crashes the GPU stops everybody on it."),
            _("A share is not a GPU: two shares may be the same GPU, so use one share a Pod."),
        ),
    ),
    Isolation.WHOLE: Honesty(
        _("Whole GPU"),
        _("whole GPU"),
        _("One GPU with all its memory and compute for you alone."),
        _(
            "Not given: CPU, disk and network of its own. It counts in full against the quota and"
            " usually waits longest."
        ),
        (
            _("CPU, disk and network of the node are still shared with its other users."),
            _("It counts in full against your tenant's quota, and it usually waits longest."),
        ),
    ),
}


def honesty_of(isolation: str) -> Honesty:
    """Return the plain words for one kind of isolation."""
    return HONESTY[Isolation(isolation)]


def offering_name(offering: Offering) -> str:
    """Return what the admins call an offering, in the reader's language where they said so."""
    is_chinese = (get_language() or "").startswith("zh")
    return (is_chinese and offering.name_zh) or offering.name
