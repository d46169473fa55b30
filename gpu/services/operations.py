"""Opening, claiming, moving and closing operations; the only writers of their rows."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from gpu import dispatch
from gpu.models import Gpu, Node, Operation, OperationStep, SliceRequest
from gpu.services import freezes, owners
from gpu.services.errors import ServiceError, WrongStateError
from portal.audit import services as audit
from tenants.models import User

DEADLINES = {
    Operation.State.APPROVED: timedelta(minutes=5),
    Operation.State.CORDONING: timedelta(minutes=2),
    Operation.State.DRAINING: timedelta(hours=24),
    Operation.State.APPLYING: timedelta(minutes=10),
    Operation.State.RESTARTING_PLUGIN: timedelta(minutes=5),
    Operation.State.AWAITING_ALLOCATABLE: timedelta(minutes=5),
    Operation.State.VERIFYING: timedelta(minutes=10),
    Operation.State.UNCORDONING: timedelta(minutes=2),
    Operation.State.ROLLING_BACK: timedelta(minutes=20),
}

CAN_BE_CALLED_OFF = (Operation.State.PLANNED, Operation.State.DRAINING)
_CALLED_OFF = gettext_noop("Called off by %(who)s; nothing was changed.")


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation is to do to a GPU or a node, and what it may do to the Pods in the way.

    `desired` is as `Operation` has it; a change of the whole node has no `gpu`, a change of a GPU
    needs no `node`. `named_pods` are the keys `namespace/name/uid` that the preview showed.
    """

    gpu: Gpu | None
    desired: dict[str, Any]
    node: Node | None = None
    executor: str = Operation.Executor.NVIDIA_SMI
    pods_in_the_way: str = Operation.PodsInTheWay.WAIT
    named_pods: tuple[str, ...] = ()
    reason: str = ""
    slice_request: SliceRequest | None = None
    undoes: Operation | None = None
    start_at: datetime | None = None
    wait_hours: int | None = None
    expected: dict[str, Any] | None = None
    """The layout that the preview showed; a change that starts later asks for it again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a worker has to say about the state that an operation is in."""

    commands: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    params: dict[str, Any] = field(default_factory=dict)


class LeaseLostError(Exception):
    """Another worker has taken the operation over; stop without a word."""


def open_operation(change: Change, *, actor: User | None) -> Operation:
    """Open an operation in the caller's transaction, approved; one open per node."""
    node = Node.objects.select_for_update().get(pk=_node_id(change))
    gpu = None if change.gpu is None else Gpu.objects.select_for_update().get(pk=change.gpu.pk)
    _refuse_if_unfit(node, gpu)
    owners.refuse_if_owned(node)
    freezes.refuse_if_frozen(node, change.start_at or timezone.now())
    try:
        with transaction.atomic():
            operation = _create(change, node, actor)
    except IntegrityError as error:
        raise _busy(node) from error
    audit.record(
        "operation.opened",
        f"node/{node.name}",
        actor=actor,
        reason=change.reason,
        operation=operation.pk,
        gpu=None if gpu is None else gpu.index,
        desired=change.desired,
    )
    dispatch.wake(dispatch.RECONCILE_OPERATION, operation.pk)
    _announce(operation)
    return operation


def _busy(node: Node) -> ServiceError:
    """Return the refusal of a second change, with who is changing the node and what."""
    other = Operation.objects.under_way().select_related("opened_by").filter(node=node).first()
    who = other.opened_by.display_name if other and other.opened_by else _("the portal")
    return ServiceError(
        _(
            "%(node)s is being changed already by %(who)s (operation %(number)s); wait until that"
            " operation has ended."
        )
        % {"node": node.name, "who": who, "number": other.pk if other else "?"}
    )


def _create(change: Change, node: Node, actor: User | None) -> Operation:
    now = timezone.now()
    is_later = change.start_at is not None
    operation = Operation.objects.create(
        node=node,
        gpu=change.gpu,
        executor=change.executor,
        state=Operation.State.PLANNED if is_later else Operation.State.APPROVED,
        desired=change.desired,
        named_pods=list(change.named_pods),
        pods_in_the_way=change.pods_in_the_way,
        slice_request=change.slice_request,
        undoes=change.undoes,
        opened_by=actor,
        reason=change.reason,
        memory=_wishes(change),
        start_at=change.start_at,
        deadline_at=None if is_later else now + DEADLINES[Operation.State.APPROVED],
        next_look_at=change.start_at or now,
    )
    OperationStep.objects.create(
        operation=operation,
        state=Operation.State.PLANNED,
        outcome=OperationStep.Outcome.RUNNING if is_later else OperationStep.Outcome.DONE,
        finished_at=None if is_later else now,
        evidence={"desired": change.desired, "named_pods": list(change.named_pods)},
    )
    return operation


