"""The way of a request from submitted to ready, step by step, for the person who asked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gpu.models import Allocation, NamespaceQuota, Operation, SliceRequest
from gpu.selectors.requests import allocation_of
from gpu.views.amounts import gib
from gpu.views.timelines import OperationStory, StoryStep
from gpu.views.wording import TIMES, duration_words

State = SliceRequest.State
DONE, RUNNING, FAILED, TO_COME = "done", "running", "failed", "to_come"

_BEFORE_ROOM = (State.WAITING_FOR_APPROVAL, State.DECLINED, State.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class JourneyStep:
    """One step: `outcome` is done, running, failed or to_come; `took` since the step before.

    `parts` are the steps of a change of a GPU, `operation_id` its number. `is_other_day` says that
    the step ended on another day than the one before.
    """

    code: str
    label: str
    outcome: str
    at: datetime | None = None
    detail: str = ""
    took: str = ""
    is_other_day: bool = True
    parts: tuple[StoryStep, ...] = ()
    operation_id: int | None = None


def journey_of(
    slice_request: SliceRequest, *, deciders: Iterable[str], now: datetime
) -> tuple[JourneyStep, ...]:
    """Tell a request whose operations and steps are loaded."""
    allocation = allocation_of(slice_request)
    steps = [_submitted(slice_request)]
    steps += _approval(slice_request, tuple(deciders))
    before, after = _operations(slice_request, allocation)
    steps += [_change(operation, now=now) for operation in before]
    steps += _room(slice_request, allocation)
    steps += [_change(operation, now=now) for operation in after]
    steps += _changes_to_come(allocation)
    steps += _hand_over(slice_request, allocation)
    steps += _end(slice_request, allocation)
    return tuple(_with_durations(steps))


def _submitted(slice_request: SliceRequest) -> JourneyStep:
    who = slice_request.requester.display_name
    return JourneyStep("submitted", _("Submitted"), DONE, slice_request.submitted_at, who)


def _approval(slice_request: SliceRequest, deciders: tuple[str, ...]) -> Iterator[JourneyStep]:
    code, at = "approval", slice_request.decided_at
    if slice_request.state == State.WAITING_FOR_APPROVAL:
        yield JourneyStep(code, _("Approval"), RUNNING, None, deciders_words(deciders))
    elif at is not None and slice_request.decided_by is None:
        yield JourneyStep(code, _("No approval needed"), DONE, at)
    elif at is not None and slice_request.decided_by is not None:
        who, why = slice_request.decided_by.display_name, slice_request.decision_reason
        detail = _("%(who)s: %(why)s") % {"who": who, "why": why} if why else who
        if slice_request.state == State.DECLINED:
            yield JourneyStep(code, _("Declined"), FAILED, at, detail)
        else:
            yield JourneyStep(code, _("Approved"), DONE, at, detail)


def deciders_words(deciders: tuple[str, ...]) -> str:
    """Return who can decide: the tenant's leads by name, and admins always."""
    if not deciders:
        return _("An admin decides; the tenant has no lead.")
    return _("%(leads)s or an admin decides.") % {"leads": ", ".join(deciders)}


def _operations(
    slice_request: SliceRequest, allocation: Allocation | None
) -> tuple[list[Operation], list[Operation]]:
    """Return the changes of earlier attempts, and those of the present one."""
    rows = list(slice_request.operations.all())
    if allocation is None:
        return rows, []
    before = [row for row in rows if row.opened_at < allocation.created_at]
    return before, [row for row in rows if row.opened_at >= allocation.created_at]


def _room(slice_request: SliceRequest, allocation: Allocation | None) -> Iterator[JourneyStep]:
    if slice_request.state in {State.DECLINED, State.WITHDRAWN}:
        return
    if allocation is None:
        is_looking = slice_request.state not in _BEFORE_ROOM
        yield JourneyStep("room", _("Room found"), RUNNING if is_looking else TO_COME)
        return
    model = allocation.pool.model.name
    what = allocation.profile or allocation.pool.resource_name
    detail = _("%(count)d %(times)s %(what)s on %(model)s, %(memory)s each") % {
        "count": allocation.count,
        "times": TIMES,
        "what": what,
        "model": model,
        "memory": gib(allocation.memory_mib),
    }
    # What ran before the portal came was taken over, with its start in the past.
    at = min(allocation.created_at, allocation.starts_at or allocation.created_at)
    yield JourneyStep("room", _("Room found"), DONE, at, detail)


