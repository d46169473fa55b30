"""What a yes to a request would mean: the tenant's quota, and what has to happen on which GPU."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.formats import localize
from django.utils.translation import gettext as _

from gpu.models import Gpu, SliceRequest
from gpu.planning.demands import Fit, FitWhen, Option
from gpu.selectors.fit import fit_wish
from gpu.selectors.inbox import Meter, QuotaImpact, impact_on
from gpu.selectors.snapshot import cluster_snapshot
from gpu.views.wording import gib_words

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class MeterLine:
    """A line of the quota: its words before and after, and its bar in percent."""

    label: str
    words: str
    before_percent: int
    added_percent: int
    is_exceeded: bool


@dataclass(frozen=True, slots=True)
class Impact:
    """The answer for one request; `tone` is good, wait, warn or bad."""

    tone: str
    words: str
    what: str
    changes: tuple[str, ...]
    in_the_way: tuple[str, ...]
    quota: QuotaImpact
    lines: tuple[MeterLine, ...]


def impacts_of(rows: Iterable[SliceRequest]) -> dict[int, Impact]:
    """Return the impact of each request by its key; one picture of the cluster for all."""
    listed = list(rows)
    if not listed:
        return {}
    snapshot = cluster_snapshot()
    names = {
        uuid: f"{node} · {index}"
        for uuid, node, index in Gpu.objects.filter(is_present=True).values_list(
            "uuid", "node__name", "index"
        )
    }
    return {row.pk: _impact(row, fit_wish(row, snapshot), names) for row in listed}


def _impact(row: SliceRequest, fit: Fit, names: dict[str, str]) -> Impact:
    option = fit.option or (fit.later.option if fit.later else None) or fit.disruptive
    memory = option.kind.memory_mib if option else row.memory_mib
    compute = option.kind.compute * row.count if option else None
    quota = impact_on(row.tenant, memory_mib=memory * row.count, compute=compute)
    tone, words = _words(fit, quota)
    return Impact(
        tone=tone,
        words=words,
        what=_what(row, option),
        changes=_changes(fit.option, names),
        in_the_way=_in_the_way(fit),
        quota=quota,
        lines=tuple(_lines(quota)),
    )


def _words(fit: Fit, quota: QuotaImpact) -> tuple[str, str]:
    if quota.is_exceeded:
        return "bad", _("The tenant's quota does not hold this; it would wait for quota.")
    match fit.when:
        case FitWhen.NOW:
            return "good", _("Fits now; granted at once.")
        case FitWhen.AFTER_CHANGE:
            return "good", _("Fits after a change that is in nobody's way.")
        case FitWhen.LATER:
            return "wait", _("Waits until somebody's slice ends.")
        case FitWhen.AFTER_DISRUPTION:
            return "warn", _("Fits only if others make room; it would wait.")
        case FitWhen.NEVER:
            return "bad", _("Can never fit this cluster.")


def _what(row: SliceRequest, option: Option | None) -> str:
    if option is None:
        return ""
    name = option.kind.profile or option.kind.resource_name
    return _("%(count)d of %(what)s on %(product)s, %(memory)s each") % {
        "count": row.count,
        "what": name,
        "product": option.kind.product.removeprefix("NVIDIA-"),
        "memory": gib_words(option.kind.memory_mib),
    }


def _changes(option: Option | None, names: dict[str, str]) -> tuple[str, ...]:
    found = []
    for change in option.changes if option else ():
        made = ", ".join(str(item) for item in change.plan.created)
        gpu = names.get(change.gpu_uuid, change.gpu_uuid)
        sentence = _("%(gpu)s: create %(made)s")
        if change.plan.destroyed:
            sentence = _("%(gpu)s: destroy %(gone)s, which nobody uses, and create %(made)s")
        gone = ", ".join(str(item) for item in change.plan.destroyed)
        found.append(sentence % {"gpu": gpu, "made": made, "gone": gone})
    return tuple(found)


def _in_the_way(fit: Fit) -> tuple[str, ...]:
    if fit.option is not None or fit.disruptive is None:
        return ()
    names = {blocker.holder or _("unknown") for blocker in fit.disruptive.blockers}
    return tuple(sorted(names))


def _lines(quota: QuotaImpact) -> Iterable[MeterLine]:
    memory = quota.memory
    words = [gib_words(value) for value in (memory.before, memory.after, memory.limit)]
    yield _line(_("GPU memory"), memory, words)
    if quota.compute is not None:
        compute = quota.compute
        words = [_sevenths(v) for v in (compute.before, compute.after, compute.limit)]
        yield _line(_("Compute, in sevenths of a GPU"), compute, words)


def _line(label: str, meter: Meter, words: list[str]) -> MeterLine:
    before, after, limit = words
    sentence = _("%(before)s → %(after)s of %(limit)s")
    return MeterLine(
        label,
        sentence % {"before": before, "after": after, "limit": limit},
        meter.before_percent,
        max(0, meter.added_percent),
        meter.is_exceeded,
    )


def _sevenths(value: int) -> str:
    return str(localize(round(value / _MILLI, 2)))
