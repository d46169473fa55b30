"""Drives one operation forward: observe, do one step, write down, until it has to wait."""

import uuid
from collections.abc import Callable

import structlog
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gpu.executors.nvidia_smi import UnreachableLayoutError
from gpu.executors.probing import UnreadableProbeError
from gpu.models import Operation
from gpu.planning.errors import PlanningError
from gpu.ports import Cluster, ClusterError, ConflictError, RefusedError
from gpu.reconcilers import (
    applying,
    mig_manager,
    mig_manager_applying,
    mig_manager_back,
    planned,
    preparing,
    proving,
    rolling_back,
    sharing,
    sharing_back,
)
from gpu.reconcilers.looks import Again, Context, Fail, Go, Look, Wait
from gpu.services import operations, outcomes
from gpu.services.operations import LeaseLostError, Progress

_log = structlog.get_logger(__name__)

State = Operation.State

type _Handlers = dict[str, Callable[[Context], Look]]

_COMMON: _Handlers = {
    State.PLANNED: planned.begin,
    State.CORDONING: preparing.cordon,
    State.DRAINING: preparing.drain,
    State.RESTARTING_PLUGIN: proving.restart_plugin,
    State.AWAITING_ALLOCATABLE: proving.await_allocatable,
    State.VERIFYING: proving.verify,
    State.UNCORDONING: proving.uncordon,
    State.ROLLING_BACK: rolling_back.roll_back,
}
_HANDLERS: dict[str, _Handlers] = {
    Operation.Executor.NVIDIA_SMI: {
        **_COMMON,
        State.APPROVED: preparing.check,
        State.APPLYING: applying.apply,
    },
    Operation.Executor.MIG_MANAGER: {
        **_COMMON,
        State.APPROVED: mig_manager.check,
        State.APPLYING: mig_manager_applying.apply,
        State.RESTARTING_PLUGIN: mig_manager_back.restart_plugin,
        State.ROLLING_BACK: mig_manager_back.roll_back,
    },
    Operation.Executor.DEVICE_PLUGIN: {
        **_COMMON,
        State.APPROVED: sharing.check,
        State.APPLYING: sharing.apply,
        State.VERIFYING: sharing.verify,
        State.ROLLING_BACK: sharing_back.roll_back,
    },
}
_LATE = {
    State.DRAINING: _("The Pods in the way did not end in time; nothing was changed."),
    State.APPLYING: _("The Job on the node did not end in time."),
    State.RESTARTING_PLUGIN: _("The device plugin did not come back in time."),
    State.AWAITING_ALLOCATABLE: _("The node did not report its new devices in time."),
    State.VERIFYING: _("The verification Pods did not end in time."),
    State.UNCORDONING: _("The node could not be given back to the scheduler in time."),
    State.ROLLING_BACK: _("The roll-back did not end in time."),
}
_LATE_BY_EXECUTOR = {
    (Operation.Executor.MIG_MANAGER, State.APPLYING): _("mig-manager did not end in time."),
}
_MAX_ROUNDS = 100
_RETRY_S = (0.5, 1.0, 2.0, 5.0)


def advance(operation_id: int, *, cluster: Cluster) -> None:
    """Move an operation as far as it goes; safe to call at any time and from any worker."""
    operation = operations.claim_operation(operation_id, holder=str(uuid.uuid4()))
    if operation is None:
        return
    with structlog.contextvars.bound_contextvars(operation=operation_id):
        try:
            _drive(operation, cluster)
        except LeaseLostError:
            _log.warning("operation.lease_lost")


def _drive(operation: Operation, cluster: Cluster) -> None:
    for _round in range(_MAX_ROUNDS):
        if operation.is_finished:
            break
        look = _look(operation, cluster)
        _log.info("operation.look", state=operation.state, look=type(look).__name__)
        if isinstance(look, Wait):
            operations.report(operation, Progress(message=look.message, params=dict(look.params)))
            operations.release_lease(operation, look_again_in_s=look.seconds)
            return
        operation = _record(operation, look)
    operations.release_lease(operation, look_again_in_s=0)


def _look(operation: Operation, cluster: Cluster) -> Look:
    if operation.deadline_at is not None and timezone.now() > operation.deadline_at:
        return Fail("deadline", _late(operation))
    try:
        return _HANDLERS[operation.executor][operation.state](Context(operation, cluster))
    except RefusedError as error:
        return Fail("refused", _("The cluster refused: %(error)s"), {"error": str(error)})
    except ClusterError as error:
        message = _("The cluster does not answer: %(error)s")
        if isinstance(error, ConflictError):
            message = _("Somebody else changed an object: %(error)s")
        return Wait(_retry_in(operation), message, {"error": str(error)})
    except (PlanningError, UnreachableLayoutError, UnreadableProbeError) as error:
        return Fail("unplannable", "%(error)s", {"error": str(error)})


def _late(operation: Operation) -> str:
    state, executor = State(operation.state), Operation.Executor(operation.executor)
    general = _LATE.get(state, _("It took too long."))
    return _LATE_BY_EXECUTOR.get((executor, state), general)


def _retry_in(operation: Operation) -> float:
    return _RETRY_S[min(operation.attempts, len(_RETRY_S) - 1)]


def _record(operation: Operation, look: Go | Again | Fail) -> Operation:
    progress = Progress(list(look.commands), dict(look.evidence), look.message, dict(look.params))
    match look:
        case Again():
            operations.report(operation, progress)
            return operation
        case Go(state=state) if state in Operation.FINAL_STATES:
            return outcomes.finish(operation, state, progress)
        case Go(state=state):
            return operations.move(operation, state, progress)
        case Fail(code=code):
            return _fail(operation, code, progress)


def _fail(operation: Operation, code: str, progress: Progress) -> Operation:
    state = State(operation.state)
    if state == State.PLANNED:
        return operations.fail(operation, State.ROLLED_BACK, code, progress)
    if state in {State.ROLLING_BACK, State.UNCORDONING}:
        return outcomes.give_up(operation, code, progress)
    return operations.fail(operation, State.ROLLING_BACK, code, progress)