def _change(operation: Operation, *, now: datetime) -> JourneyStep:
    story = OperationStory.of(operation, now=now)
    outcome = RUNNING
    if operation.is_finished:
        outcome = DONE if operation.state == Operation.State.DONE else FAILED
    label = _("GPU changed: %(node)s · %(index)d") % {
        "node": operation.node.name,
        "index": operation.changed_gpu.index,
    }
    detail = f"{story.before} → {story.after}"
    if outcome == FAILED:
        detail = operation.failure_said or operation.get_state_display()
    return JourneyStep(
        code="change",
        label=label,
        outcome=outcome,
        at=operation.finished_at,
        detail=detail,
        parts=story.steps,
        operation_id=operation.pk,
    )


def _changes_to_come(allocation: Allocation | None) -> Iterator[JourneyStep]:
    if allocation is None or allocation.state != Allocation.State.RESERVED:
        return
    count = len(allocation.pending_changes)
    if count:
        label = ngettext("%(count)d more GPU to change", "%(count)d more GPUs to change", count) % {
            "count": count
        }
        yield JourneyStep("changes_to_come", label, TO_COME)


def _hand_over(slice_request: SliceRequest, allocation: Allocation | None) -> Iterator[JourneyStep]:
    if slice_request.state in {State.DECLINED, State.WITHDRAWN}:
        return
    space = slice_request.tenant.namespace
    granted = _("Granted to namespace %(namespace)s") % {"namespace": space}
    is_granted = allocation is not None and allocation.starts_at is not None
    yield JourneyStep(
        "granted",
        granted,
        DONE if is_granted else TO_COME,
        allocation.starts_at if allocation else None,
    )
    yield _tested(slice_request, is_granted=is_granted)
    if slice_request.ready_at is not None:
        yield JourneyStep("ready", _("Ready"), DONE, slice_request.ready_at)
    else:
        yield JourneyStep("ready", _("Ready"), TO_COME)


def _tested(slice_request: SliceRequest, *, is_granted: bool) -> JourneyStep:
    label = _("Quota written and tested")
    if not is_granted:
        return JourneyStep("tested", label, TO_COME)
    quota = _quota_of(slice_request)
    if slice_request.state == State.BEING_MADE:
        return JourneyStep("tested", label, RUNNING)
    if quota is None or quota.tested_at is None:
        return JourneyStep("tested", label, TO_COME, detail=_("Not tested yet."))
    if quota.problem:
        return JourneyStep("tested", label, FAILED, quota.tested_at, quota.problem)
    detail = _("A Pod above the quota was refused, as it should be.")
    at = slice_request.ready_at
    return JourneyStep("tested", label, DONE, at, detail)


def _quota_of(slice_request: SliceRequest) -> NamespaceQuota | None:
    return getattr(slice_request.tenant, "namespace_quota", None)


def _end(slice_request: SliceRequest, allocation: Allocation | None) -> Iterator[JourneyStep]:
    if slice_request.state == State.WITHDRAWN:
        yield JourneyStep("withdrawn", _("Withdrawn"), DONE, slice_request.state_changed_at)
    elif slice_request.state == State.ENDED:
        at = allocation.ended_at if allocation else slice_request.state_changed_at
        yield JourneyStep("ended", _("Ended"), DONE, at)


def _with_durations(steps: list[JourneyStep]) -> Iterator[JourneyStep]:
    """Say of each finished step how long it took since the one before."""
    yield from steps[:1]
    for before, step in pairwise(steps):
        if step.at is None or before.at is None or step.at < before.at:
            yield step
            continue
        yield replace(
            step,
            took=duration_words((step.at - before.at).total_seconds()),
            is_other_day=timezone.localdate(step.at) != timezone.localdate(before.at),
        )
