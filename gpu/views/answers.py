"""The answer to a wish: when it can be had, as what, what it costs, and what else there is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from gpu.models import Offering
from gpu.planning.demands import Confidence, CounterOffer, Fit, FitWhen, OfferKind, Option
from gpu.selectors.fit import WishLike
from gpu.selectors.inbox import QuotaImpact, impact_on
from gpu.selectors.offerings import Offered
from gpu.views.amounts import compute_words, gib, gib_text, kind_words
from gpu.views.isolation import honesty_of
from gpu.views.reasons import reasons_words
from gpu.views.wording import TIMES, duration_words
from tenants.models import Tenant

CONFIDENCE = {
    Confidence.HIGH: gettext_lazy("high confidence"),
    Confidence.MEDIUM: gettext_lazy("medium confidence"),
    Confidence.LOW: gettext_lazy("low confidence"),
}
_CODES = {
    FitWhen.NOW: "now",
    FitWhen.AFTER_CHANGE: "after_change",
    FitWhen.LATER: "later",
    FitWhen.AFTER_DISRUPTION: "later",
    FitWhen.NEVER: "never",
}
_TONES = {"now": "good", "after_change": "good", "later": "warn", "never": "bad"}
_NEAR = 0.9


@dataclass(frozen=True, slots=True)
class Fill:
    """Another wish, ready to fill the form: values of its fields by name."""

    label: str
    what: str
    fields: Mapping[str, str]

    @property
    def value(self) -> str:
        """Return the fields as one value of a button."""
        return "|".join(f"{name}={text}" for name, text in self.fields.items())


@dataclass(frozen=True, slots=True)
class Answer:
    """What the page says about a wish; `code` is now, after_change, later or never."""

    code: str
    headline: str
    gets: str = ""
    gpus: int = 1
    neighbours: str = ""
    change: str = ""
    at: datetime | None = None
    confidence: str = ""
    reasons: tuple[str, ...] = ()
    near: Fill | None = None
    offers: tuple[Fill, ...] = ()
    quota: QuotaImpact | None = None
    quota_problem: str = ""
    needs_approval: bool = False

    @property
    def tone(self) -> str:
        """Return how the answer looks: good, warn or bad; the words say it too."""
        return _TONES[self.code]

    @property
    def is_hopeless(self) -> bool:
        """Say whether asking for it would be waiting in vain."""
        return self.code == "never" or bool(self.quota_problem)


@dataclass(frozen=True, slots=True)
class Market:
    """What can be had at all, and the names of the models: what answers are phrased with."""

    offered: Sequence[Offered]
    models: Mapping[str, str]
    usual_change_s: float | None = None


def answer_of(fit: Fit, wish: WishLike, market: Market, *, tenant: Tenant | None) -> Answer:
    """Put planning's answer into words; with a tenant also what it does to the quota."""
    option = fit.option or (fit.later.option if fit.later else None) or fit.disruptive
    code = _CODES[fit.when]
    quota = _quota(tenant, wish, option)
    return Answer(
        code=code,
        headline=_headline(fit),
        gets=_gets(option, wish.count, market.models) if option else "",
        gpus=len({site.gpu_uuid for site in option.sites}) if option else 1,
        neighbours=_neighbours(option) if option else "",
        change=_change(fit.option, market) if fit.when is FitWhen.AFTER_CHANGE else "",
        at=fit.later.at if fit.when is FitWhen.LATER and fit.later else None,
        confidence=str(CONFIDENCE[fit.later.confidence]) if fit.later else "",
        reasons=() if code == "now" else reasons_words(fit.reasons, market.models),
        near=_near(wish, option, market),
        offers=tuple(
            _fill(offer, wish, market.models)
            for offer in fit.counter_offers
            if _is_offered(offer, wish, market)
        ),
        quota=quota,
        quota_problem=_quota_problem(quota, tenant),
        needs_approval=wish.offering.needs_approval,
    )


def amount_words(count: int, memory_mib: int, isolation: str) -> str:
    """Return a wish in a few words, such as `20 GiB, isolated`."""
    size = gib(memory_mib)
    amount = size if count == 1 else f"{count} {TIMES} {size}"
    return _("%(amount)s, %(kind)s") % {
        "amount": amount,
        "kind": str(honesty_of(isolation).word),
    }


def fields_of(wish: WishLike) -> dict[str, str]:
    """Return a wish as values of the form's fields."""
    return {
        "isolation": wish.offering.isolation,
        "memory": gib_text(wish.memory_mib),
        "count": str(wish.count),
        "gpu_model": wish.gpu_model.product if wish.gpu_model else "",
    }


def _headline(fit: Fit) -> str:
    match fit.when:
        case FitWhen.NOW:
            return _("You can have this now.")
        case FitWhen.AFTER_CHANGE:
            return _("You can have this after a change that disturbs nobody.")
        case FitWhen.LATER | FitWhen.AFTER_DISRUPTION:
            return _("Not now: it would wait for room.")
        case FitWhen.NEVER:
            return _("This cluster cannot give that.")


