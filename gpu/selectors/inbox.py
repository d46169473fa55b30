"""Requests that wait for somebody's decision, and what a yes would cost the tenant's quota."""

from dataclasses import dataclass

from django.db import models
from django.db.models import QuerySet

from gpu.models import SliceRequest
from tenants.models import Tenant, User
from tenants.permissions import Capability
from tenants.selectors import tenant_ids_where


@dataclass(frozen=True, slots=True)
class Meter:
    """One amount of a tenant's quota: granted now, after a yes, and the limit; one unit for all."""

    before: int
    after: int
    limit: int

    @property
    def is_exceeded(self) -> bool:
        """Say whether a yes would go beyond the limit."""
        return self.after > self.limit

    @property
    def before_percent(self) -> int:
        """Return the part of the limit that is granted now, 0 to 100."""
        return _percent(self.before, self.limit)

    @property
    def added_percent(self) -> int:
        """Return the part of the limit that a yes adds, at most up to 100 together."""
        return min(_percent(self.after, self.limit), 100) - self.before_percent


@dataclass(frozen=True, slots=True)
class QuotaImpact:
    """What a yes does to a tenant's quota: memory in MiB, compute in thousandths of a seventh.

    `compute` is None where the kind of slice is not known before it is placed.
    """

    memory: Meter
    compute: Meter | None

    @property
    def is_exceeded(self) -> bool:
        """Say whether either amount would go beyond its limit."""
        return self.memory.is_exceeded or (self.compute is not None and self.compute.is_exceeded)


def may_decide_somewhere(user: User) -> bool:
    """Say whether the person has an inbox at all; at most one query."""
    return user.may(Capability.DECIDE_REQUESTS) or bool(
        tenant_ids_where(user, Capability.DECIDE_REQUESTS)
    )


def requests_to_decide(user: User) -> QuerySet[SliceRequest]:
    """Return what waits for this person's decision, the longest wait first; else it raises."""
    rows = SliceRequest.objects.filter(state=SliceRequest.State.WAITING_FOR_APPROVAL)
    if not user.may(Capability.DECIDE_REQUESTS):
        rows = rows.filter(tenant__in=tenant_ids_where(user, Capability.DECIDE_REQUESTS))
    return (
        rows.select_related("tenant", "requester", "offering", "gpu_model")
        .order_by("submitted_at", "pk")
        .fetch_mode(models.FETCH_RAISE)
    )


def impact_on(tenant: Tenant, *, memory_mib: int, compute: int | None) -> QuotaImpact:
    """Return what granting so much more, all slices together, would do to a quota."""
    memory = Meter(
        tenant.memory_granted_mib, tenant.memory_granted_mib + memory_mib, tenant.memory_limit_mib
    )
    if compute is None:
        return QuotaImpact(memory, None)
    return QuotaImpact(
        memory,
        Meter(tenant.compute_granted, tenant.compute_granted + compute, tenant.compute_limit),
    )


def _percent(part: int, whole: int) -> int:
    if whole <= 0:
        return 100 if part else 0
    return min(100, round(100 * part / whole))
