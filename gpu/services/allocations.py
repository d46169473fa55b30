"""Granting, reserving and ending rights to resources.

Everything here runs in the caller's transaction and locks in one order: tenant, then pool. The
database's own constraints refuse what the checks here might miss.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from gpu import dispatch
from gpu.models import Allocation, GpuModel, ResourcePool, SliceRequest
from gpu.services.errors import NoRoomError, QuotaExceededError, WrongStateError
from portal.audit import services as audit
from tenants.models import Tenant, User


@dataclass(frozen=True, slots=True)
class Grant:
    """What one request is to get; amounts are for each of its slices.

    GPU memory, RAM and storage in MiB, compute in thousandths of a seventh of a GPU.
    """

    model: GpuModel
    resource_name: str
    profile: str
    memory_mib: int
    compute: int
    cpu_milli: int
    ram_mib: int
    storage_mib: int
    placements: list[dict[str, Any]] = field(default_factory=list)
    pending_changes: list[dict[str, Any]] = field(default_factory=list)


def pool_for(model: GpuModel, resource_name: str) -> ResourcePool:
    """Return the pool's row, locked, creating an empty one where there is none."""
    pool, _created = ResourcePool.objects.get_or_create(model=model, resource_name=resource_name)
    return ResourcePool.objects.select_for_update().get(pk=pool.pk)


def grant_now(slice_request: SliceRequest, grant: Grant, *, now: datetime) -> Allocation:
    """Give free devices away; `NoRoomError` or `QuotaExceededError` when they do not suffice."""
    _charge(slice_request, grant)
    pool = pool_for(grant.model, grant.resource_name)
    if pool.free < slice_request.count:
        raise NoRoomError(_("No free device is left; the request waits for the next one."))
    pool.granted += slice_request.count
    pool.save(update_fields=["granted"])
    return _allocate(slice_request, pool, grant, starts_at=now)


def adopt(slice_request: SliceRequest, grant: Grant, *, now: datetime) -> Allocation:
    """Give a right to what a Pod of the tenant holds already without one."""
    _charge(slice_request, grant)
    pool = pool_for(grant.model, grant.resource_name)
    if pool.foreign < slice_request.count:
        raise NoRoomError(_("Nothing is held there without a right."))
    pool.foreign -= slice_request.count
    pool.granted += slice_request.count
    pool.save(update_fields=["foreign", "granted"])
    return _allocate(slice_request, pool, grant, starts_at=now)


def reserve(slice_request: SliceRequest, grant: Grant) -> Allocation:
    """Keep devices that an operation is about to make for this request alone."""
    _charge(slice_request, grant)
    pool = pool_for(grant.model, grant.resource_name)
    pool.reserved += slice_request.count
    pool.save(update_fields=["reserved"])
    return _allocate(slice_request, pool, grant, starts_at=None)


def locked(allocation_id: int) -> Allocation:
    """Return an allocation with its row locked; whoever changes its state begins here."""
    return (
        Allocation.objects.select_for_update(of=("self",))
        .select_related("slice_request", "pool")
        .get(pk=allocation_id)
    )


def activate(allocation: Allocation, *, now: datetime) -> None:
    """Turn a locked reservation into a grant; `NoRoomError` when the devices are not there."""
    _expect(allocation, Allocation.State.RESERVED)
    pool = ResourcePool.objects.select_for_update().get(pk=allocation.pool_id)
    if pool.capacity - pool.foreign - pool.granted < allocation.count:
        raise NoRoomError(_("The change made fewer devices than were planned."))
    pool.reserved -= allocation.count
    pool.granted += allocation.count
    pool.save(update_fields=["reserved", "granted"])
    allocation.state = Allocation.State.ACTIVE
    allocation.starts_at = now
    allocation.ends_at = now + timedelta(days=allocation.slice_request.days)
    allocation.save(update_fields=["state", "starts_at", "ends_at"])


def cancel_reservation(allocation: Allocation) -> None:
    """Give up a locked reservation whose devices will not be made; it may be placed anew."""
    _expect(allocation, Allocation.State.RESERVED)
    _uncharge(allocation)
    pool = ResourcePool.objects.select_for_update().get(pk=allocation.pool_id)
    pool.reserved -= allocation.count
    pool.save(update_fields=["reserved"])
    allocation.delete()


