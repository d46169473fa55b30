"""Words that pages need more than once: layouts, durations, amounts of memory."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gpu.models import Gpu
from gpu.selectors.operations import usual_duration_s

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MIB_PER_GIB = 1024
TIMES = "\N{MULTIPLICATION SIGN}"
_TIMES_KEPT = f"\N{NO-BREAK SPACE}{TIMES}\N{NO-BREAK SPACE}"


def profiles_words(profiles: Iterable[str]) -> str:
    """Return `3g.40gb + 4 1g.10gb` with a times sign, in the order of first appearance."""
    counts = Counter(profiles)
    return " + ".join(
        profile if count == 1 else f"{count} {TIMES} {profile}" for profile, count in counts.items()
    )


def layout_words(layout: Mapping[str, Any] | None) -> str:
    """Return a stored layout in words; `unknown` where none has been seen."""
    if layout is None:
        return _("unknown")
    if "sharing" in layout:
        return sharing_words(layout["sharing"])
    if not layout["mig"]:
        return _("whole GPU (MIG off)")
    placed = sorted(layout["instances"], key=lambda item: item[1])
    return profiles_words(profile for profile, _start in placed) or _("MIG on, not cut")


def sharing_words(sharing: Mapping[str, Any]) -> str:
    """Return how a node's resources are shared, in words."""
    if sharing["strategy"] == Gpu.Sharing.NONE:
        return _("not shared")
    parts = [f"{key}{_TIMES_KEPT}{count}" for key, count in sorted(sharing["replicas"].items())]
    return f"{Gpu.Sharing(sharing['strategy']).label}: {', '.join(parts)}"


def duration_words(seconds: float) -> str:
    """Return a duration in its two largest units; below a minute in whole seconds."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return _("%(seconds)d s") % {"seconds": whole}
    if whole < _HOUR:
        return _("%(minutes)d min %(seconds)d s") % {
            "minutes": whole // _MINUTE,
            "seconds": whole % _MINUTE,
        }
    if whole < _DAY:
        return _("%(hours)d h %(minutes)d min") % {
            "hours": whole // _HOUR,
            "minutes": whole % _HOUR // _MINUTE,
        }
    return _("%(days)d d %(hours)d h") % {"days": whole // _DAY, "hours": whole % _DAY // _HOUR}


def gib_words(mib: int | None) -> str:
    """Return an amount of GPU memory in GiB with one decimal; `unknown` for none."""
    if mib is None:
        return _("unknown")
    return _("%(amount)s GiB") % {"amount": number_format(round(mib / _MIB_PER_GIB, 1), 1)}


def pods_words(count: int) -> str:
    """Return `1 Pod`, `2 Pods`."""
    return ngettext("%(count)d Pod", "%(count)d Pods", count) % {"count": count}


def usual_words() -> str:
    """Return how long changes take here, as measured; empty before the first."""
    seconds = usual_duration_s()
    return "" if seconds is None else duration_words(seconds)
