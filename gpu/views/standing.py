"""Where a request stands: its state, the reason, and the next step, always together."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from gpu.models import Allocation, SliceRequest
from gpu.selectors.requests import (
    Position,
    Use,
    allocation_of,
    is_ending_soon,
)
from gpu.views.amounts import compute_words, gib
from gpu.views.answers import amount_words
from gpu.views.reasons import waiting_words
from gpu.views.wording import TIMES, duration_words

State = SliceRequest.State

_TONES = {
    State.WAITING_FOR_APPROVAL: "wait",
    State.WAITING_FOR_ROOM: "wait",
    State.BEING_MADE: "busy",
    State.READY: "good",
    State.ENDED: "off",
    State.DECLINED: "bad",
    State.WITHDRAWN: "off",
}


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request as lists show it; `time_left` is empty where there is no end to come."""

    request: SliceRequest
    what: str
    memory: str
    state: str
    tone: str
    reason: str
    ends_at: datetime | None
    time_left: str

    @classmethod
    def of(
        cls,
        slice_request: SliceRequest,
        *,
        now: datetime,
        positions: Mapping[int, Position],
        models: Mapping[str, str],
    ) -> "RequestRow":
        """Put a loaded request into words; `models` are names by GPU product."""
        allocation = allocation_of(slice_request)
        ends_at = allocation.ends_at if allocation else None
        is_over = slice_request.state == State.ENDED or (ends_at is not None and ends_at <= now)
        left = "" if ends_at is None or is_over else duration_words((ends_at - now).total_seconds())
        return cls(
            request=slice_request,
            what=allocation_words(allocation) if allocation else asked_words(slice_request),
            memory=gib((allocation or slice_request).memory_mib * slice_request.count),
            state=state_words(slice_request, now=now),
            tone=tone_of(slice_request, now=now),
            reason=_reason(slice_request, positions.get(slice_request.pk), models),
            ends_at=ends_at,
            time_left=left,
        )


def state_words(slice_request: SliceRequest, *, now: datetime) -> str:
    """Return the state as pages name it: a ready slice near its end is ending soon."""
    if slice_request.state == State.READY and is_ending_soon(allocation_of(slice_request), now=now):
        return _("ending soon")
    return str(slice_request.get_state_display())


def tone_of(slice_request: SliceRequest, *, now: datetime) -> str:
    """Return how the state looks: good, warn, bad, busy, wait or off; the word says it too."""
    if slice_request.state == State.READY and is_ending_soon(allocation_of(slice_request), now=now):
        return "warn"
    return _TONES[State(slice_request.state)]


def asked_words(slice_request: SliceRequest) -> str:
    """Return what was asked for."""
    return amount_words(
        slice_request.count, slice_request.memory_mib, slice_request.offering.isolation
    )


def allocation_words(allocation: Allocation) -> str:
    """Return what was granted, such as `1g.10gb on A100-SXM4-80GB, 9.5 GiB`."""
    model = allocation.pool.model
    isolation = allocation.slice_request.offering.isolation
    if allocation.profile:
        what = _("%(profile)s on %(model)s") % {"profile": allocation.profile, "model": model.name}
    elif isolation == "whole":
        what = _("whole %(model)s") % {"model": model.name}
    else:
        what = _("share of one %(model)s") % {"model": model.name}
    if allocation.count > 1:
        what = f"{allocation.count} {TIMES} {what}"
    return _("%(what)s, %(memory)s") % {"what": what, "memory": gib(allocation.memory_mib)}


def parts_words(allocation: Allocation) -> str:
    """Return how much of the compute each slice has."""
    return compute_words(allocation.compute)


def position_words(position: Position) -> str:
    """Return the place in the queue and how many are ahead, without naming anybody."""
    if not position.ahead:
        return _("You are first in the queue.")
    values = {
        "place": position.place,
        "own": position.ahead_of_own_tenant,
        "others": position.ahead_of_others,
    }
    return (
        _(
            "Place %(place)d in the queue; ahead are %(own)d of your tenant and %(others)d of"
            " other tenants."
        )
        % values
    )


def use_words(use: Use, count: int) -> str:
    """Return what runs on a slice; a Pod without the slice's label makes it unknown."""
    if use.devices:
        return _("%(used)d of %(count)d") % {"used": min(use.devices, count), "count": count}
    if use.pods:
        return _("Pod pending")
    return _("unknown") if use.unlabelled else _("no Pod")


def use_explained(use: Use) -> str:
    """Return why it is not known what runs on a slice; empty where it is known."""
    if use.devices or use.pods or not use.unlabelled:
        return ""
    return _("Pods that do not name their slice run in the namespace.")


def _reason(
    slice_request: SliceRequest, position: Position | None, models: Mapping[str, str]
) -> str:
    match slice_request.state:
        case State.WAITING_FOR_ROOM:
            reasons = waiting_words(slice_request, models)
            place = [position_words(position)] if position else []
            return " ".join([*place, *reasons[:1]])
        case State.BEING_MADE:
            return " ".join(waiting_words(slice_request, models)[:1])
        case State.DECLINED:
            return slice_request.decision_reason
        case _:
            return ""
