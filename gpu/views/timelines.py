"""An operation told as a story: what happened, with durations, commands and evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu.models import Operation, OperationStep
from gpu.views.wording import duration_words, gib_words, layout_words

State = Operation.State

_PATH = (
    State.PLANNED,
    State.APPROVED,
    State.CORDONING,
    State.DRAINING,
    State.APPLYING,
    State.RESTARTING_PLUGIN,
    State.AWAITING_ALLOCATABLE,
    State.VERIFYING,
    State.UNCORDONING,
)
_ROLL_BACK_PREFIX = "restored_"


@dataclass(frozen=True, slots=True)
class Count:
    """How many devices of one resource the node offered before and after."""

    key: str
    before: int
    after: int

    @property
    def has_changed(self) -> bool:
        """Say whether the two differ."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Device:
    """A device as a list of evidence names it; what is not known there is empty."""

    uuid: str
    profile: str
    memory: str = ""
    start: int | None = None
    gi_id: int | None = None
    pod: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen in one step, in a form that a page can show."""

    layout: str = ""
    sharing: str = ""
    config: str = ""
    label_replicas: str = ""
    driver: str = ""
    was_schedulable: bool | None = None
    is_schedulable: bool | None = None
    new_resource_names: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    plugin_pod: str = ""
    counts: tuple[Count, ...] = ()
    seen: tuple[Device, ...] = ()
    blind_pod_sees: tuple[str, ...] | None = None
    named_pods: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Evidence":
        """Read what a step kept; what a roll-back restored is read like what a change made."""
        data = {key.removeprefix(_ROLL_BACK_PREFIX): value for key, value in raw.items()}
        layout = data.get("layout") or data.get("desired")
        blind = data.get("pod_without_request_sees")
        return cls(
            layout=layout_words(layout) if layout and "sharing" not in layout else "",
            sharing=layout_words(layout) if layout and "sharing" in layout else "",
            config=data.get("config", ""),
            label_replicas=data.get("label_replicas", ""),
            driver=data.get("driver", ""),
            was_schedulable=data.get("was_schedulable"),
            is_schedulable=data.get("schedulable"),
            new_resource_names=tuple(data.get("new_resource_names", ())),
            devices=tuple(_device(item) for item in data.get("devices", ())),
            plugin_pod=data.get("device_plugin_pod", ""),
            counts=_counts(data.get("before"), data.get("after")),
            seen=tuple(device for row in data.get("pods", ()) for device in _seen(row)),
            blind_pod_sees=None if blind is None else tuple(blind),
            named_pods=tuple(key.rpartition("/")[0] for key in data.get("named_pods", ())),
        )


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One line of the timeline; `outcome` is done, failed, running or to_come."""

    state: str
    label: str
    outcome: str
    message: str = ""
    commands: tuple[str, ...] = ()
    evidence: Evidence | None = None
    started_at: datetime | None = None
    duration: str = ""
    deadline_at: datetime | None = None
    time_left: str = ""
    is_late: bool = False

    @property
    def has_detail(self) -> bool:
        """Say whether there is something to unfold."""
        return bool(self.commands) or (self.evidence is not None and self.evidence != Evidence())


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation as a list shows it."""

    operation: Operation
    before: str
    after: str
    duration: str
    tone: str

    @classmethod
    def of(cls, operation: Operation, *, now: datetime) -> "OperationRow":
        """Put an operation into words."""
        return cls(
            operation=operation,
            before=layout_words(operation.previous or operation.memory.get("expected")),
            after=layout_words(operation.desired),
            duration=_seconds_between(operation.opened_at, operation.finished_at or now),
            tone=tone_of(operation),
        )


@dataclass(frozen=True, slots=True)
class OperationStory:
    """An operation as its own page shows it."""

    before: str
    after: str
    steps: tuple[StoryStep, ...]
    duration: str
    tone: str
    named_pods: tuple[str, ...]

    @classmethod
    def of(cls, operation: Operation, *, now: datetime) -> "OperationStory":
        """Tell an operation whose steps are loaded."""
        happened = [_step(operation, step, now) for step in operation.steps.all()]
        return cls(
            before=layout_words(operation.previous or operation.memory.get("expected")),
            after=layout_words(operation.desired),
            steps=(*happened, *_to_come(operation, happened)),
            duration=_seconds_between(operation.opened_at, operation.finished_at or now),
            tone=tone_of(operation),
            named_pods=tuple(key.rpartition("/")[0] for key in operation.named_pods),
        )


def tone_of(operation: Operation) -> str:
    """Return how the state should look: good, bad, warn or busy; never by colour alone."""
    match operation.state:
        case State.DONE:
            return "good"
        case State.NEEDS_OPERATOR:
            return "bad"
        case State.ROLLED_BACK | State.ROLLING_BACK:
            return "warn"
        case State.PLANNED:
            return "wait"
        case _:
            return "busy"


def _step(operation: Operation, step: OperationStep, now: datetime) -> StoryStep:
    is_running = step.outcome == OperationStep.Outcome.RUNNING
    deadline = operation.deadline_at if is_running and not operation.is_finished else None
    left = (deadline - now).total_seconds() if deadline else 0.0
    return StoryStep(
        state=step.state,
        label=step.get_state_display(),
        outcome=step.outcome,
        message=step.said,
        commands=tuple(step.commands),
        evidence=Evidence.of(step.evidence),
        started_at=step.started_at,
        duration=_seconds_between(step.started_at, step.finished_at or now),
        deadline_at=deadline,
        time_left=duration_words(left) if deadline and left > 0 else "",
        is_late=deadline is not None and left <= 0,
    )


def _to_come(operation: Operation, happened: Iterable[StoryStep]) -> tuple[StoryStep, ...]:
    if operation.is_finished or operation.state == State.ROLLING_BACK:
        return ()
    seen = {step.state for step in happened}
    rest = [state for state in (*_PATH, State.DONE) if state not in seen]
    return tuple(StoryStep(state, str(state.label), "to_come") for state in rest)


def _counts(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> tuple[Count, ...]:
    if before is None or after is None:
        return ()
    keys = sorted(before.keys() | after.keys())
    counts = (Count(key, before.get(key, 0), after.get(key, 0)) for key in keys)
    return tuple(count for count in counts if count.before or count.after)


def _device(item: Mapping[str, Any]) -> Device:
    return Device(uuid=item["uuid"], profile=item["profile"], start=item["start"], gi_id=item["gi"])


def _seen(row: Mapping[str, Any]) -> Iterable[Device]:
    for item in row["devices"]:
        yield Device(
            uuid=item["uuid"],
            profile=item["profile"],
            memory=gib_words(item["memory_mib"]),
            pod=row["pod"],
            resource=row["resource"],
        )
    if not row["devices"]:
        yield Device(uuid="", profile="", pod=row["pod"], resource=row["resource"])


def _seconds_between(start: datetime, end: datetime) -> str:
    return duration_words((end - start).total_seconds())
