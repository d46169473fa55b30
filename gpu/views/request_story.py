"""One request as its page tells it: state, reason, next step, the way so far, and the hand-out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gpu.models import Allocation, SliceRequest
from gpu.selectors.fit import fit_wish
from gpu.selectors.offerings import active_offerings, model_names, offered
from gpu.selectors.requests import (
    Position,
    Use,
    allocation_of,
    deciders_of,
    is_ending_soon,
    queue_positions,
    uses_of,
)
from gpu.selectors.snapshot import cluster_snapshot
from gpu.services.kubeconfigs import may_have_kubeconfig
from gpu.views.amounts import compute_words
from gpu.views.answers import Answer, Fill, Market, answer_of
from gpu.views.journeys import JourneyStep, deciders_words, journey_of
from gpu.views.pod_specs import Handout
from gpu.views.reasons import waiting_words
from gpu.views.standing import (
    allocation_words,
    asked_words,
    position_words,
    state_words,
    tone_of,
    use_explained,
    use_words,
)
from gpu.views.wording import duration_words
from tenants.models import User
from tenants.permissions import Capability
from tenants.selectors import may_in_tenant

State = SliceRequest.State

_NEXT_STEPS = {
    State.WAITING_FOR_APPROVAL: gettext_lazy(
        "Nothing to do for you: this page shows the decision as soon as it is there."
    ),
    State.WAITING_FOR_ROOM: gettext_lazy(
        "Nothing to do for you: it is made as soon as there is room."
    ),
    State.BEING_MADE: gettext_lazy("Nothing to do for you: the steps below show how far it is."),
    State.READY: gettext_lazy("Copy the Pod spec below and start your work."),
    State.ENDED: gettext_lazy("Ask again if you need it once more."),
    State.DECLINED: gettext_lazy("Change what was said to be wrong, and ask again."),
    State.WITHDRAWN: gettext_lazy("Ask again if you need it once more."),
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a waiting request is likely to be met; `is_shaky` while others are ahead."""

    at: datetime | None
    confidence: str
    is_shaky: bool
    instead: tuple["Instead", ...] = ()


@dataclass(frozen=True, slots=True)
class Instead:
    """Something else that could be had sooner, as a link to the filled form."""

    fill: Fill
    url: str


@dataclass(frozen=True, slots=True)
class Story:
    """All that the page of one request shows."""

    title: str
    asked: str
    granted: str
    compute: str
    state: str
    tone: str
    place: str
    reasons: tuple[str, ...]
    next_step: str
    steps: tuple[JourneyStep, ...]
    time_left: str
    is_ending_soon: bool
    outlook: Outlook | None
    handout: Handout | None
    use: Use | None
    use_said: str
    use_explained: str
    may_withdraw: bool
    may_release: bool
    may_ask_again: bool
    may_see_operations: bool
    may_have_kubeconfig: bool
    kubeconfig_hours: int


