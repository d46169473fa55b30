"""Who may do what: a table from roles to capabilities, and nothing else."""

from enum import StrEnum


class SiteRole(StrEnum):
    """What a person is for the whole portal."""

    RESEARCHER = "researcher"
    MANAGER = "manager"
    ADMIN = "admin"


class TenantRole(StrEnum):
    """What a person is within one tenant."""

    RESEARCHER = "researcher"
    LEAD = "lead"


class Capability(StrEnum):
    """One kind of thing that pages and services ask for."""

    REQUEST_SLICES = "request_slices"
    DECIDE_REQUESTS = "decide_requests"
    SEE_CLUSTER = "see_cluster"
    CHANGE_GPUS = "change_gpus"
    SEE_OVERVIEW = "see_overview"
    SEE_ALL_TENANTS = "see_all_tenants"


_OF_SITE_ROLE = {
    SiteRole.RESEARCHER: frozenset[Capability](),
    SiteRole.MANAGER: frozenset({Capability.SEE_OVERVIEW, Capability.SEE_ALL_TENANTS}),
    SiteRole.ADMIN: frozenset(Capability) - {Capability.REQUEST_SLICES},
}
_OF_TENANT_ROLE = {
    TenantRole.RESEARCHER: frozenset({Capability.REQUEST_SLICES}),
    TenantRole.LEAD: frozenset({Capability.REQUEST_SLICES, Capability.DECIDE_REQUESTS}),
}


def of_site_role(role: str) -> frozenset[Capability]:
    """Return what a role may do everywhere."""
    return _OF_SITE_ROLE[SiteRole(role)]


def of_tenant_role(role: str | None) -> frozenset[Capability]:
    """Return what a membership adds within its tenant; nothing without a membership."""
    return _OF_TENANT_ROLE[TenantRole(role)] if role else frozenset()
