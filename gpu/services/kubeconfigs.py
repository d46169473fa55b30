"""Who may have a kubeconfig for a tenant's namespace, and the trail of those handed out."""

from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from gpu.models import Allocation, SliceRequest
from gpu.services.errors import NotAllowedError, WrongStateError
from portal.audit import services as audit
from tenants.models import Membership, User


def may_have_kubeconfig(user: User, tenant_id: int) -> bool:
    """Say whether a person is a member of the tenant; nobody else works in its namespace."""
    return Membership.objects.filter(user=user, tenant_id=tenant_id).exists()


def check_kubeconfig(request_id: int, *, actor: User) -> SliceRequest:
    """Return the request with its tenant and allocation if the person may have a kubeconfig now.

    Raises:
        NotAllowedError: the person is no member of the tenant.
        WrongStateError: the slice is not ready, or has ended.
    """
    found = SliceRequest.objects.select_related("tenant", "allocation").get(pk=request_id)
    if not may_have_kubeconfig(actor, found.tenant_id):
        raise NotAllowedError(_("Only members of the tenant get a kubeconfig for its namespace."))
    allocation = getattr(found, "allocation", None)
    if allocation is None or allocation.state != Allocation.State.ACTIVE:
        raise WrongStateError(_("This slice is not ready."))
    return found


@transaction.atomic(durable=True)
def record_kubeconfig(slice_request: SliceRequest, *, actor: User, ends_at: datetime) -> None:
    """Note who was given a token and until when it works; the token itself is kept nowhere."""
    audit.record(
        "kubeconfig.issued",
        f"tenant/{slice_request.tenant_id}",
        actor=actor,
        namespace=slice_request.tenant.namespace,
        request=slice_request.pk,
        ends_at=ends_at.isoformat(),
    )
