"""Finds room for those who wait, has it made, and hands it over."""

from datetime import timedelta

import structlog
from django.utils import timezone

from gpu.models import Allocation, Operation, SliceRequest
from gpu.planning.demands import Fit, FitWhen
from gpu.ports import Cluster, ClusterError
from gpu.reconcilers import namespaces
from gpu.reconcilers.namespaces import NamespaceBusyError
from gpu.selectors.fit import fit_request
from gpu.services import endings, outcomes, placing
from gpu.services.errors import NoRoomError, QuotaExceededError, ServiceError
from gpu.services.freezes import FrozenError
from tenants.models import Tenant

_log = structlog.get_logger(__name__)

State = SliceRequest.State

_TRIES = 5
_AVOID_AFTER_FAILURE = timedelta(hours=1)


def advance_request(request_id: int, *, cluster: Cluster) -> None:
    """Do for one request what can be done now; safe to call at any time."""
    slice_request = SliceRequest.objects.select_related("offering", "gpu_model", "tenant").get(
        pk=request_id
    )
    if slice_request.state == State.WAITING_FOR_ROOM:
        _place(slice_request)
        slice_request.refresh_from_db()
    if slice_request.state == State.BEING_MADE:
        _make(slice_request, cluster)


def advance_waiting(*, cluster: Cluster) -> None:
    """Do the same for everybody who waits, those who have waited longest first."""
    open_states = [State.WAITING_FOR_ROOM, State.BEING_MADE]
    waiting = SliceRequest.objects.filter(state__in=open_states).order_by("decided_at", "pk")
    for request_id in list(waiting.values_list("pk", flat=True)):
        advance_request(request_id, cluster=cluster)


def sync_tenant(tenant_id: int, *, cluster: Cluster) -> None:
    """Bring one tenant's namespace to what the ledger says; the sweep repeats what fails."""
    tenant = Tenant.objects.get(pk=tenant_id)
    try:
        namespaces.sync_namespace(tenant, cluster=cluster)
    except (NamespaceBusyError, ClusterError) as error:
        _log.warning("namespace.not_synced", namespace=tenant.namespace, error=str(error))


def end_overdue(*, cluster: Cluster) -> None:
    """End what is past its end and write every quota that is not what the ledger says."""
    for allocation_id in endings.overdue_allocation_ids(timezone.now()):
        endings.end_overdue_allocation(allocation_id)
    for tenant_id in endings.tenants_out_of_step():
        sync_tenant(tenant_id, cluster=cluster)


def _place(slice_request: SliceRequest) -> None:
    avoid = _gpus_that_failed()
    for _try in range(_TRIES):
        answer = fit_request(slice_request, avoid_gpus=avoid)
        if answer.option is None or answer.when not in {FitWhen.NOW, FitWhen.AFTER_CHANGE}:
            _explain(slice_request, answer)
            return
        try:
            placing.place_request(slice_request.pk, answer.option)
        except NoRoomError:
            continue
        except QuotaExceededError:
            placing.keep_waiting(slice_request.pk, "quota")
        return
    placing.keep_waiting(slice_request.pk, "no_room")


def _explain(slice_request: SliceRequest, answer: Fit) -> None:
    code = answer.reasons[0].code.value if answer.reasons else "no_room"
    placing.keep_waiting(
        slice_request.pk,
        "never" if answer.when is FitWhen.NEVER else code,
        reasons=[[reason.code.value, reason.product, reason.gpus] for reason in answer.reasons],
    )


def _gpus_that_failed() -> set[str]:
    """Return GPUs whose last change failed a short while ago, or waits for an operator."""
    since = timezone.now() - _AVOID_AFTER_FAILURE
    failed = Operation.objects.filter(
        state__in=[Operation.State.ROLLED_BACK, Operation.State.NEEDS_OPERATOR],
        finished_at__gt=since,
    )
    return set(failed.values_list("gpu__uuid", flat=True))


def _make(slice_request: SliceRequest, cluster: Cluster) -> None:
    allocation = Allocation.objects.filter(slice_request=slice_request).first()
    if allocation is None:
        return
    if allocation.state == Allocation.State.RESERVED:
        _start_changes(allocation)
        outcomes.settle(slice_request.pk)
        allocation = Allocation.objects.filter(slice_request=slice_request).first()
    if allocation is not None and allocation.state == Allocation.State.ACTIVE:
        _hand_over(slice_request, cluster)


def _start_changes(allocation: Allocation) -> None:
    try:
        while placing.start_next_change(allocation.pk):
            pass
    except FrozenError as error:
        until = error.freeze.ends_at.isoformat()
        placing.mark_held_up(allocation.slice_request_id, "frozen", until=until)
    except ServiceError as error:
        _log.info("request.change_waits", allocation=allocation.pk, error=str(error))


def _hand_over(slice_request: SliceRequest, cluster: Cluster) -> None:
    try:
        problem = namespaces.sync_namespace(slice_request.tenant, cluster=cluster)
    except NamespaceBusyError:
        return
    except ClusterError as error:
        placing.mark_held_up(slice_request.pk, "cluster", error=str(error))
        return
    if problem:
        placing.mark_held_up(slice_request.pk, "quota_not_kept", problem=problem)
        return
    placing.mark_ready(slice_request.pk)
