"""What is past its end, and namespaces whose quota does not follow the ledger yet."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from gpu.models import Allocation, NamespaceQuota, SliceRequest
from gpu.services import allocations, namespaces, requests
from tenants.models import Tenant


def overdue_allocation_ids(now: datetime) -> list[int]:
    """Return active allocations whose end has passed, oldest end first."""
    rows = Allocation.objects.filter(state=Allocation.State.ACTIVE, ends_at__lte=now)
    return list(rows.order_by("ends_at").values_list("pk", flat=True))


@transaction.atomic(durable=True)
def end_overdue_allocation(allocation_id: int) -> None:
    """End one allocation that is past its end; nothing happens if it has ended meanwhile."""
    request_id = Allocation.objects.values_list("slice_request_id", flat=True).get(pk=allocation_id)
    slice_request = SliceRequest.objects.select_for_update().get(pk=request_id)
    allocation = allocations.locked(allocation_id)
    now = timezone.now()
    if allocation.state != Allocation.State.ACTIVE or (allocation.ends_at or now) > now:
        return
    allocations.end_allocation(allocation, now=now, actor=None, reason="past its end")
    requests.set_state(slice_request, SliceRequest.State.ENDED)


def tenants_out_of_step() -> list[int]:
    """Return tenants whose namespace carries another quota than the ledger says."""
    written = dict(NamespaceQuota.objects.values_list("tenant_id", "hard"))
    concerned = set(written) | set(
        Allocation.objects.filter(state=Allocation.State.ACTIVE).values_list("tenant_id", flat=True)
    )
    return [
        tenant.pk
        for tenant in Tenant.objects.filter(pk__in=concerned).order_by("pk")
        if namespaces.amounts_of(tenant).hard() != written.get(tenant.pk)
    ]
