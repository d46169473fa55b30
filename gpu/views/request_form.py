"""Asking for a slice: the form, and the answer that keeps up while one types."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from gpu.forms import Choices, QuestionForm, RequestForm
from gpu.glyphs import GlyphGpu
from gpu.models import Offering, SliceRequest
from gpu.planning.demands import FitWhen
from gpu.planning.snapshot import ClusterSnapshot
from gpu.selectors.fit import fit_wish
from gpu.selectors.offerings import Offered, active_offerings, model_names, models_in, offered
from gpu.selectors.operations import usual_duration_s
from gpu.selectors.requests import requests_for_detail
from gpu.selectors.snapshot import cluster_snapshot
from gpu.services import requests as services
from gpu.services.errors import ServiceError
from gpu.services.requests import Wish
from gpu.views.amounts import gib, gib_text
from gpu.views.answers import Answer, Market, answer_of, fields_of
from gpu.views.isolation import Honesty, honesty_of, offering_name
from gpu.views.pages import live_token, render_page
from gpu.views.pictures import picture_of
from gpu.views.quotas import quota_lines
from portal.http import PortalRequest
from tenants.models import User
from tenants.selectors import tenants_requestable_by

_USUAL_MIB = 8 * 1024
_USUAL_DAYS = 3
_FILLED = ("isolation", "memory", "count", "gpu_model")


@dataclass(frozen=True, slots=True)
class IsolationChoice:
    """One of the plain choices, with the sizes that the cluster has of it."""

    offering: Offering
    name: str
    honesty: Honesty
    sizes: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Desk:
    """All that a form and an answer are made from, read once for a page."""

    snapshot: ClusterSnapshot
    choices: Choices
    market: Market

    @classmethod
    def of(cls, user: User) -> "Desk":
        """Read what this person may ask for."""
        snapshot = cluster_snapshot()
        offerings = active_offerings()
        return cls(
            snapshot,
            Choices(list(tenants_requestable_by(user)), offerings, models_in(snapshot)),
            Market(offered(snapshot, offerings), model_names()),
        )

    def answer(self, wish: Wish) -> Answer:
        """Say when the wish can be met, and what it costs."""
        return self.answer_with_picture(wish)[0]

    def answer_with_picture(self, wish: Wish) -> tuple[Answer, GlyphGpu | None]:
        """Return the answer, and the GPU that the wish would get now or after a harmless change."""
        fit = fit_wish(wish, self.snapshot)
        market = self.market
        if fit.when is FitWhen.AFTER_CHANGE:
            market = replace(market, usual_change_s=usual_duration_s())
        picture = None
        if fit.option is not None:
            picture = picture_of(fit.option, self.snapshot, market.models, tenant=wish.tenant)
        return answer_of(fit, wish, market, tenant=wish.tenant), picture

    def usual_wish(self) -> dict[str, str]:
        """Return what the empty form starts with: one slice of a usual size for some days."""
        first = next((item for item in self.market.offered if item.sizes), None)
        if first is None:
            return {"count": "1", "days": str(_USUAL_DAYS)}
        enough = [size for size in first.sizes if size >= _USUAL_MIB]
        return {
            "isolation": first.offering.isolation,
            "memory": gib_text(enough[0] if enough else first.sizes[-1]),
            "count": "1",
            "days": str(min(_USUAL_DAYS, first.offering.max_days)),
        }


@require_http_methods(["GET", "HEAD", "POST"])
def request_new(request: PortalRequest) -> HttpResponseBase:
    """Ask for a slice; `check` and `fill` only look, and keep all that was typed."""
    desk = Desk.of(request.user)
    if not desk.choices.tenants:
        return render(request, "gpu/request_no_tenant.html", status=403)
    if request.method != "POST":
        return _page(request, desk, _starting_values(request, desk))
    values = request.POST.dict()
    if "fill" in values or "check" in values:
        return _look(request, desk, {**values, **_filled(values.get("fill", ""))})
    form = RequestForm(values, choices=desk.choices)
    if form.is_valid():
        submitted = _submit(request, desk, form)
        if submitted is not None:
            url = reverse("gpu:request-detail", args=[submitted.pk])
            return HttpResponseClientRedirect(url) if request.htmx else redirect(url)
    return _page(request, desk, values, form=form, status=422)


@require_safe
def request_fit(request: PortalRequest) -> HttpResponse:
    """Answer the wish as it stands in the form at this moment."""
    desk = Desk.of(request.user)
    if not desk.choices.tenants:
        raise PermissionDenied(_("You belong to no tenant."))
    question = QuestionForm(request.GET, choices=desk.choices)
    context = _answer_context(desk, question)
    return render(request, "gpu/request_form.html#fit-answer", context)


def _submit(request: PortalRequest, desk: Desk, form: RequestForm) -> SliceRequest | None:
    """Submit what the cluster can ever give; else say on the form why not."""
    answer = desk.answer(form.wish)
    if answer.is_hopeless:
        reasons = answer.quota_problem or " ".join((answer.headline, *answer.reasons))
        form.add_error(None, reasons)
        return None
    try:
        return services.submit_request(form.wish, actor=request.user)
    except ServiceError as error:
        form.add_service_error(error.message, error.field)
        return None


def _look(request: PortalRequest, desk: Desk, values: dict[str, Any]) -> HttpResponse:
    """Show the form with these values and the answer to them; nothing is asked for."""
    form = QuestionForm(values, choices=desk.choices)
    return _page(request, desk, values, form=form, status=200 if form.is_valid() else 422)


def _page(
    request: PortalRequest,
    desk: Desk,
    values: Mapping[str, Any],
    *,
    form: RequestForm | None = None,
    status: int = 200,
) -> HttpResponse:
    question = QuestionForm(values, choices=desk.choices)
    shown = form or RequestForm(choices=desk.choices, initial=values)
    chosen = str(shown["isolation"].value() or "")
    context = {
        **_answer_context(desk, question),
        "form": shown,
        "isolation_choices": [_choice(item, chosen) for item in desk.market.offered],
        "only_tenant": desk.choices.tenants[0] if len(desk.choices.tenants) == 1 else None,
        "slider_sizes": json.dumps(_slider_sizes(desk.market.offered)),
        "live_token": live_token(request, "gpus"),
    }
    return render_page(
        request, "gpu/request_form.html", context, fragments=("request-form",), status=status
    )


def _answer_context(desk: Desk, question: QuestionForm) -> dict[str, Any]:
    if not question.is_valid():
        problems = [error for errors in question.errors.values() for error in errors]
        return {"answer": None, "problems": problems}
    wish = question.wish
    answer, picture = desk.answer_with_picture(wish)
    return {
        "answer": answer,
        "picture": picture,
        "problems": [],
        "tenant": wish.tenant,
        "quota_lines": quota_lines(answer.quota) if answer.quota else [],
    }


def _starting_values(request: PortalRequest, desk: Desk) -> dict[str, str]:
    """Return what the address says over what an earlier request said over what is usual."""
    values = desk.usual_wish()
    values["tenant"] = desk.choices.tenants[0].slug
    again = request.GET.get("again", "")
    if again:
        values |= _again(request.user, again)
    known = set(RequestForm.base_fields)
    return values | {name: str(text) for name, text in request.GET.items() if name in known}


def _again(user: User, number: str) -> dict[str, str]:
    earlier = None
    if number.isdecimal() and len(number) < len(str(2**63)):
        earlier = requests_for_detail(user).filter(pk=int(number)).first()
    if earlier is None:
        raise Http404(_("There is no such request."))
    return {
        **fields_of(earlier),
        "tenant": earlier.tenant.slug,
        "days": str(earlier.days),
        "purpose": earlier.purpose,
    }


def _filled(value: str) -> dict[str, str]:
    """Read the fields that a counter-offer's button fills; what is no field of one is ignored."""
    pairs = [part.partition("=") for part in value.split("|")]
    return {name: text for name, _equals, text in pairs if name in _FILLED}


def _choice(item: Offered, chosen: str) -> IsolationChoice:
    return IsolationChoice(
        offering=item.offering,
        name=offering_name(item.offering),
        honesty=honesty_of(item.offering.isolation),
        sizes=_sizes_words(item),
        is_chosen=item.offering.isolation == chosen,
    )


def _sizes_words(item: Offered) -> str:
    if not item.sizes:
        return _("The cluster has none at the moment.")
    if len(item.sizes) == 1:
        return gib(item.sizes[0])
    return _("%(least)s to %(most)s") % {"least": gib(item.sizes[0]), "most": gib(item.sizes[-1])}


def _slider_sizes(items: Sequence[Offered]) -> dict[str, dict[str, list[str]]]:
    """Return the steps of the slider in GiB, by isolation and GPU product; '' is any product."""
    return {
        item.offering.isolation: {
            "": [gib_text(size) for size in item.sizes],
            **{
                product: sorted(
                    {gib_text(k.memory_mib) for k in item.kinds if k.product == product}, key=float
                )
                for product in {kind.product for kind in item.kinds}
            },
        }
        for item in items
    }
