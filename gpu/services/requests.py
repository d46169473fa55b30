"""What people do with slice requests: submit, approve, decline, withdraw, give back."""

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from gpu import dispatch
from gpu.models import GpuModel, Offering, SliceRequest
from gpu.services import allocations
from gpu.services.errors import NotAllowedError, ServiceError, WrongStateError
from portal.audit import services as audit
from tenants.models import Tenant, User
from tenants.permissions import Capability
from tenants.selectors import may_in_tenant

State = SliceRequest.State

_MAX_OPEN_PER_PERSON = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What a researcher asks for; memory of each slice in MiB, as the driver counts it."""

    tenant: Tenant
    offering: Offering
    memory_mib: int
    count: int
    days: int
    purpose: str
    gpu_model: GpuModel | None = None


@transaction.atomic(durable=True)
def submit_request(wish: Wish, *, actor: User) -> SliceRequest:
    """Put a request into the inbox, or straight into the queue where no approval is needed."""
    if not may_in_tenant(actor, wish.tenant, Capability.REQUEST_SLICES):
        raise NotAllowedError(
            _("You are not a member of %(tenant)s; ask its lead to add you.")
            % {"tenant": wish.tenant.name},
            field="tenant",
        )
    _check(wish, actor)
    now = timezone.now()
    needs_approval = wish.offering.needs_approval
    slice_request = SliceRequest.objects.create(
        tenant=wish.tenant,
        requester=actor,
        offering=wish.offering,
        memory_mib=wish.memory_mib,
        count=wish.count,
        days=wish.days,
        purpose=wish.purpose.strip(),
        gpu_model=wish.gpu_model,
        state=State.WAITING_FOR_APPROVAL if needs_approval else State.WAITING_FOR_ROOM,
        decided_at=None if needs_approval else now,
    )
    audit.record(
        "request.submitted",
        f"request/{slice_request.pk}",
        actor=actor,
        tenant=wish.tenant.slug,
        memory_mib=wish.memory_mib,
        count=wish.count,
        days=wish.days,
        isolation=wish.offering.isolation,
    )
    if not needs_approval:
        dispatch.wake(dispatch.RECONCILE_REQUEST, slice_request.pk)
    announce(slice_request)
    return slice_request


@transaction.atomic(durable=True)
def approve_request(request_id: int, *, actor: User, reason: str = "") -> SliceRequest:
    """Let a request into the queue; room is looked for at once."""
    slice_request = _decidable(request_id, actor)
    _decide(slice_request, State.WAITING_FOR_ROOM, actor, reason)
    dispatch.wake(dispatch.RECONCILE_REQUEST, slice_request.pk)
    return slice_request


@transaction.atomic(durable=True)
def decline_request(request_id: int, *, actor: User, reason: str) -> SliceRequest:
    """Say no, with the reason that the requester will read."""
    if not reason.strip():
        raise ServiceError(_("Say why, so that the requester knows what to do."), field="reason")
    slice_request = _decidable(request_id, actor)
    _decide(slice_request, State.DECLINED, actor, reason.strip())
    return slice_request


@transaction.atomic(durable=True)
def withdraw_request(request_id: int, *, actor: User) -> SliceRequest:
    """Take a request back while nothing is being made for it yet."""
    slice_request = _locked(request_id)
    if slice_request.requester_id != actor.pk:
        raise NotAllowedError(_("Only the person who asked can withdraw a request."))
    if slice_request.state not in {State.WAITING_FOR_APPROVAL, State.WAITING_FOR_ROOM}:
        raise WrongStateError(
            _("This request is %(state)s by now and cannot be withdrawn; give the slice back.")
            % {"state": slice_request.get_state_display()}
        )
    set_state(slice_request, State.WITHDRAWN)
    audit.record("request.withdrawn", f"request/{slice_request.pk}", actor=actor)
    return slice_request


@transaction.atomic(durable=True)
def release_slice(request_id: int, *, actor: User, reason: str = "") -> SliceRequest:
    """Give a ready slice back before its end."""
    slice_request = _locked(request_id)
    is_own = slice_request.requester_id == actor.pk
    if not is_own and not may_in_tenant(actor, slice_request.tenant, Capability.DECIDE_REQUESTS):
        raise NotAllowedError(_("Only its holder, the tenant's lead or an admin can end a slice."))
    if slice_request.state != State.READY:
        raise WrongStateError(
            _("This slice is %(state)s; only a ready one can be given back.")
            % {"state": slice_request.get_state_display()}
        )
    allocation = allocations.locked(slice_request.allocation.pk)
    allocations.end_allocation(allocation, now=timezone.now(), actor=actor, reason=reason)
    set_state(slice_request, State.ENDED)
    return slice_request


def set_state(
    slice_request: SliceRequest, state: str, *, waiting_reason: str = "", **detail: object
) -> None:
    """Move a locked request on in the caller's transaction and tell open pages."""
    now = timezone.now()
    if slice_request.state != state:
        slice_request.state_changed_at = now
    slice_request.state = state
    slice_request.waiting_reason = waiting_reason
    slice_request.waiting_detail = detail
    if state == State.READY:
        slice_request.ready_at = now
    slice_request.save(
        update_fields=[
            "state",
            "state_changed_at",
            "waiting_reason",
            "waiting_detail",
            "ready_at",
        ]
    )
    announce(slice_request)


