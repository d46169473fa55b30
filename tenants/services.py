"""Changing tenants and memberships."""

from django.db import transaction

from portal.audit import services as audit
from tenants.models import Membership, Tenant, User


class QuotaBelowGrantsError(ValueError):
    """A quota cannot fall below what is granted; end allocations first."""


@transaction.atomic
def create_tenant(
    *, slug: str, name: str, memory_limit_mib: int, compute_limit: int, actor: User | None
) -> Tenant:
    """Create a tenant whose namespace is named after it."""
    tenant = Tenant.objects.create(
        slug=slug,
        name=name,
        namespace=f"team-{slug}",
        memory_limit_mib=memory_limit_mib,
        compute_limit=compute_limit,
    )
    audit.record(
        "tenant.created",
        f"tenant/{slug}",
        actor=actor,
        memory_limit_mib=memory_limit_mib,
        compute_limit=compute_limit,
    )
    return tenant


@transaction.atomic
def add_member(tenant: Tenant, user: User, *, role: str, actor: User | None) -> Membership:
    """Give a person a role in a tenant, replacing an earlier one."""
    membership, _created = Membership.objects.update_or_create(
        tenant=tenant, user=user, defaults={"role": role}
    )
    audit.record(
        "tenant.member_set", f"tenant/{tenant.slug}", actor=actor, user=user.username, role=role
    )
    return membership


@transaction.atomic
def change_quota(
    tenant: Tenant, *, memory_limit_mib: int, compute_limit: int, actor: User | None
) -> Tenant:
    """Set a tenant's quota; `QuotaBelowGrantsError` when more is granted than that."""
    locked = Tenant.objects.select_for_update().get(pk=tenant.pk)
    if memory_limit_mib < locked.memory_granted_mib or compute_limit < locked.compute_granted:
        msg = f"{locked.name} holds more than the new quota; end some of its slices first."
        raise QuotaBelowGrantsError(msg)
    before = {"memory_limit_mib": locked.memory_limit_mib, "compute_limit": locked.compute_limit}
    locked.memory_limit_mib = memory_limit_mib
    locked.compute_limit = compute_limit
    locked.save(update_fields=["memory_limit_mib", "compute_limit"])
    audit.record(
        "tenant.quota_changed",
        f"tenant/{locked.slug}",
        actor=actor,
        before=before,
        after={"memory_limit_mib": memory_limit_mib, "compute_limit": compute_limit},
    )
    return locked
