"""Requests: the list, one with its way to a slice, and giving back what is not needed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpu.models import Allocation, SliceRequest
from gpu.selectors.inbox import may_decide_somewhere
from gpu.selectors.offerings import model_names
from gpu.selectors.requests import (
    ENDING_SOON,
    OPEN,
    RequestFilter,
    Sort,
    allocation_of,
    queue_positions,
    requests_for_detail,
    requests_for_list,
)
from gpu.services import requests as services
from gpu.services.errors import NotAllowedError, ServiceError
from gpu.views.pages import live_token, page_of, render_page
from gpu.views.pod_specs import Handout
from gpu.views.request_story import story_of
from gpu.views.standing import RequestRow
from portal.http import PortalRequest
from tenants.models import User
from tenants.permissions import Capability
from tenants.selectors import capabilities_of, may_in_tenant, tenants_visible_to

State = SliceRequest.State


class RequestFilterForm(forms.Form):
    """Which requests to show; what is not understood does not filter."""

    state = forms.ChoiceField(
        label=gettext_lazy("State"),
        required=False,
        choices=[
            ("", gettext_lazy("all")),
            (OPEN, gettext_lazy("not ready yet")),
            (ENDING_SOON, gettext_lazy("ending soon")),
            *State.choices,
        ],
    )
    tenant = forms.ChoiceField(label=gettext_lazy("Tenant"), required=False)
    q = forms.CharField(label=gettext_lazy("Search"), required=False, max_length=100)
    sort = forms.ChoiceField(
        required=False,
        choices=[(mark + sort, sort) for sort in Sort for mark in ("", "-")],
        widget=forms.HiddenInput,
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:  # noqa: ANN401  # handed on
        super().__init__(*args, **kwargs)
        slugs = [(tenant.slug, tenant.name) for tenant in tenants_visible_to(user)]
        if len(slugs) > 1:
            self.fields["tenant"].choices = [("", _("all")), *slugs]  # type: ignore[attr-defined]
        else:
            del self.fields["tenant"]

    @property
    def wanted(self) -> RequestFilter:
        """Return the filter and the order; a leading `-` sorts downwards."""
        self.is_valid()
        data = self.cleaned_data
        sort = data.get("sort") or f"-{Sort.SUBMITTED}"
        return RequestFilter(
            state=data.get("state") or "",
            tenant=data.get("tenant") or "",
            search=(data.get("q") or "").strip(),
            sort=Sort(sort.removeprefix("-")),
            is_ascending=not sort.startswith("-"),
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A heading by which the list can be sorted; `aria` says how it is sorted now."""

    label: str
    url: str
    aria: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How something ends: what is asked, what it is called, and who does it."""

    template: str
    done: str
    act: Callable[[int, User], object]
    may: Callable[[SliceRequest, User], bool]


@require_safe
def request_list(request: PortalRequest) -> HttpResponse:
    """List own requests, those of led tenants, or all, as the person may see."""
    form = RequestFilterForm(request.GET, user=request.user)
    wanted, now = form.wanted, timezone.now()
    page = page_of(request, requests_for_list(request.user, wanted, now=now))
    positions, models = queue_positions(), model_names()
    context = {
        "form": form,
        "page": page,
        "rows": [RequestRow.of(row, now=now, positions=positions, models=models) for row in page],
        "columns": {sort.value: _column(request, wanted, sort) for sort in Sort},
        "shows_tenant": "tenant" in form.fields,
        "is_filtered": any(request.GET.get(name) for name in ("state", "tenant", "q")),
        "sees_others": may_decide_somewhere(request.user)
        or request.user.may(Capability.SEE_ALL_TENANTS),
        "may_request": Capability.REQUEST_SLICES in capabilities_of(request.user),
        "live_token": live_token(request, "requests"),
    }
    return render_page(request, "gpu/request_list.html", context, fragments=("request-table",))


@require_safe
def request_detail(request: PortalRequest, request_id: int) -> HttpResponse:
    """Show how far a request is, and how to use the slice once it is ready."""
    slice_request = _visible(request.user, request_id)
    topics = (f"request-{request_id}", "requests", f"tenant-{slice_request.tenant_id}")
    context = {
        "request_row": slice_request,
        "story": story_of(slice_request, viewer=request.user, now=timezone.now()),
        "live_token": live_token(request, *topics),
        "live_triggers": ", ".join(f"sse:{topic}" for topic in topics),
    }
    return render_page(request, "gpu/request_detail.html", context, fragments=("request-story",))


@require_safe
def request_pod(request: PortalRequest, request_id: int) -> HttpResponse:
    """Return the Pod spec of a ready slice as a file."""
    slice_request = _visible(request.user, request_id)
    allocation = allocation_of(slice_request)
    if allocation is None or allocation.state != Allocation.State.ACTIVE:
        raise Http404(_("This slice is not ready."))
    handout = Handout.of(allocation, whose=slice_request.requester.username)
    return HttpResponse(
        handout.spec,
        content_type="application/yaml; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{handout.file_name}"'},
    )


@require_http_methods(["GET", "HEAD", "POST"])
def request_withdraw(request: PortalRequest, request_id: int) -> HttpResponseBase:
    """Ask whether to take a request back, and do it."""
    return _end(
        request,
        request_id,
        Ending(
            template="gpu/request_withdraw.html",
            done=_("The request has been withdrawn."),
            act=lambda pk, user: services.withdraw_request(pk, actor=user),
            may=lambda row, user: row.requester_id == user.pk,
        ),
    )


@require_http_methods(["GET", "HEAD", "POST"])
def request_release(request: PortalRequest, request_id: int) -> HttpResponseBase:
    """Ask whether to give a slice back, and do it."""
    reason = request.POST.get("reason", "").strip()
    return _end(
        request,
        request_id,
        Ending(
            template="gpu/request_release.html",
            done=_("The slice has been given back."),
            act=lambda pk, user: services.release_slice(pk, actor=user, reason=reason[:500]),
            may=_may_release,
        ),
    )


def _end(request: PortalRequest, request_id: int, ending: Ending) -> HttpResponseBase:
    slice_request = _visible(request.user, request_id)
    if not ending.may(slice_request, request.user):
        raise PermissionDenied(_("Only the people whose slice this is can do that."))
    problem: ServiceError | None = None
    if request.method == "POST":
        try:
            ending.act(request_id, request.user)
        except NotAllowedError as error:
            raise PermissionDenied(str(error.message)) from error
        except ServiceError as error:
            problem = error
            slice_request = _visible(request.user, request_id)
        else:
            messages.success(request, ending.done)
            return redirect("gpu:request-detail", request_id)
    story = story_of(slice_request, viewer=request.user, now=timezone.now())
    pods = story.use.pods if story.use else ()
    context = {
        "request_row": slice_request,
        "story": story,
        "problem": problem,
        "damage": [_("Pod %(name)s runs on it now") % {"name": pod.name} for pod in pods],
    }
    return render_page(request, ending.template, context, status=409 if problem else 200)


def _may_release(slice_request: SliceRequest, user: User) -> bool:
    return slice_request.requester_id == user.pk or may_in_tenant(
        user, slice_request.tenant, Capability.DECIDE_REQUESTS
    )


def _visible(user: User, request_id: int) -> SliceRequest:
    return get_object_or_404(requests_for_detail(user), pk=request_id)


def _column(request: PortalRequest, wanted: RequestFilter, sort: Sort) -> Column:
    labels = {
        Sort.SUBMITTED: _("Submitted"),
        Sort.END: _("Ends"),
        Sort.STATE: _("State"),
        Sort.TENANT: _("Tenant"),
        Sort.MEMORY: _("Memory"),
    }
    is_current = wanted.sort is sort
    goes_up = not wanted.is_ascending if is_current else sort is not Sort.SUBMITTED
    query = {key: text for key, text in request.GET.items() if key not in {"page", "sort"}}
    query["sort"] = sort.value if goes_up else f"-{sort.value}"
    aria = "none"
    if is_current:
        aria = "ascending" if wanted.is_ascending else "descending"
    return Column(labels[sort], f"{reverse('gpu:request-list')}?{urlencode(query)}", aria)