def _wishes(change: Change) -> dict[str, Any]:
    wishes = {"wait_hours": change.wait_hours, "expected": change.expected}
    return {key: value for key, value in wishes.items() if value is not None}


@transaction.atomic(durable=True)
def start_operation(change: Change, *, actor: User) -> Operation:
    """Open an operation that a person has confirmed."""
    return open_operation(change, actor=actor)


@transaction.atomic(durable=True)
def undo_operation(operation_id: int, *, actor: User) -> Operation:
    """Open the operation that puts a GPU back to the layout it had before."""
    operation = Operation.objects.select_related("gpu", "node").get(pk=operation_id)
    if operation.state != Operation.State.DONE or operation.previous is None:
        raise WrongStateError(_("Only a change that is done can be undone."))
    newer = Operation.objects.filter(
        node=operation.node,
        gpu=operation.gpu,
        pk__gt=operation.pk,
        state=Operation.State.DONE,
    )
    if newer.exists():
        raise WrongStateError(_("This GPU has been changed again since; undo the newest change."))
    return open_operation(
        Change(
            node=operation.node,
            gpu=operation.gpu,
            executor=operation.executor,
            desired=operation.previous,
            undoes=operation,
            reason=str(_("Undo of operation %(number)s") % {"number": operation.pk}),
        ),
        actor=actor,
    )


@transaction.atomic(durable=True)
def call_off(operation_id: int, *, actor: User) -> Operation:
    """Stop an operation that is planned or waits for Pods; its node is given back.

    Raises `WrongStateError` once it writes to the GPU: from then on it ends by itself.
    """
    row = Operation.objects.select_for_update(of=("self",)).get(pk=operation_id)
    if row.state not in CAN_BE_CALLED_OFF:
        raise WrongStateError(
            _("This operation cannot be called off any more; undo it when it is done.")
        )
    # A worker that is at it loses its lease here, and with it the right to go on.
    row.lease_holder, row.lease_until, row.next_look_at = "", None, timezone.now()
    row.save(update_fields=["lease_holder", "lease_until", "next_look_at"])
    is_planned = row.state == Operation.State.PLANNED
    state = Operation.State.ROLLED_BACK if is_planned else Operation.State.ROLLING_BACK
    said = Progress(message=_CALLED_OFF, params={"who": actor.display_name})
    audit.record("operation.called_off", f"node/{row.node.name}", actor=actor, operation=row.pk)
    called_off = _record_failure(row, state, "called_off", said)
    Operation.objects.filter(pk=row.pk).update(lease_until=None)
    dispatch.wake(dispatch.RECONCILE_OPERATION, row.pk)
    return called_off


def claim_operation(operation_id: int, *, holder: str) -> Operation | None:
    """Take an operation for one worker for a while; None when it is not due or another has it."""
    now = timezone.now()
    claimed = Operation.objects.due(now).filter(pk=operation_id)
    if claimed.update(lease_until=now + _lease(), lease_holder=holder) != 1:
        return None
    return Operation.objects.select_related("node", "gpu__model", "slice_request").get(
        pk=operation_id
    )


@transaction.atomic(durable=True)
def remember(operation: Operation, **memory: Any) -> None:  # noqa: ANN401  # JSON values
    """Keep facts that must survive a crash, before the effect that depends on them."""
    row = _held(operation)
    row.memory = {**row.memory, **memory}
    row.lease_until = timezone.now() + _lease()
    row.save(update_fields=["memory", "lease_until"])
    operation.memory = row.memory


@transaction.atomic(durable=True)
def set_fact(operation: Operation, **facts: Any) -> None:  # noqa: ANN401  # column values
    """Keep a fact that has a column of its own (`previous`, `was_schedulable`)."""
    row = _held(operation)
    for name, value in facts.items():
        setattr(row, name, value)
        setattr(operation, name, value)
    row.save(update_fields=list(facts))


@transaction.atomic(durable=True)
def report(operation: Operation, progress: Progress) -> None:
    """Write down what has been seen in the present state, without leaving it."""
    row = _held(operation)
    step = _running_step(row)
    _add(step, progress)
    step.save()
    _announce(row)


@transaction.atomic(durable=True)
def move(operation: Operation, state: str, progress: Progress) -> Operation:
    """Close the present step and enter the next state; the lease is renewed."""
    row = _held(operation)
    _close_step(row, OperationStep.Outcome.DONE, progress)
    return _enter(row, state)


@transaction.atomic(durable=True)
def fail(operation: Operation, state: str, code: str, progress: Progress) -> Operation:
    """Close the present step as failed and enter the state that deals with it."""
    return _record_failure(operation, state, code, progress)


