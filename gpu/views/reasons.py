"""Why a request is not met now, as sentences for the person who asked.

Other people's Pods and tenants are counted here, never named.
"""

from collections.abc import Iterable, Mapping

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext_lazy

from gpu.models import SliceRequest
from gpu.planning.demands import FitReason, Reason

_SENTENCES = {
    FitReason.NO_SUCH_PRODUCT: gettext_noop("The cluster has no GPU of the models allowed here."),
    FitReason.NO_GPU: gettext_noop("No GPU of the cluster has been read yet."),
    FitReason.NOT_MIG_CAPABLE: gettext_noop("%(model)s cannot be cut into isolated slices (MIG)."),
    FitReason.PROFILE_UNKNOWN: gettext_noop("%(model)s has no such profile."),
    FitReason.MEMORY_TOO_LARGE: gettext_noop("No slice of %(model)s holds that much memory."),
    FitReason.TABLE_UNKNOWN: gettext_noop(
        "How %(model)s can be cut has not been read from a node yet."
    ),
    FitReason.MEMORY_UNKNOWN: gettext_noop(
        "How much memory slices of %(model)s hold is not known yet."
    ),
    FitReason.NOT_SHARED: gettext_noop("No %(model)s is shared."),
    FitReason.TOO_MANY: gettext_noop(
        "There are not so many of %(model)s, even if they were all free."
    ),
}
_COUNTED = {
    FitReason.NODE_TOO_SMALL: ngettext_lazy(
        "%(gpus)d %(model)s GPU is on a node with too little CPU, memory or disk.",
        "%(gpus)d %(model)s GPUs are on nodes with too little CPU, memory or disk.",
        "gpus",
    ),
    FitReason.OUT_OF_SERVICE: ngettext_lazy(
        "%(gpus)d %(model)s GPU is out of service.",
        "%(gpus)d %(model)s GPUs are out of service.",
        "gpus",
    ),
    FitReason.NODE_NOT_READY: ngettext_lazy(
        "%(gpus)d %(model)s GPU is on a node that does not answer.",
        "%(gpus)d %(model)s GPUs are on nodes that do not answer.",
        "gpus",
    ),
    FitReason.NODE_CORDONED: ngettext_lazy(
        "%(gpus)d %(model)s GPU is on a node that takes no new work.",
        "%(gpus)d %(model)s GPUs are on nodes that take no new work.",
        "gpus",
    ),
    FitReason.CHANGING: ngettext_lazy(
        "%(gpus)d %(model)s GPU is being changed, or another GPU of its node.",
        "%(gpus)d %(model)s GPUs are being changed, or another GPU of their node.",
        "gpus",
    ),
    FitReason.GPU_SHARED: ngettext_lazy(
        "%(gpus)d %(model)s GPU is given out as shares.",
        "%(gpus)d %(model)s GPUs are given out as shares.",
        "gpus",
    ),
    FitReason.FULL: ngettext_lazy(
        "%(gpus)d %(model)s GPU is in use.",
        "%(gpus)d %(model)s GPUs are in use.",
        "gpus",
    ),
    FitReason.FRAGMENTED: ngettext_lazy(
        "%(gpus)d %(model)s GPU has free parts, but none in one piece that is enough.",
        "%(gpus)d %(model)s GPUs have free parts, but none in one piece that is enough.",
        "gpus",
    ),
    FitReason.NODE_FULL: ngettext_lazy(
        "%(gpus)d %(model)s GPU is on a node without CPU, memory or disk left for it.",
        "%(gpus)d %(model)s GPUs are on nodes without CPU, memory or disk left for it.",
        "gpus",
    ),
    FitReason.NEEDS_CHANGE: ngettext_lazy(
        "%(gpus)d %(model)s GPU has to be cut first.",
        "%(gpus)d %(model)s GPUs have to be cut first.",
        "gpus",
    ),
}
_WAITING = {
    "quota": gettext_noop(
        "Your tenant's quota does not hold this now. It goes on as soon as the tenant gives"
        " something back, or an admin raises the quota."
    ),
    "no_room": gettext_noop("Others were faster just now; the next look comes within a minute."),
    "never": gettext_noop("The cluster cannot give this at all. Withdraw it and ask for less."),
    "change_failed": gettext_noop(
        "The change of a GPU that was made for you did not work out. Another way is looked for;"
        " the admins see what happened."
    ),
    "cluster": gettext_noop("The cluster does not answer at the moment; it is tried again."),
    "frozen": gettext_noop(
        "The GPU for it has to be changed first, and the admins let no change start for now. It"
        " goes on by itself when they do."
    ),
    "quota_not_kept": gettext_noop(
        "The cluster does not keep to the quota of your namespace yet; an admin has to look at it."
    ),
}


def reason_words(reason: Reason, models: Mapping[str, str]) -> str:
    """Return one reason as a sentence; `models` are names by GPU product."""
    values = {"model": models.get(reason.product, reason.product), "gpus": reason.gpus}
    if reason.code in _COUNTED:
        return str(_COUNTED[reason.code] % values)
    return _(_SENTENCES[reason.code]) % values


def reasons_words(reasons: Iterable[Reason], models: Mapping[str, str]) -> tuple[str, ...]:
    """Return the reasons as sentences, each once, in their order."""
    return tuple(dict.fromkeys(reason_words(reason, models) for reason in reasons))


def waiting_words(slice_request: SliceRequest, models: Mapping[str, str]) -> tuple[str, ...]:
    """Return why a request waits, as the worker that looked last wrote it down."""
    found: list[str] = []
    if slice_request.waiting_reason in _WAITING:
        found.append(_(_WAITING[slice_request.waiting_reason]))
    stored = slice_request.waiting_detail.get("reasons", ())
    known = [Reason(FitReason(code), product, gpus) for code, product, gpus in stored]
    return (*found, *reasons_words(known, models))