def _gets(option: Option, count: int, models: Mapping[str, str]) -> str:
    kind = option.kind
    what = kind_words(kind, models.get(kind.product, kind.product))
    values = {
        "count": count,
        "times": TIMES,
        "what": what,
        "memory": gib(kind.memory_mib),
        "compute": compute_words(kind.compute),
    }
    if count == 1:
        return _("%(what)s: %(memory)s, %(compute)s.") % values
    return _("%(count)d %(times)s %(what)s: %(memory)s and %(compute)s each.") % values


def _neighbours(option: Option) -> str:
    others = option.kind.replicas - 1
    if others < 1:
        return ""
    return ngettext(
        "You share the GPU with up to %(others)d neighbour; memory is not kept apart.",
        "You share the GPU with up to %(others)d neighbours; memory is not kept apart.",
        others,
    ) % {"others": others}


def _change(option: Option | None, market: Market) -> str:
    if option is None or not option.changes:
        return ""
    nodes = ", ".join(sorted({change.node for change in option.changes}))
    count = len(option.changes)
    values = {"count": count, "nodes": nodes}
    words = ngettext(
        "%(count)d GPU on %(nodes)s is cut for it first. All Pods that run there go on running;"
        " only new ones wait until it is done, and the admins see the change.",
        "%(count)d GPUs on %(nodes)s are cut for it first. All Pods that run there go on running;"
        " only new ones wait until it is done, and the admins see the change.",
        count,
    )
    usual = market.usual_change_s
    if usual is None:
        return words % values
    took = _("The last changes took about %(time)s.") % {"time": duration_words(usual)}
    return f"{words % values} {took}"


def _near(wish: WishLike, option: Option | None, market: Market) -> Fill | None:
    """Return the real size just below what is asked, when that would take much less."""
    asked = wish.memory_mib
    sizes = [
        kind.memory_mib
        for item in market.offered
        if item.offering.isolation == wish.offering.isolation
        for kind in item.kinds
        if wish.gpu_model is None or kind.product == wish.gpu_model.product
    ]
    below = max((size for size in sizes if _NEAR * asked <= size < asked), default=None)
    if below is None or (option is not None and option.kind.memory_mib * _NEAR <= asked):
        return None
    return Fill(
        label=_("Ask for %(memory)s") % {"memory": gib(below)},
        what=_("%(memory)s is a real size here: a smaller slice does if you can do with that.")
        % {"memory": gib(below)},
        fields={**fields_of(wish), "memory": gib_text(below)},
    )


def _is_offered(offer: CounterOffer, wish: WishLike, market: Market) -> bool:
    """Say whether an offer may be asked for: planning knows neither offerings nor their limits."""
    if offer.kind is OfferKind.OTHER_PRODUCT and wish.gpu_model is None:
        return False
    offering = _offering_for(offer, market)
    if offering is None or offer.demand.count > offering.max_count:
        return False
    allowed = {model.product for model in offering.gpu_models.all()}
    return not allowed or offer.option.kind.product in allowed


def _offering_for(offer: CounterOffer, market: Market) -> Offering | None:
    for item in market.offered:
        if item.offering.isolation == offer.demand.isolation:
            return item.offering
    return None


def _fill(offer: CounterOffer, wish: WishLike, models: Mapping[str, str]) -> Fill:
    demand, option = offer.demand, offer.option
    keeps_model = wish.gpu_model is not None and offer.kind is not OfferKind.OTHER_PRODUCT
    when = _("now") if option.when is FitWhen.NOW else _("after a harmless change")
    label = _("%(amount)s: %(when)s") % {
        "amount": amount_words(demand.count, demand.memory_mib, demand.isolation),
        "when": when,
    }
    return Fill(
        label=label,
        what=_gets(option, demand.count, models),
        fields={
            "isolation": demand.isolation.value,
            "memory": gib_text(demand.memory_mib),
            "count": str(demand.count),
            "gpu_model": wish.gpu_model.product if keeps_model and wish.gpu_model else "",
        },
    )


def _quota(tenant: Tenant | None, wish: WishLike, option: Option | None) -> QuotaImpact | None:
    if tenant is None:
        return None
    if option is None:
        return impact_on(tenant, memory_mib=wish.memory_mib * wish.count, compute=None)
    kind = option.kind
    return impact_on(
        tenant, memory_mib=kind.memory_mib * wish.count, compute=kind.compute * wish.count
    )


def _quota_problem(quota: QuotaImpact | None, tenant: Tenant | None) -> str:
    """Say when even an empty tenant could not hold it; a full one only makes it wait."""
    if quota is None or tenant is None:
        return ""
    meters = [quota.memory, *([quota.compute] if quota.compute else [])]
    if all(meter.after - meter.before <= meter.limit for meter in meters):
        return ""
    return _(
        "This is more than the whole quota of %(tenant)s. Ask for less, or ask an admin to raise"
        " the quota."
    ) % {"tenant": tenant.name}