def _record_failure(operation: Operation, state: str, code: str, progress: Progress) -> Operation:
    row = _held(operation)
    _close_step(row, OperationStep.Outcome.FAILED, progress)
    if not row.failure_code:
        row.failure_code = code
        row.failure = progress.message
        row.failure_params = progress.params
        row.save(update_fields=["failure_code", "failure", "failure_params"])
    audit.record(
        "operation.failed",
        f"node/{row.node.name}",
        actor=None,
        reason=progress.message % progress.params,
        operation=row.pk,
        state=row.state,
        code=code,
    )
    return _enter(row, state)


def close(operation: Operation, state: str, progress: Progress) -> Operation:
    """Close the last step and the operation with it, in the caller's transaction."""
    row = _held(operation)
    _close_step(row, OperationStep.Outcome.DONE, progress)
    return _enter(row, state)


def close_failed(operation: Operation, code: str, progress: Progress) -> Operation:
    """Close the operation as one that needs a person, in the caller's transaction."""
    return _record_failure(operation, Operation.State.NEEDS_OPERATOR, code, progress)


@transaction.atomic(durable=True)
def release_lease(operation: Operation, *, look_again_in_s: float) -> None:
    """Let the operation go until its next look; a worker is woken then."""
    row = _held(operation)
    row.lease_until = None
    row.lease_holder = ""
    row.attempts += 1
    row.next_look_at = timezone.now() + timedelta(seconds=look_again_in_s)
    row.save(update_fields=["lease_until", "lease_holder", "attempts", "next_look_at"])
    if not row.is_finished:
        dispatch.wake(dispatch.RECONCILE_OPERATION, row.pk, in_s=look_again_in_s)


def due_operation_ids(now: datetime) -> list[int]:
    """Return open operations that nobody holds and that want to be looked at."""
    return list(Operation.objects.due(now).values_list("pk", flat=True))


def _lease() -> timedelta:
    return timedelta(seconds=settings.OPERATION_LEASE_S)


def _held(operation: Operation) -> Operation:
    row = (
        Operation.objects.select_for_update(of=("self",))
        .select_related("node")
        .get(pk=operation.pk)
    )
    if row.lease_holder != operation.lease_holder:
        raise LeaseLostError
    return row


def _node_id(change: Change) -> int:
    if change.gpu is not None:
        return change.gpu.node_id
    if change.node is None:
        msg = "a change names a GPU or a node"
        raise TypeError(msg)
    return change.node.pk


def _refuse_if_unfit(node: Node, gpu: Gpu | None) -> None:
    if not node.is_present or not node.is_ready:
        raise ServiceError(
            _("%(node)s is not ready; a change needs a node that answers.") % {"node": node.name}
        )
    if gpu is not None and not gpu.is_present:
        raise ServiceError(_("This GPU is no longer there; look at the node again."))


def _running_step(row: Operation) -> OperationStep:
    step, _created = OperationStep.objects.get_or_create(
        operation=row, state=row.state, outcome=OperationStep.Outcome.RUNNING
    )
    return step


def _add(step: OperationStep, progress: Progress) -> None:
    step.commands = [*step.commands, *progress.commands]
    step.evidence = {**step.evidence, **progress.evidence}
    if progress.message:
        step.message = progress.message
        step.params = progress.params


def _close_step(row: Operation, outcome: str, progress: Progress) -> None:
    step = _running_step(row)
    # What was waited for is history once the step has ended; only its own last word stays.
    step.message, step.params = "", {}
    _add(step, progress)
    step.outcome = outcome
    step.finished_at = timezone.now()
    step.save()


def _enter(row: Operation, state: str) -> Operation:
    now = timezone.now()
    row.state = state
    row.state_since = now
    is_final = state in Operation.FINAL_STATES
    row.finished_at = now if is_final else None
    row.deadline_at = None if is_final else now + _patience(row, state)
    row.lease_until = now + _lease()
    row.save(update_fields=["state", "state_since", "finished_at", "deadline_at", "lease_until"])
    if is_final:
        audit.record(f"operation.{state}", f"node/{row.node.name}", actor=None, operation=row.pk)
    else:
        OperationStep.objects.get_or_create(
            operation=row, state=state, outcome=OperationStep.Outcome.RUNNING
        )
    _announce(row)
    return Operation.objects.select_related("node", "gpu__model", "slice_request").get(pk=row.pk)


def _patience(row: Operation, state: str) -> timedelta:
    """Return how long a state may last; for how long Pods are waited for, an admin may say."""
    hours = row.memory.get("wait_hours")
    if state == Operation.State.DRAINING and hours:
        return timedelta(hours=hours)
    return DEADLINES[Operation.State(state)]


def _announce(row: Operation) -> None:
    topics = [f"operation-{row.pk}", "operations", "gpus", f"node-{row.node.name}"]
    if row.gpu_id:
        topics.append(f"gpu-{row.gpu_id}")
    if row.slice_request_id:
        topics.append(f"request-{row.slice_request_id}")
    dispatch.announce(*topics)
