"""What a yes to a request would mean: the tenant's quota, and what has to happen on which GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from gpu.models import Gpu, GpuModel, SliceRequest
from gpu.planning.demands import Fit, FitWhen, Option
from gpu.selectors.fit import fit_wishes
from gpu.selectors.inbox import QuotaImpact, impact_on
from gpu.views.amounts import gib, kind_words
from gpu.views.quotas import QuotaLine, quota_lines
from gpu.views.reasons import reasons_words
from gpu.views.wording import TIMES


@dataclass(frozen=True, slots=True)
class Impact:
    """The answer for one request; `tone` is good, wait, warn or bad.

    `gets` is what would be granted, `changes` what has to be done first, GPU by GPU, `in_the_way`
    who holds what it would take, and `reasons` why it does not fit as things are.
    """

    tone: str
    words: str
    gets: str
    changes: tuple[str, ...]
    in_the_way: tuple[str, ...]
    reasons: tuple[str, ...]
    lines: tuple[QuotaLine, ...]


@dataclass(frozen=True, slots=True)
class _Names:
    """What people call GPUs, by UUID, and models, by product."""

    gpus: Mapping[str, str]
    models: Mapping[str, str]


def impacts_of(rows: Iterable[SliceRequest]) -> dict[int, Impact]:
    """Return the impact of each request by its key; one picture of the cluster for all."""
    listed = list(rows)
    if not listed:
        return {}
    gpus = Gpu.objects.filter(is_present=True).values_list("uuid", "node__name", "index")
    names = _Names(
        gpus={uuid: f"{node} · {index}" for uuid, node, index in gpus},
        models=dict(GpuModel.objects.values_list("product", "name")),
    )
    fits = zip(listed, fit_wishes(listed), strict=True)
    return {row.pk: _impact(row, fit, names) for row, fit in fits}


def _impact(row: SliceRequest, fit: Fit, names: _Names) -> Impact:
    option = fit.option or (fit.later.option if fit.later else None) or fit.disruptive
    memory = option.kind.memory_mib if option else row.memory_mib
    compute = option.kind.compute * row.count if option else None
    quota = impact_on(row.tenant, memory_mib=memory * row.count, compute=compute)
    tone, words = _words(fit, quota)
    return Impact(
        tone=tone,
        words=words,
        gets=_gets(row, option, names) if option else "",
        changes=_changes(fit.option, names),
        in_the_way=_in_the_way(fit, names),
        reasons=() if fit.option else reasons_words(fit.reasons, names.models),
        lines=tuple(quota_lines(quota)),
    )


def _words(fit: Fit, quota: QuotaImpact) -> tuple[str, str]:
    if fit.when is FitWhen.NEVER:
        return "bad", _("This cluster can never give that.")
    if quota.is_exceeded:
        return "bad", _("The quota does not hold this: it would wait for quota.")
    match fit.when:
        case FitWhen.NOW:
            return "good", _("Fits now: it is granted at once.")
        case FitWhen.AFTER_CHANGE:
            return "good", _("Fits after a change that disturbs nobody.")
        case FitWhen.LATER if fit.later:
            at = date_format(localtime(fit.later.at), "SHORT_DATETIME_FORMAT")
            return "wait", _("Waits until slices of others end, about %(time)s.") % {"time": at}
        case _:
            return "warn", _("Waits: it fits only if others make room.")


def _gets(row: SliceRequest, option: Option, names: _Names) -> str:
    kind = option.kind
    words = kind_words(kind, names.models.get(kind.product, kind.product))
    values = {"what": words, "memory": gib(kind.memory_mib)}
    if row.count == 1:
        return _("%(what)s, %(memory)s") % values
    values["what"] = f"{row.count} {TIMES} {words}"
    return _("%(what)s, %(memory)s each") % values


def _changes(option: Option | None, names: _Names) -> tuple[str, ...]:
    found = []
    for change in option.changes if option else ():
        sentence = _("%(gpu)s: create %(made)s")
        if change.plan.destroyed:
            sentence = _("%(gpu)s: destroy %(gone)s, which nobody uses, and create %(made)s")
        values = {
            "gpu": names.gpus.get(change.gpu_uuid, change.gpu_uuid),
            "made": ", ".join(str(item) for item in change.plan.created),
            "gone": ", ".join(str(item) for item in change.plan.destroyed),
        }
        found.append(sentence % values)
    return tuple(found)


def _in_the_way(fit: Fit, names: _Names) -> tuple[str, ...]:
    """Name who holds what would have to go, where; nobody where it is met without."""
    if fit.option is not None or fit.disruptive is None:
        return ()
    found = {
        _("%(holder)s on %(gpu)s")
        % {
            "holder": blocker.holder or _("somebody unknown"),
            "gpu": names.gpus.get(blocker.gpu_uuid, blocker.gpu_uuid),
        }
        for blocker in fit.disruptive.blockers
    }
    return tuple(sorted(found))
