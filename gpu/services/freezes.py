"""Times in which no change may start: set and lifted by admins, heeded by every new operation."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from gpu import dispatch
from gpu.models import ChangeFreeze, Node
from gpu.services.errors import ServiceError, WrongStateError
from portal.audit import services as audit
from tenants.models import User


class FrozenError(ServiceError):
    """No change may start on the node now; the text says why and until when."""

    def __init__(self, message: object, freeze: ChangeFreeze) -> None:
        """Keep the sentence and the freeze that it is about."""
        super().__init__(message)
        self.freeze = freeze


def freeze_on(node: Node, now: datetime) -> ChangeFreeze | None:
    """Return the freeze that holds for a node now, the one that lasts longest."""
    holds = ChangeFreeze.objects.filter(lifted_at=None, ends_at__gt=now)
    return holds.filter(Q(node=None) | Q(node=node)).order_by("-ends_at").first()


def refuse_if_frozen(node: Node, now: datetime) -> None:
    """Raise `FrozenError` when no change may start on the node."""
    freeze = freeze_on(node, now)
    if freeze is not None:
        until = date_format(timezone.localtime(freeze.ends_at), "SHORT_DATETIME_FORMAT")
        raise FrozenError(
            _(
                "No change may start on %(node)s until %(until)s: %(reason)s. Wait until then, or"
                " have an admin lift the freeze."
            )
            % {"node": node.name, "until": until, "reason": freeze.reason},
            freeze,
        )


@transaction.atomic(durable=True)
def freeze(node: Node | None, *, reason: str, ends_at: datetime, actor: User) -> ChangeFreeze:
    """Let no change start on a node, or on any, until an end; what is under way goes on."""
    if ends_at <= timezone.now():
        raise ServiceError(_("The end has passed already; choose a later one."), field="ends_at")
    row = ChangeFreeze.objects.create(
        node=node, reason=reason.strip(), ends_at=ends_at, created_by=actor
    )
    audit.record(
        "freeze.set",
        _target(node),
        actor=actor,
        reason=row.reason,
        until=ends_at.isoformat(),
    )
    _announce(node)
    return row


@transaction.atomic(durable=True)
def lift(freeze_id: int, *, actor: User) -> ChangeFreeze:
    """End a freeze before its time; requests that waited for it go on at once."""
    row = (
        ChangeFreeze.objects.select_for_update(of=("self",))
        .select_related("node")
        .get(pk=freeze_id)
    )
    now = timezone.now()
    if row.lifted_at is not None or row.ends_at <= now:
        raise WrongStateError(_("This freeze has ended already."))
    row.lifted_at = now
    row.save(update_fields=["lifted_at"])
    audit.record("freeze.lifted", _target(row.node), actor=actor, reason=row.reason)
    dispatch.wake(dispatch.RECONCILE_WAITING)
    _announce(row.node)
    return row


def _target(node: Node | None) -> str:
    return f"node/{node.name}" if node else "nodes"


def _announce(node: Node | None) -> None:
    dispatch.announce("operations", "gpus", *([f"node-{node.name}"] if node else []))