def story_of(slice_request: SliceRequest, *, viewer: User, now: datetime) -> Story:
    """Tell a request that is loaded with its history; what is not needed is not asked for."""
    allocation = allocation_of(slice_request)
    state = State(slice_request.state)
    deciders = deciders_of(slice_request) if state == State.WAITING_FOR_APPROVAL else []
    models: Mapping[str, str] = model_names() if slice_request.is_open else {}
    waits = state == State.WAITING_FOR_ROOM
    position = queue_positions().get(slice_request.pk) if waits else None
    is_own = slice_request.requester_id == viewer.pk
    is_active = allocation is not None and allocation.state == Allocation.State.ACTIVE
    ends_soon = state == State.READY and is_ending_soon(allocation, now=now)
    use = uses_of([allocation])[allocation.pk] if allocation and is_active else None
    return Story(
        title=allocation_words(allocation) if allocation else asked_words(slice_request),
        asked=asked_words(slice_request),
        granted=allocation_words(allocation) if allocation else "",
        compute=compute_words(allocation.compute) if allocation else "",
        state=state_words(slice_request, now=now),
        tone=tone_of(slice_request, now=now),
        place=position_words(position) if position else "",
        reasons=_reasons(slice_request, tuple(deciders), models),
        next_step=_next_step(slice_request, is_ending_soon=ends_soon),
        steps=journey_of(slice_request, deciders=deciders, now=now),
        time_left=_time_left(allocation, now=now) if is_active else "",
        is_ending_soon=ends_soon,
        outlook=_outlook(slice_request, position, models) if waits else None,
        handout=_handout(slice_request, allocation) if state == State.READY else None,
        use=use,
        use_said=use_words(use, allocation.count) if use and allocation else "",
        use_explained=use_explained(use) if use else "",
        may_withdraw=is_own and state in {State.WAITING_FOR_APPROVAL, State.WAITING_FOR_ROOM},
        may_release=state == State.READY
        and (is_own or may_in_tenant(viewer, slice_request.tenant, Capability.DECIDE_REQUESTS)),
        may_ask_again=is_own and not slice_request.is_open,
        may_see_operations=viewer.may(Capability.SEE_CLUSTER)
        or viewer.may(Capability.SEE_OVERVIEW),
        may_have_kubeconfig=is_active and may_have_kubeconfig(viewer, slice_request.tenant_id),
        kubeconfig_hours=settings.KUBECONFIG_HOURS,
    )


def _reasons(
    slice_request: SliceRequest, deciders: tuple[str, ...], models: Mapping[str, str]
) -> tuple[str, ...]:
    match slice_request.state:
        case State.WAITING_FOR_APPROVAL:
            return (deciders_words(deciders),)
        case State.WAITING_FOR_ROOM | State.BEING_MADE:
            return waiting_words(slice_request, models)
        case State.DECLINED if slice_request.decided_by is not None:
            who = slice_request.decided_by.display_name
            why = slice_request.decision_reason
            return (_("%(who)s: %(why)s") % {"who": who, "why": why},)
        case State.ENDED:
            return (_ended_words(allocation_of(slice_request)),)
        case State.WITHDRAWN:
            return (_("The person who asked for it withdrew it."),)
        case _:
            return ()


def _ended_words(allocation: Allocation | None) -> str:
    if allocation is None or allocation.ended_at is None or allocation.ends_at is None:
        return _("It has ended.")
    if allocation.ended_at < allocation.ends_at:
        return _("It was given back before its end.")
    return _("It had reached its end.")


def _next_step(slice_request: SliceRequest, *, is_ending_soon: bool) -> str:
    if is_ending_soon:
        return _("Save your work before the end, or ask again in time.")
    return str(_NEXT_STEPS[State(slice_request.state)])


def _time_left(allocation: Allocation | None, *, now: datetime) -> str:
    if allocation is None or allocation.ends_at is None or allocation.ends_at <= now:
        return ""
    return duration_words((allocation.ends_at - now).total_seconds())


def _outlook(
    slice_request: SliceRequest, position: Position | None, models: Mapping[str, str]
) -> Outlook:
    snapshot = cluster_snapshot()
    answer = answer_of(
        fit_wish(slice_request, snapshot),
        slice_request,
        Market(offered(snapshot, active_offerings()), models),
        tenant=None,
    )
    return Outlook(
        at=answer.at,
        confidence=answer.confidence,
        is_shaky=position is not None and position.ahead > 0,
        instead=_instead(slice_request, answer),
    )


def _instead(slice_request: SliceRequest, answer: Answer) -> tuple[Instead, ...]:
    base = f"{reverse('gpu:request-new')}?"
    again = {"again": str(slice_request.pk)}
    return tuple(
        Instead(fill, base + urlencode({**again, **fill.fields})) for fill in answer.offers
    )


def _handout(slice_request: SliceRequest, allocation: Allocation | None) -> Handout | None:
    if allocation is None or allocation.state != Allocation.State.ACTIVE:
        return None
    return Handout.of(allocation, whose=slice_request.requester.username)
