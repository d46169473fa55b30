"""After mig-manager: the plugin where its labels do not reach it, and the way back."""

from django.utils.translation import gettext_noop as _

from gpu.executors.mig_manager import BUSY_STATES
from gpu.executors.nvidia_smi import Target
from gpu.manifests import MIG_STATE_LABEL
from gpu.models import Operation
from gpu.planning.observed import ObservedNode
from gpu.reconcilers import mig_manager_applying as asking
from gpu.reconcilers import probing, proving, rolling_back
from gpu.reconcilers.looks import Again, Context, Fail, Go, Look, Wait
from gpu.services import operations

State = Operation.State

_POLL_S = 0.5


def restart_plugin(context: Context) -> Look:
    """Replace the plugin's Pod unless mig-manager did: it finds only the operator's own."""
    return _replace_plugin(context, State.AWAITING_ALLOCATABLE)


def roll_back(context: Context) -> Look:
    """Ask for the configuration that was there before, and resume what was left paused."""
    return rolling_back.go_back(context, _PHASES)


def _replace_plugin(context: Context, then: str) -> Look:
    if asking.restore_labels(context):
        return Again({"resumed": True})
    if context.recall("plugin_uids") is None:
        before = set(context.recall("plugins_before") or ())
        pods = [pod for pod in proving.plugin_pods(context) if not pod.is_deleting]
        if not pods:
            return Wait(_POLL_S, _("The device plugin is starting anew."))
        fresh = [pod for pod in pods if pod.uid not in before]
        if len(fresh) == len(pods):
            if not all(pod.is_ready for pod in fresh):
                return Wait(_POLL_S, _("The device plugin is starting anew."))
            return Go(then, {"device_plugin_pod": fresh[0].key, "restarted_by": "mig-manager"})
    return proving.replace_plugin(context, then)


def _restore_layout(context: Context) -> Look:
    """Go back, unless counts cannot make what was there: then a person has to."""
    if not context.recall("mig_labels_resumed"):
        asking.restore_labels(context)
        operations.remember(context.operation, mig_labels_resumed=True)
    if not context.recall("mig_can_return") and not context.recall("mig_back_asked"):
        look = _see_that_nothing_was_changed(context)
        if look is not None:
            return look
    return asking.restore(context, "plugin")


def _see_that_nothing_was_changed(context: Context) -> Look | None:
    """Return why it cannot go back; None when the GPU still is as it was, so that it can."""
    node = context.node()
    if node.labels.get(MIG_STATE_LABEL) in BUSY_STATES:
        return _by_hand(context)
    observed = probing.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    gpu = observed.gpu(context.operation.changed_gpu.uuid)
    if gpu is None or Target.of(gpu).to_json() != context.operation.previous:
        return _by_hand(context)
    operations.remember(context.operation, mig_back_asked=True, open_probe=None)
    return None


def _by_hand(context: Context) -> Fail:
    return Fail(
        "no_way_back",
        _(
            "mig-manager is told counts, not places, so it cannot bring back the layout that GPU"
            " %(gpu)s had; the steps below do it by hand."
        ),
        {"gpu": context.operation.changed_gpu.index},
    )


def _restart_plugin(context: Context) -> Look:
    # Whatever was restarted on the way may have listed the layout that failed.
    if asking.restore_labels(context):
        return Again()
    return rolling_back.restart_plugin(context)


_PHASES: rolling_back.Phases = {
    "pods": rolling_back.clear_pods,
    "layout": _restore_layout,
    "plugin": _restart_plugin,
    "allocatable": rolling_back.await_allocatable,
    "node": rolling_back.give_back,
}
