"""Amounts in the reader's words: GiB as the driver counts, and parts of a GPU's compute."""

from decimal import Decimal

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from gpu.planning.demands import Kind

_MIB_PER_GIB = 1024
_WHOLE = 7000
_HUNDRED = 100


def gib_text(mib: int) -> str:
    """Return GiB for a form field: a point, two decimals at most, never more than there is."""
    hundredths = mib * _HUNDRED // _MIB_PER_GIB
    return f"{hundredths / _HUNDRED:.2f}".rstrip("0").rstrip(".")


def gib(mib: int) -> str:
    """Return `9.5 GiB` in the reader's language; two decimals at most, never rounded up."""
    amount = number_format(Decimal(gib_text(mib)), force_grouping=True)
    return _("%(amount)s GiB") % {"amount": amount}


def sevenths(compute: int) -> str:
    """Return thousandths of a seventh of a GPU as sevenths, two decimals at most: `1.75`."""
    hundredths = compute // 10
    text = f"{hundredths / _HUNDRED:.2f}".rstrip("0").rstrip(".")
    return number_format(Decimal(text), force_grouping=True)


def compute_words(compute: int) -> str:
    """Return how much of a GPU's compute that is, plainly."""
    if compute == _WHOLE:
        return _("all 7 of 7 parts of the compute")
    return _("%(parts)s of 7 parts of the compute") % {"parts": sevenths(compute)}


def kind_words(kind: Kind, model: str) -> str:
    """Return what a kind is, by its profile or its share, and on which model."""
    if kind.profile is not None:
        return _("%(profile)s on %(model)s") % {"profile": kind.profile, "model": model}
    if kind.replicas > 1:
        return _("share of one %(model)s, 1 of %(shares)d") % {
            "shares": kind.replicas,
            "model": model,
        }
    return _("whole %(model)s") % {"model": model}