def end_allocation(
    allocation: Allocation, *, now: datetime, actor: User | None, reason: str = ""
) -> None:
    """End a locked active right: pool and quota get it back, the namespace's quota follows."""
    _expect(allocation, Allocation.State.ACTIVE)
    _uncharge(allocation)
    pool = ResourcePool.objects.select_for_update().get(pk=allocation.pool_id)
    pool.granted -= allocation.count
    pool.shortfall = max(0, pool.granted + pool.foreign - pool.capacity)
    pool.save(update_fields=["granted", "shortfall"])
    allocation.state = Allocation.State.ENDED
    allocation.ended_at = now
    allocation.save(update_fields=["state", "ended_at"])
    audit.record(
        "allocation.ended",
        f"allocation/{allocation.pk}",
        actor=actor,
        reason=reason,
        resource=pool.resource_name,
        count=allocation.count,
    )
    dispatch.wake(dispatch.RECONCILE_NAMESPACE, allocation.tenant_id)
    dispatch.wake(dispatch.RECONCILE_WAITING)
    dispatch.announce("gpus", "overview")


def record_capacity(
    model: GpuModel, resource_name: str, *, capacity: int, foreign: int
) -> ResourcePool:
    """Take over what was observed; what is missing under grants shows up as a shortfall."""
    pool = pool_for(model, resource_name)
    pool.capacity = capacity
    pool.foreign = foreign
    pool.shortfall = max(0, pool.granted + foreign - capacity)
    pool.save(update_fields=["capacity", "foreign", "shortfall"])
    return pool


def _expect(allocation: Allocation, state: str) -> None:
    if allocation.state != state:
        raise WrongStateError(
            _("This slice is %(state)s by now; look at its page again.")
            % {"state": allocation.get_state_display()}
        )


def _charge(slice_request: SliceRequest, grant: Grant) -> None:
    tenant = Tenant.objects.select_for_update().get(pk=slice_request.tenant_id)
    memory = grant.memory_mib * slice_request.count
    compute = grant.compute * slice_request.count
    if tenant.memory_granted_mib + memory > tenant.memory_limit_mib:
        raise QuotaExceededError(_("The tenant's quota of GPU memory does not hold this."))
    if tenant.compute_granted + compute > tenant.compute_limit:
        raise QuotaExceededError(_("The tenant's quota of GPU compute does not hold this."))
    tenant.memory_granted_mib += memory
    tenant.compute_granted += compute
    tenant.save(update_fields=["memory_granted_mib", "compute_granted"])


def _uncharge(allocation: Allocation) -> None:
    Tenant.objects.filter(pk=allocation.tenant_id).update(
        memory_granted_mib=F("memory_granted_mib") - allocation.memory_mib * allocation.count,
        compute_granted=F("compute_granted") - allocation.compute * allocation.count,
    )


def _allocate(
    slice_request: SliceRequest, pool: ResourcePool, grant: Grant, *, starts_at: datetime | None
) -> Allocation:
    return Allocation.objects.create(
        slice_request=slice_request,
        tenant_id=slice_request.tenant_id,
        pool=pool,
        state=Allocation.State.ACTIVE if starts_at else Allocation.State.RESERVED,
        count=slice_request.count,
        profile=grant.profile,
        memory_mib=grant.memory_mib,
        compute=grant.compute,
        cpu_milli=grant.cpu_milli,
        ram_mib=grant.ram_mib,
        storage_mib=grant.storage_mib,
        placements=grant.placements,
        pending_changes=grant.pending_changes,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(days=slice_request.days) if starts_at else None,
    )


def declare_keys(model: GpuModel, resource_names: set[str]) -> set[str]:
    """Make pools for resources that are about to appear; return those that are new to the cluster.

    From then on every namespace's quota names them, with 0 where nothing is granted.
    """
    known = set(ResourcePool.objects.values_list("resource_name", flat=True))
    for name in sorted(resource_names):
        ResourcePool.objects.get_or_create(model=model, resource_name=name)
    return resource_names - known
