"""Taking a change of sharing back: the label returns to the configuration of before."""

from gpu.reconcilers import rolling_back, sharing
from gpu.reconcilers.looks import Context, Go, Look
from gpu.reconcilers.rolling_back import Phases
from gpu.services import operations


def roll_back(context: Context) -> Look:
    """Give the node its former configuration again, and see that it offers what it offered."""
    return rolling_back.go_back(context, _PHASES)


def _move_label_back(context: Context) -> Look:
    look = sharing.move_label(
        context,
        source=context.recall("target_label"),
        target=context.recall("previous_label"),
        then="plugin",
    )
    if isinstance(look, Go):
        operations.remember(context.operation, expected=context.recall("expected_before"))
    return look


_PHASES: Phases = {
    "pods": rolling_back.clear_pods,
    "layout": _move_label_back,
    "plugin": rolling_back.restart_plugin,
    "allocatable": rolling_back.await_allocatable,
    "node": rolling_back.give_back,
}
