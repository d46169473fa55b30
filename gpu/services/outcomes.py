"""How operations end, and what that means for the request that wanted them."""

from django.db import transaction
from django.utils import timezone

from gpu import dispatch
from gpu.models import Allocation, Gpu, Operation, SliceRequest
from gpu.services import allocations, operations, pools, requests
from gpu.services.errors import NoRoomError
from gpu.services.operations import Progress


@transaction.atomic(durable=True)
def finish(operation: Operation, state: str, progress: Progress) -> Operation:
    """Close an operation that ended well or was rolled back, and settle its request."""
    closed = operations.close(operation, state, progress)
    pools.refresh_pools()
    if state == Operation.State.DONE:
        Gpu.objects.filter(pk=closed.gpu_id).update(desired_layout=closed.desired)
        _settle_done(closed)
    else:
        _settle_failed(closed)
    dispatch.wake(dispatch.RECONCILE_WAITING)
    return closed


@transaction.atomic(durable=True)
def give_up(operation: Operation, code: str, progress: Progress) -> Operation:
    """Hand an operation to a person: the node stays cordoned and the page says what to do."""
    closed = operations.close_failed(operation, code, progress)
    pools.refresh_pools()
    _settle_failed(closed)
    return closed


def _settle_done(operation: Operation) -> None:
    allocation = _reservation(operation)
    if allocation is None:
        return
    try:
        allocations.activate(allocation, now=timezone.now())
    except NoRoomError:
        _put_back(allocation)
        return
    dispatch.wake(dispatch.RECONCILE_REQUEST, allocation.slice_request_id)
    requests.announce(allocation.slice_request)


def _settle_failed(operation: Operation) -> None:
    allocation = _reservation(operation)
    if allocation is not None:
        _put_back(allocation, operation)


def _reservation(operation: Operation) -> Allocation | None:
    if operation.slice_request_id is None:
        return None
    SliceRequest.objects.select_for_update().get(pk=operation.slice_request_id)
    return (
        Allocation.objects.select_for_update(of=("self",))
        .select_related("slice_request", "pool")
        .filter(slice_request=operation.slice_request_id, state=Allocation.State.RESERVED)
        .first()
    )


def _put_back(allocation: Allocation, operation: Operation | None = None) -> None:
    slice_request = allocation.slice_request
    allocations.cancel_reservation(allocation)
    requests.set_state(
        slice_request,
        SliceRequest.State.WAITING_FOR_ROOM,
        waiting_reason="change_failed",
        operation=operation.pk if operation else None,
    )
