"""How operations end, and what that means for the request that wanted them.

An operation is closed in one transaction and its request settled in another: the first locks pools,
the second a tenant before its pool, and a crash in between only leaves it to the next look.
"""

from django.db import transaction
from django.utils import timezone

from gpu import dispatch
from gpu.models import Allocation, Gpu, Operation, SliceRequest
from gpu.planning.node_sharing import NodeSharing
from gpu.services import allocations, operations, pools, requests
from gpu.services.errors import NoRoomError
from gpu.services.operations import Progress
from gpu.services.sharing import record_sharing


@transaction.atomic(durable=True)
def finish(operation: Operation, state: str, progress: Progress) -> Operation:
    """Close an operation that ended well or was rolled back; its devices count from now on."""
    closed = operations.close(operation, state, progress)
    if state == Operation.State.DONE:
        _keep_desired(closed)
    _afterwards(closed)
    return closed


@transaction.atomic(durable=True)
def give_up(operation: Operation, code: str, progress: Progress) -> Operation:
    """Hand an operation to a person: the node stays cordoned and the page says what to do."""
    closed = operations.close_failed(operation, code, progress)
    _afterwards(closed)
    return closed


@transaction.atomic(durable=True)
def settle(request_id: int) -> None:
    """Turn a reservation into a grant once all its changes are done, or give it up.

    Does nothing while a change is under way or still to be started.
    """
    slice_request = SliceRequest.objects.select_for_update().get(pk=request_id)
    allocation = (
        Allocation.objects.select_for_update(of=("self",))
        .select_related("slice_request", "pool")
        .filter(slice_request=slice_request, state=Allocation.State.RESERVED)
        .first()
    )
    if allocation is None:
        return
    mine = Operation.objects.filter(
        slice_request=slice_request, opened_at__gte=allocation.created_at
    ).order_by("pk")
    failed = mine.filter(state__in=[Operation.State.ROLLED_BACK, Operation.State.NEEDS_OPERATOR])
    if failed.exists():
        _put_back(allocation, failed.last())
    elif not allocation.pending_changes and not mine.open().exists():
        _activate(allocation, mine.last())


def _keep_desired(operation: Operation) -> None:
    """Remember what was ordered, so that a foreign edit or a reboot shows as drift."""
    if operation.gpu_id is None:
        record_sharing(
            operation.node_id,
            NodeSharing.from_json(operation.desired["sharing"]),
            config=operation.memory.get("target_label", ""),
        )
        return
    Gpu.objects.filter(pk=operation.gpu_id).update(
        desired_layout=operation.desired, drift_since=None, drift_cause=""
    )


def _afterwards(operation: Operation) -> None:
    pools.refresh_pools()
    if operation.slice_request_id:
        dispatch.wake(dispatch.RECONCILE_REQUEST, operation.slice_request_id)
    dispatch.wake(dispatch.RECONCILE_WAITING)


def _activate(allocation: Allocation, operation: Operation | None) -> None:
    try:
        with transaction.atomic():
            allocations.activate(allocation, now=timezone.now())
    except NoRoomError:
        _put_back(allocation, operation)
        return
    requests.announce(allocation.slice_request)


def _put_back(allocation: Allocation, operation: Operation | None) -> None:
    slice_request = allocation.slice_request
    allocations.cancel_reservation(allocation)
    requests.set_state(
        slice_request,
        SliceRequest.State.WAITING_FOR_ROOM,
        waiting_reason="change_failed",
        operation=operation.pk if operation else None,
    )
