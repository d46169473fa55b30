"""From planning's answer to rows: a grant at once, or a reservation with changes to be made."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from gpu import dispatch
from gpu.models import Allocation, Gpu, GpuModel, Offering, Operation, SliceRequest
from gpu.planning.demands import FitWhen, GpuChange, Option
from gpu.planning.landings import likely_landing
from gpu.selectors.executors import executor_for
from gpu.selectors.tables import table_of
from gpu.services import allocations, operations, requests
from gpu.services.allocations import Grant
from gpu.services.operations import Change
from portal.audit import services as audit

State = SliceRequest.State

_LEAST_CPU_MILLI = 100
_LEAST_MIB = 128


@transaction.atomic(durable=True)
def place_request(request_id: int, option: Option) -> bool:
    """Grant or reserve what an option promises; False when the request does not wait any more.

    Raises `NoRoomError` when somebody was faster and `QuotaExceededError` when the quota does not
    hold it; then nothing is changed.
    """
    slice_request = _waiting(request_id)
    if slice_request is None:
        return False
    grant = _grant(option, slice_request.offering)
    if option.when is FitWhen.NOW:
        allocations.grant_now(slice_request, grant, now=timezone.now())
    else:
        allocations.declare_keys(grant.model, {grant.resource_name})
        allocations.reserve(slice_request, grant)
    requests.set_state(slice_request, State.BEING_MADE)
    audit.record(
        "request.placed",
        f"request/{slice_request.pk}",
        actor=None,
        resource=grant.resource_name,
        product=grant.model.product,
        changes=len(grant.pending_changes),
    )
    dispatch.wake(dispatch.RECONCILE_REQUEST, slice_request.pk)
    return True


@transaction.atomic(durable=True)
def keep_waiting(request_id: int, reason: str, **detail: Any) -> None:  # noqa: ANN401  # JSON
    """Write down why a request still waits, if it does and the reason is a new one."""
    slice_request = _waiting(request_id)
    if slice_request is None:
        return
    if slice_request.waiting_reason != reason or slice_request.waiting_detail != detail:
        requests.set_state(slice_request, State.WAITING_FOR_ROOM, waiting_reason=reason, **detail)


@transaction.atomic(durable=True)
def start_next_change(allocation_id: int) -> bool:
    """Open the operation for the next change that a reservation still needs; False if none.

    Raises `ServiceError` while its node is being changed for somebody else.
    """
    allocation = allocations.locked(allocation_id)
    if allocation.state != Allocation.State.RESERVED or not allocation.pending_changes:
        return False
    change, *rest = allocation.pending_changes
    gpu = Gpu.objects.select_related("node", "model").get(uuid=change["gpu"])
    executor, desired = executor_for(gpu.node), change["desired"]
    if executor == Operation.Executor.MIG_MANAGER:
        desired = _by_counts(gpu, desired)
        allocation.placements = _moved(allocation.placements, gpu.uuid, desired)
    operations.open_operation(
        Change(
            gpu=gpu,
            desired=desired,
            executor=executor,
            slice_request=allocation.slice_request,
        ),
        actor=allocation.slice_request.decided_by,
    )
    allocation.pending_changes = rest
    allocation.save(update_fields=["pending_changes", "placements"])
    if allocation.slice_request.waiting_reason:
        requests.set_state(allocation.slice_request, State.BEING_MADE)
    return True


@transaction.atomic(durable=True)
def mark_ready(request_id: int) -> None:
    """Say that the slice can be used: rights granted, quota written and tested."""
    slice_request = SliceRequest.objects.select_for_update().get(pk=request_id)
    if slice_request.state != State.BEING_MADE:
        return
    requests.set_state(slice_request, State.READY)
    audit.record("request.ready", f"request/{slice_request.pk}", actor=None)
    dispatch.announce("gpus", "overview")


@transaction.atomic(durable=True)
def mark_held_up(request_id: int, reason: str, **detail: Any) -> None:  # noqa: ANN401  # JSON
    """Say what keeps a slice that is being made from being ready."""
    slice_request = SliceRequest.objects.select_for_update().get(pk=request_id)
    if slice_request.state != State.BEING_MADE:
        return
    if (slice_request.waiting_reason, slice_request.waiting_detail) != (reason, detail):
        requests.set_state(slice_request, State.BEING_MADE, waiting_reason=reason, **detail)


def _waiting(request_id: int) -> SliceRequest | None:
    slice_request = (
        SliceRequest.objects.select_for_update(of=("self",))
        .select_related("offering", "tenant")
        .get(pk=request_id)
    )
    return slice_request if slice_request.state == State.WAITING_FOR_ROOM else None


def _grant(option: Option, offering: Offering) -> Grant:
    kind, beside = option.kind, option.beside
    return Grant(
        model=GpuModel.objects.get(product=kind.product),
        resource_name=kind.resource_name,
        profile=kind.profile or "",
        memory_mib=kind.memory_mib,
        compute=kind.compute,
        cpu_milli=offering.cpu_milli or (beside.cpu_milli if beside else 0) or _LEAST_CPU_MILLI,
        ram_mib=offering.memory_mib or (beside.ram_mib if beside else 0) or _LEAST_MIB,
        storage_mib=offering.storage_mib or (beside.storage_mib if beside else 0),
        placements=_placements(option),
        pending_changes=[_pending(change) for change in option.changes],
    )


def _placements(option: Option) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = []
    for site in option.sites:
        if site.instance is not None:
            profile, start = site.instance.profile, site.instance.start
            places.append({"gpu": site.gpu_uuid, "profile": profile, "start": start})
        elif option.kind.profile is None:
            places.append({"gpu": site.gpu_uuid, "profile": "", "start": 0})
    for change in option.changes:
        places += [
            {"gpu": change.gpu_uuid, "profile": item.profile, "start": item.start}
            for item in change.plan.created
            if item.profile == option.kind.profile
        ][: change.creates]
    return places


def _by_counts(gpu: Gpu, desired: dict[str, Any]) -> dict[str, Any]:
    """Return a layout as mig-manager makes it, which is told counts and not places."""
    table = table_of(gpu.model)
    pairs = [(str(profile), int(start)) for profile, start in desired["instances"]]
    landing = likely_landing(table, pairs) if table else None
    if landing is None:
        return desired
    ordered = sorted(landing, key=lambda pair: pair[1])
    return {**desired, "instances": [list(pair) for pair in ordered]}


def _moved(
    placements: list[dict[str, Any]], uuid: str, desired: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return what was remembered to be cut for a right, at the places where it will lie."""
    starts: dict[str, list[int]] = {}
    for profile, start in reversed(desired["instances"]):
        starts.setdefault(profile, []).append(start)
    return [
        {**place, "start": starts[place["profile"]].pop()}
        if place["gpu"] == uuid and starts.get(place["profile"])
        else place
        for place in placements
    ]


def _pending(change: GpuChange) -> dict[str, Any]:
    instances = [[item.profile, item.start] for item in change.plan.layout]
    is_mig = bool(instances) or not change.plan.switches_mode
    return {"gpu": change.gpu_uuid, "desired": {"mig": is_mig, "instances": instances}}
