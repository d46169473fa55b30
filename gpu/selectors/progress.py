"""What has happened to a request so far, as one list in the order of time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gpu.models import Operation, OperationStep, SliceRequest


@dataclass(frozen=True, slots=True)
class Milestone:
    """One thing that happened: a code for the page to name it, when, and what was said.

    Codes are `submitted`, `approved`, `declined`, `allocated`, `ready`, `ended`, and
    `operation.<state>` for the steps of changes.
    """

    code: str
    at: datetime
    text: str = ""
    is_failure: bool = False


def milestones(slice_request: SliceRequest) -> list[Milestone]:
    """Return the request's history: its own states and the steps of its operations."""
    found = [Milestone("submitted", slice_request.submitted_at)]
    found += _decision(slice_request)
    operations = slice_request.operations.order_by("pk").prefetch_related("steps")
    for operation in operations:
        found += _steps(operation)
    allocation = getattr(slice_request, "allocation", None)
    if allocation is not None and allocation.starts_at:
        found.append(Milestone("allocated", allocation.starts_at))
    if slice_request.ready_at:
        found.append(Milestone("ready", slice_request.ready_at))
    if allocation is not None and allocation.ended_at:
        found.append(Milestone("ended", allocation.ended_at))
    return sorted(found, key=lambda milestone: milestone.at)


def _decision(slice_request: SliceRequest) -> Iterator[Milestone]:
    if slice_request.decided_at is None or slice_request.decided_by is None:
        return
    is_declined = slice_request.state == SliceRequest.State.DECLINED
    code = "declined" if is_declined else "approved"
    text = slice_request.decision_reason
    yield Milestone(code, slice_request.decided_at, text, is_failure=is_declined)


def _steps(operation: Operation) -> Iterator[Milestone]:
    for step in operation.steps.all():
        if step.finished_at is None:
            continue
        is_failure = step.outcome == OperationStep.Outcome.FAILED
        code = f"operation.{step.state}"
        yield Milestone(code, step.finished_at, step.said, is_failure=is_failure)
