"""After a failure: put back what was, or say exactly what is left to do by hand."""

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu.executors.nvidia_smi import Target
from gpu.manifests import OPERATION_LABEL
from gpu.models import Operation
from gpu.objects import PodObject
from gpu.ports import POD, Scope
from gpu.reconcilers import applying, proving
from gpu.reconcilers.looks import Again, Context, Go, Look
from gpu.services import operations

State = Operation.State


type Phases = Mapping[str, Callable[[Context], Look]]


def roll_back(context: Context) -> Look:
    """Put the layout back that was there before."""
    return go_back(context, _PHASES)


def go_back(context: Context, phases: Phases) -> Look:
    """Do the present phase of a roll-back; phases are remembered across crashes."""
    phase = context.recall("back")
    if phase is None:
        operations.remember(
            context.operation,
            back="pods",
            open_probe=None,
            open_apply=None,
            plugin_uids=None,
        )
        return Again()
    look = phases[phase](context)
    if not isinstance(look, Go) or look.state in Operation.FINAL_STATES:
        return look
    operations.remember(context.operation, back=look.state)
    return Again(_prefixed(look.evidence))


def clear_pods(context: Context) -> Look:
    """Remove verification Pods, whatever they do: they hold devices that have to go."""
    scope = Scope(
        settings.SYSTEM_NAMESPACE, label_selector=f"{OPERATION_LABEL}={context.operation.pk}"
    )
    for item in context.cluster.list(POD, scope).items:
        pod = PodObject.from_manifest(item)
        if pod.owner_kind != "Job":
            context.cluster.delete(POD, pod.name, pod.namespace, grace_s=0)
    return Go("layout" if context.recall("has_written") else "node")


def _restore_layout(context: Context) -> Look:
    previous = context.operation.previous or {"mig": False, "instances": []}
    return applying.bring_to(context, Target.from_json(previous), "plugin")


def restart_plugin(context: Context) -> Look:
    """Replace the plugin's Pod once more, so that it offers what was put back."""
    return proving.replace_plugin(context, "allocatable")


def await_allocatable(context: Context) -> Look:
    """Wait until the node offers what it offered before."""
    return proving.allocatable_reached(context, "node")


def give_back(context: Context) -> Look:
    """Take our cordon away and end rolled back."""
    look = proving.give_back(context, State.ROLLED_BACK)
    if isinstance(look, Go):
        return Go(look.state, look.evidence, message=_("Everything is as it was before."))
    return look


def _prefixed(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {f"restored_{key}": value for key, value in evidence.items()}


_PHASES: Phases = {
    "pods": clear_pods,
    "layout": _restore_layout,
    "plugin": restart_plugin,
    "allocatable": await_allocatable,
    "node": give_back,
}