def announce(slice_request: SliceRequest) -> None:
    """Tell the pages that show this request, after the commit."""
    dispatch.announce(
        f"request-{slice_request.pk}", f"tenant-{slice_request.tenant_id}", "requests", "overview"
    )


def _check(wish: Wish, actor: User) -> None:
    offering = wish.offering
    if not offering.is_active:
        raise ServiceError(
            _("This is not offered any more; choose another kind."), field="isolation"
        )
    if not 1 <= wish.count <= offering.max_count:
        raise ServiceError(
            _("Ask for 1 to %(most)d at once.") % {"most": offering.max_count}, field="count"
        )
    if not 1 <= wish.days <= offering.max_days:
        raise ServiceError(
            _("Choose 1 to %(most)d days; a longer need is asked for again near the end.")
            % {"most": offering.max_days},
            field="days",
        )
    if wish.memory_mib < 1:
        raise ServiceError(_("Say how much GPU memory each slice needs."), field="memory")
    if not wish.purpose.strip():
        raise ServiceError(_("Say in a few words what the slice is for."), field="purpose")
    mine = SliceRequest.objects.filter(requester=actor, state__in=SliceRequest.OPEN_STATES)
    if mine.count() >= _MAX_OPEN_PER_PERSON:
        raise ServiceError(
            _("You have %(most)d requests open; withdraw one before you ask for more.")
            % {"most": _MAX_OPEN_PER_PERSON}
        )


def _locked(request_id: int) -> SliceRequest:
    return (
        SliceRequest.objects.select_for_update(of=("self",))
        .select_related("tenant", "offering", "requester")
        .get(pk=request_id)
    )


def _decidable(request_id: int, actor: User) -> SliceRequest:
    slice_request = _locked(request_id)
    if not may_in_tenant(actor, slice_request.tenant, Capability.DECIDE_REQUESTS):
        raise NotAllowedError(_("Only the tenant's lead or an admin can decide on this request."))
    if slice_request.state != State.WAITING_FOR_APPROVAL:
        raise WrongStateError(
            _("This request is %(state)s already; nothing was changed.")
            % {"state": slice_request.get_state_display()}
        )
    return slice_request


def _decide(slice_request: SliceRequest, state: str, actor: User, reason: str) -> None:
    slice_request.decided_by = actor
    slice_request.decided_at = timezone.now()
    slice_request.decision_reason = reason
    slice_request.save(update_fields=["decided_by", "decided_at", "decision_reason"])
    set_state(slice_request, state)
    verb = "request.declined" if state == State.DECLINED else "request.approved"
    audit.record(verb, f"request/{slice_request.pk}", actor=actor, reason=reason)
