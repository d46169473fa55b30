"""The only ways to get at tenants from user input."""

from django.http import Http404

from tenants import permissions
from tenants.models import Membership, Tenant, TenantQuerySet, User
from tenants.permissions import Capability


def tenants_visible_to(user: User) -> TenantQuerySet:
    """Return the tenants that the person may know of, by name."""
    return Tenant.objects.visible_to(user).order_by("name")


def tenants_requestable_by(user: User) -> TenantQuerySet:
    """Return the tenants in whose name the person may ask for slices, by name."""
    return Tenant.objects.filter(memberships__user=user).order_by("name")


def get_tenant_for(user: User, slug: str) -> Tenant:
    """Return one tenant; strangers get the same 404 as for a tenant that does not exist."""
    tenant = Tenant.objects.visible_to(user).filter(slug=slug).first()
    if tenant is None:
        raise Http404
    return tenant


def may_in_tenant(user: User, tenant: Tenant, capability: Capability) -> bool:
    """Say whether the person may do something in that tenant, by site role or membership."""
    if user.may(capability):
        return True
    role = (
        Membership.objects.filter(user=user, tenant=tenant).values_list("role", flat=True).first()
    )
    return capability in permissions.of_tenant_role(role)


def tenant_ids_where(user: User, capability: Capability) -> set[int]:
    """Return the tenants in which the person's membership alone gives the capability."""
    rows = Membership.objects.filter(user=user).values_list("tenant_id", "role")
    return {pk for pk, role in rows if capability in permissions.of_tenant_role(role)}


def capabilities_of(user: User) -> frozenset[Capability]:
    """Return all that the person may do somewhere; for navigation, never for access."""
    found = permissions.of_site_role(user.role)
    for role in Membership.objects.filter(user=user).values_list("role", flat=True):
        found |= permissions.of_tenant_role(role)
    return found
