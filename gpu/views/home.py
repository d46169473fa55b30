"""Home: what I have, and what I am waiting for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_safe

from gpu.models import SliceRequest
from gpu.selectors.inbox import impact_on, may_decide_somewhere, requests_to_decide
from gpu.selectors.offerings import model_names
from gpu.selectors.requests import (
    Position,
    Use,
    allocation_of,
    allocations_in,
    own_requests,
    queue_positions,
    uses_of,
)
from gpu.views.pages import live_token, render_page
from gpu.views.quotas import QuotaLine, quota_lines
from gpu.views.standing import RequestRow, use_explained, use_words
from portal.http import PortalRequest
from tenants.models import Tenant
from tenants.permissions import Capability
from tenants.selectors import tenants_requestable_by

State = SliceRequest.State

_LATELY = timedelta(days=7)
_MOST_FINISHED = 5


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A slice that can be used, with what runs on it."""

    row: RequestRow
    use: str
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """A tenant and how much of its quota is granted."""

    tenant: Tenant
    lines: list[QuotaLine]


@require_safe
def home(request: PortalRequest) -> HttpResponseBase:
    """Show a researcher's slices and requests; admins and managers have another start."""
    tenants = list(tenants_requestable_by(request.user))
    if not tenants:
        if request.user.may(Capability.DECIDE_REQUESTS):
            return redirect("gpu:inbox")
        if request.user.may(Capability.SEE_OVERVIEW):
            return redirect("gpu:overview")
    now = timezone.now()
    own = list(own_requests(request.user, finished_since=now - _LATELY))
    rows = _rows(own, now=now)
    uses = uses_of(allocations_in(own))
    slices = [_slice(row, uses) for row in rows if row.request.state == State.READY]
    topics = _topics(own, tenants)
    context = {
        "tenants": [
            TenantQuota(t, quota_lines(impact_on(t, memory_mib=0, compute=0))) for t in tenants
        ],
        "slices": slices,
        "has_unknown_use": any(item.is_unknown for item in slices),
        "waiting": [row for row in rows if row.request.is_open],
        "finished": _finished(rows),
        "to_decide": _waiting_for_me(request).count() if may_decide_somewhere(request.user) else 0,
        "live_token": live_token(request, *topics),
        "live_triggers": ", ".join(f"sse:{topic}" for topic in topics),
    }
    return render_page(request, "gpu/home.html", context, fragments=("my-slices",))


def _rows(own: list[SliceRequest], *, now: datetime) -> list[RequestRow]:
    waits = any(row.state == State.WAITING_FOR_ROOM for row in own)
    positions: Mapping[int, Position] = queue_positions() if waits else {}
    models = model_names() if waits else {}
    return [RequestRow.of(row, now=now, positions=positions, models=models) for row in own]


def _slice(row: RequestRow, uses: Mapping[int, Use]) -> SliceRow:
    allocation = allocation_of(row.request)
    if allocation is None or allocation.pk not in uses:
        return SliceRow(row, "")
    use = uses[allocation.pk]
    is_unknown = bool(use_explained(use))
    return SliceRow(row, use_words(use, allocation.count), is_unknown)


def _finished(rows: list[RequestRow]) -> list[RequestRow]:
    over = {State.ENDED, State.DECLINED, State.WITHDRAWN}
    found = [row for row in rows if row.request.state in over]
    found.sort(key=lambda row: row.request.state_changed_at, reverse=True)
    return found[:_MOST_FINISHED]


def _waiting_for_me(request: PortalRequest) -> QuerySet[SliceRequest]:
    return requests_to_decide(request.user)


def _topics(own: list[SliceRequest], tenants: list[Tenant]) -> list[str]:
    return [
        *(f"tenant-{tenant.pk}" for tenant in tenants),
        *(f"request-{row.pk}" for row in own if row.is_open),
    ]
