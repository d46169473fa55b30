"""The main job once, end to end, by the very services and workers that the pages use."""

import time
from collections.abc import Callable
from datetime import datetime

from django.utils import timezone

from gpu.models import Allocation, Offering, SliceRequest
from gpu.ports import Cluster
from gpu.reconcilers import operations, queue
from gpu.selectors import fit
from gpu.selectors.progress import milestones
from gpu.services import requests
from gpu.services.operations import due_operation_ids
from portal import health
from tenants.models import Tenant, User
from tenants.permissions import Capability

_POLL_S = 0.2
_PATIENCE_S = 8.0

_WORDS = {
    "submitted": "request submitted",
    "approved": "request approved",
    "operation.planned": "change of a GPU planned",
    "operation.approved": "node and GPU checked",
    "operation.cordoning": "node cordoned",
    "operation.draining": "nobody in the way",
    "operation.applying": "GPU instance cut on the node",
    "operation.restarting_plugin": "device plugin restarted",
    "operation.awaiting_allocatable": "kubelet reports the new devices",
    "operation.verifying": "seen from inside verification Pods",
    "operation.uncordoning": "node given back to the scheduler",
    "allocated": "slice granted to the tenant",
    "ready": "quota written and tested: slice ready",
}


class TourError(RuntimeError):
    """The tour cannot be played to its end; the text says why."""


def play(cluster: Cluster, *, say: Callable[[str], None], timeout_s: float, keeps: bool) -> None:
    """Submit, approve, and follow one request until its slice is ready."""
    started = timezone.now()
    researcher, admin, tenant, offering = _cast()
    slice_request = requests.submit_request(
        requests.Wish(
            tenant=tenant,
            offering=offering,
            memory_mib=fit.memory_that_needs_a_change(),
            count=1,
            days=3,
            purpose="Tour: fine-tuning a small vision model",
        ),
        actor=researcher,
    )
    say(
        f"{researcher.display_name} of {tenant.name} asks for one isolated slice of"
        f" {slice_request.memory_mib / 1024:.0f} GiB (request {slice_request.pk})."
    )
    requests.approve_request(slice_request.pk, actor=admin, reason="Tour")
    _follow(slice_request.pk, cluster, say, started, timeout_s)
    allocation = Allocation.objects.select_related("pool__model").get(slice_request=slice_request)
    say(
        f"Ready: {allocation.count} x {allocation.pool.resource_name} on"
        f" {allocation.pool.model.name} in namespace {tenant.namespace},"
        f" until {allocation.ends_at:%Y-%m-%d %H:%M} UTC."
    )
    if not keeps:
        requests.release_slice(slice_request.pk, actor=researcher, reason="End of the tour")
        say("Given back, so that the tour can be played again.")


def _cast() -> tuple[User, User, Tenant, Offering]:
    tenant = Tenant.objects.filter(memberships__role="researcher").order_by("pk").first()
    offering = Offering.objects.filter(isolation="isolated", is_active=True).first()
    admin = next((u for u in User.objects.all() if u.may(Capability.CHANGE_GPUS)), None)
    if tenant is None or offering is None or admin is None:
        msg = "There are no people or offerings yet: run `manage.py seed_demo` first."
        raise TourError(msg)
    researcher = User.objects.filter(
        memberships__tenant=tenant, memberships__role="researcher"
    ).first()
    if researcher is None:
        msg = f"{tenant.name} has no researcher: run `manage.py seed_demo` first."
        raise TourError(msg)
    return researcher, admin, tenant, offering


def _follow(
    request_id: int,
    cluster: Cluster,
    say: Callable[[str], None],
    started: datetime,
    timeout_s: float,
) -> None:
    shown = 0
    end = time.monotonic() + timeout_s
    last_news = time.monotonic()
    while True:
        slice_request = SliceRequest.objects.select_related("allocation").get(pk=request_id)
        found = milestones(slice_request)
        for milestone in found[shown:]:
            seconds = (milestone.at - started).total_seconds()
            mark = "FAILED " if milestone.is_failure else ""
            say(f"  {seconds:6.1f} s  {mark}{_WORDS.get(milestone.code, milestone.code)}")
            last_news = time.monotonic()
        shown = len(found)
        if slice_request.state == SliceRequest.State.READY:
            return
        _refuse_dead_ends(slice_request)
        if time.monotonic() > end:
            msg = (
                f"Request {request_id} is still {slice_request.get_state_display()} after"
                f" {timeout_s:.0f} s; its page says what it waits for."
            )
            raise TourError(msg)
        if _is_alone() and time.monotonic() - last_news > _PATIENCE_S / 8:
            _drive(request_id, cluster)
        time.sleep(_POLL_S)


def _refuse_dead_ends(slice_request: SliceRequest) -> None:
    waits_for_ever = {"never", "quota"}
    if slice_request.waiting_reason in waits_for_ever:
        msg = f"The request cannot be served: {slice_request.waiting_reason}."
        raise TourError(msg)


def _is_alone() -> bool:
    return "worker" in health.broken_parts()


def _drive(request_id: int, cluster: Cluster) -> None:
    """Do a worker's part where none is alive, so that the tour also plays without one."""
    for operation_id in due_operation_ids(timezone.now()):
        operations.advance(operation_id, cluster=cluster)
    queue.advance_request(request_id, cluster=cluster)
