"""An operation that is to start later: whether its time has come, and whether it still may."""

from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gpu.models import Operation
from gpu.reconcilers.looks import Context, Fail, Go, Look, Wait
from gpu.services.freezes import freeze_on

State = Operation.State

_POLL_S = 15.0
_LONGEST_S = 300.0  # a message must not lie in the broker for days


def begin(context: Context) -> Look:
    """Start at the set time, once nothing forbids it, if the GPU is as the preview showed it."""
    operation = context.operation
    now = timezone.now()
    if operation.start_at is not None and operation.start_at > now:
        return Wait(min(_LONGEST_S, (operation.start_at - now).total_seconds()))
    freeze = freeze_on(operation.node, now)
    if freeze is not None:
        return Wait(
            _POLL_S,
            _("No change may start here for now: %(reason)s."),
            {"reason": freeze.reason},
        )
    if Operation.objects.under_way().filter(node=operation.node).exists():
        return Wait(_POLL_S, _("Another operation is under way on this node; it is waited for."))
    expected = context.recall("expected")
    if operation.gpu is not None and expected is not None and _differs(operation, expected):
        return Fail(
            "preview_outdated",
            _(
                "The GPU is not as the preview showed it any more; nothing was changed. Look at"
                " its layout and plan the change anew."
            ),
        )
    return Go(State.APPROVED)


def _differs(operation: Operation, expected: dict[str, object]) -> bool:
    gpu = operation.changed_gpu
    now = {(item.profile, item.start) for item in gpu.instances.all()}
    shown = expected["instances"]
    was = {(str(p), int(s)) for p, s in shown} if isinstance(shown, list) else set()
    return gpu.is_mig_enabled != expected["mig"] or (gpu.is_mig_enabled and now != was)
