"""The inbox: what waits for a decision, what a yes would mean, and deciding."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, override

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_POST

from gpu.models import SliceRequest
from gpu.selectors.inbox import may_decide_somewhere, requests_to_decide
from gpu.services import requests as services
from gpu.services.errors import ServiceError
from gpu.views.answers import amount_words
from gpu.views.impacts import Impact, impacts_of
from gpu.views.pages import live_token, page_of, render_page
from gpu.views.wording import duration_words
from portal.http import PortalRequest

_PAGE = 20
_LATE_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A request with its clock, what a yes would mean, and what was wrong with a decision."""

    request: SliceRequest
    what: str
    waiting: str
    is_late: bool
    impact: Impact
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one decision was not taken, and the reason that had been typed."""

    request_id: int
    problem: str
    reason: str
    status: int


class DecisionForm(forms.Form):
    """One decision on several requests."""

    ids = forms.TypedMultipleChoiceField(coerce=int, required=False)
    decision = forms.ChoiceField(
        choices=[("approve", gettext_lazy("Approve")), ("decline", gettext_lazy("Decline"))]
    )
    reason = forms.CharField(max_length=500, required=False)

    def __init__(self, *args: Any, waiting: list[int], **kwargs: Any) -> None:  # noqa: ANN401  # handed on
        super().__init__(*args, **kwargs)
        self.fields["ids"].choices = [(pk, pk) for pk in waiting]  # type: ignore[attr-defined]

    @override
    def clean(self) -> None:
        if not self.cleaned_data.get("ids"):
            self.add_error("ids", _("Choose at least one request that still waits for a decision."))
        is_no = self.cleaned_data.get("decision") == "decline"
        if is_no and not self.cleaned_data.get("reason", "").strip():
            self.add_error("reason", _("Say why, so that the requesters know what to do."))


@require_http_methods(["GET", "HEAD", "POST"])
def inbox(request: PortalRequest) -> HttpResponse:
    """Show what waits for this person's decision; take one decision on several."""
    if not may_decide_somewhere(request.user):
        raise PermissionDenied(_("Your role does not include this page."))
    if request.method != "POST":
        return _page(request)
    waiting = list(requests_to_decide(request.user).values_list("pk", flat=True))
    form = DecisionForm(request.POST, waiting=waiting)
    if not form.is_valid():
        return _page(request, form=form, status=422)
    refusals = _decide_all(request, form.cleaned_data)
    if refusals:
        return _page(request, refusals=refusals, status=409)
    return redirect("gpu:inbox")


@require_POST
def request_approve(request: PortalRequest, request_id: int) -> HttpResponse:
    """Approve one request."""
    reason = request.POST.get("reason", "")
    return _decide_one(
        request,
        request_id,
        lambda: services.approve_request(request_id, actor=request.user, reason=reason.strip()),
    )


@require_POST
def request_decline(request: PortalRequest, request_id: int) -> HttpResponse:
    """Decline one request, with a reason."""
    reason = request.POST.get("reason", "")
    return _decide_one(
        request,
        request_id,
        lambda: services.decline_request(request_id, actor=request.user, reason=reason),
    )


def _decide_one(
    request: PortalRequest, request_id: int, decide: Callable[[], SliceRequest]
) -> HttpResponse:
    """Decide; who may not even see the request gets 404, who may not decide it 403."""
    if not may_decide_somewhere(request.user):
        raise PermissionDenied(_("Your role does not include this page."))
    known = SliceRequest.objects.visible_to(request.user).filter(pk=request_id)
    if not known.exists():
        raise Http404
    try:
        decided = decide()
    except ServiceError as error:
        status = 422 if error.field else 409
        reason = request.POST.get("reason", "")
        refusal = Refusal(request_id, str(error.message), reason, status)
        return _page(request, refusals=[refusal], status=status)
    _say(request, decided.state, 1)
    return _page(request) if request.htmx else redirect("gpu:inbox")


def _decide_all(request: PortalRequest, data: dict[str, Any]) -> list[Refusal]:
    """Take the decision one by one, so that one that came too late stops none of the others."""
    refusals: list[Refusal] = []
    decided: list[str] = []
    is_yes = data["decision"] == "approve"
    decide = services.approve_request if is_yes else services.decline_request
    for request_id in data["ids"]:
        try:
            done = decide(request_id, actor=request.user, reason=data["reason"].strip())
        except ServiceError as error:
            refusals.append(Refusal(request_id, str(error.message), data["reason"], 409))
        else:
            decided.append(done.state)
    if decided:
        _say(request, decided[0], len(decided))
    return refusals


def _say(request: PortalRequest, state: str, count: int) -> None:
    if state == SliceRequest.State.DECLINED:
        words = ngettext("%(count)d request declined.", "%(count)d requests declined.", count)
    else:
        words = ngettext("%(count)d request approved.", "%(count)d requests approved.", count)
    messages.success(request, words % {"count": count})


def _page(
    request: PortalRequest,
    *,
    form: DecisionForm | None = None,
    refusals: list[Refusal] | None = None,
    status: int = 200,
) -> HttpResponse:
    page = page_of(request, requests_to_decide(request.user), size=_PAGE)
    impacts = impacts_of(list(page))
    by_id = {refusal.request_id: refusal for refusal in refusals or ()}
    now = timezone.now()
    rows = [_row(item, impacts[item.pk], by_id.pop(item.pk, None), now) for item in page]
    context = {
        "page": page,
        "rows": rows,
        "form": form,
        "problems": [refusal.problem for refusal in by_id.values()],
        "is_refused": form is not None or bool(refusals),
        "live_token": live_token(request, "requests", "gpus"),
    }
    return render_page(request, "gpu/inbox.html", context, fragments=("inbox-list",), status=status)


def _row(item: SliceRequest, impact: Impact, refusal: Refusal | None, now: datetime) -> InboxRow:
    seconds = (now - item.submitted_at).total_seconds()
    return InboxRow(
        request=item,
        what=amount_words(item.count, item.memory_mib, item.offering.isolation),
        waiting=duration_words(seconds),
        is_late=seconds > _LATE_S,
        impact=impact,
        reason=refusal.reason if refusal else "",
        problem=refusal.problem if refusal else "",
    )
