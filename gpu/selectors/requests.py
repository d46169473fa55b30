"""Requests as their pages show them: a filtered list, one with its history, and the queue."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import models
from django.db.models import Prefetch, Q, QuerySet

from gpu.models import Allocation, GpuPod, Operation, OperationStep, SliceRequest
from tenants.models import Membership, User

OPEN = "open"
ENDING_SOON = "ending_soon"
SOON = timedelta(hours=24)
"""How near its end a slice counts as ending soon."""

State = SliceRequest.State

_SEARCHED = (
    "purpose__icontains",
    "requester__username__icontains",
    "requester__first_name__icontains",
    "requester__last_name__icontains",
    "tenant__name__icontains",
    "allocation__pool__model__name__icontains",
    "allocation__profile__icontains",
)
_FINISHED_PODS = ("Succeeded", "Failed")


class Sort(StrEnum):
    """What the list can be sorted by."""

    SUBMITTED = "submitted"
    END = "end"
    STATE = "state"
    TENANT = "tenant"
    MEMORY = "memory"


_COLUMNS = {
    Sort.SUBMITTED: "submitted_at",
    Sort.END: "allocation__ends_at",
    Sort.STATE: "state",
    Sort.TENANT: "tenant__name",
    Sort.MEMORY: "memory_mib",
}


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests are wanted, and in which order; empty means all, newest first.

    `state` is a state, `open` for what is not decided yet, or `ending_soon`.
    """

    state: str = ""
    tenant: str = ""
    search: str = ""
    sort: Sort = Sort.SUBMITTED
    is_ascending: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the queue, from 1; who is ahead is counted, own tenant and others."""

    place: int
    ahead_of_own_tenant: int

    @property
    def ahead(self) -> int:
        """Return how many are served before."""
        return self.place - 1

    @property
    def ahead_of_others(self) -> int:
        """Return how many of other tenants are served before."""
        return self.ahead - self.ahead_of_own_tenant


@dataclass(frozen=True, slots=True)
class Use:
    """What runs on a slice: its own Pods, and Pods of the namespace that name no slice.

    Pods without the label hold a device of this kind, but whose is not known.
    """

    pods: tuple[GpuPod, ...] = ()
    devices: int = 0
    unlabelled: int = 0


def requests_for_list(
    user: User, wanted: RequestFilter, *, now: datetime
) -> QuerySet[SliceRequest]:
    """Return what the person may see of the wanted, with all that a list shows; else it raises."""
    rows = SliceRequest.objects.filter(pk__in=SliceRequest.objects.visible_to(user).values("pk"))
    if wanted.state == OPEN:
        rows = rows.filter(state__in=SliceRequest.OPEN_STATES)
    elif wanted.state == ENDING_SOON:
        rows = rows.filter(state=State.READY, allocation__ends_at__lte=now + SOON)
    elif wanted.state:
        rows = rows.filter(state=wanted.state)
    if wanted.tenant:
        rows = rows.filter(tenant__slug=wanted.tenant)
    if wanted.search:
        rows = rows.filter(_search(wanted.search))
    column = models.F(_COLUMNS[wanted.sort])
    order = column.asc if wanted.is_ascending else column.desc
    return _with_relations(rows).order_by(order(nulls_last=True), "-pk")


def own_requests(user: User, *, finished_since: datetime) -> QuerySet[SliceRequest]:
    """Return what the person asked for that is open or ready, or has ended lately."""
    lately = Q(state_changed_at__gte=finished_since)
    wanted = Q(state__in=(*SliceRequest.OPEN_STATES, State.READY)) | lately
    rows = SliceRequest.objects.filter(wanted, requester=user)
    return _with_relations(rows).order_by("allocation__ends_at", "submitted_at", "pk")


def requests_for_detail(user: User) -> QuerySet[SliceRequest]:
    """Return what the person may see, each with its operations and their steps; 3 queries."""
    rows = SliceRequest.objects.filter(pk__in=SliceRequest.objects.visible_to(user).values("pk"))
    operations = Operation.objects.select_related("node", "gpu").order_by("pk")
    return (
        _with_relations(rows)
        .select_related("tenant__namespace_quota")
        .prefetch_related(
            Prefetch("operations", operations),
            Prefetch("operations__steps", OperationStep.objects.order_by("pk")),
        )
    )


def queue_positions() -> dict[int, Position]:
    """Return the place of everybody who waits for room, by request; 1 query."""
    rows = SliceRequest.objects.waiting().values_list("pk", "tenant_id")
    ahead: Counter[int] = Counter()
    found: dict[int, Position] = {}
    for number, (pk, tenant_id) in enumerate(rows, start=1):
        found[pk] = Position(number, ahead[tenant_id])
        ahead[tenant_id] += 1
    return found


def uses_of(allocations: Collection[Allocation]) -> dict[int, Use]:
    """Return what runs on each of the slices, by allocation; 1 query."""
    namespaces = {row.tenant.namespace for row in allocations}
    pods = list(
        GpuPod.objects.filter(namespace__in=namespaces)
        .exclude(phase__in=_FINISHED_PODS)
        .order_by("name")
    )
    labelled: defaultdict[tuple[str, str], list[GpuPod]] = defaultdict(list)
    without: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        if pod.allocation_label:
            labelled[pod.namespace, pod.allocation_label].append(pod)
            continue
        for key, count in pod.resources.items():
            without[pod.namespace, key] += count
    return {row.pk: _use(row, labelled, without) for row in allocations}


def deciders_of(slice_request: SliceRequest) -> list[str]:
    """Return the names of the leads who can decide on a request; 1 query."""
    leads = User.objects.filter(
        memberships__tenant=slice_request.tenant_id,
        memberships__role=Membership.Role.LEAD,
        is_active=True,
    )
    return [user.display_name for user in leads.order_by("first_name", "username")]


def is_ending_soon(allocation: Allocation | None, *, now: datetime) -> bool:
    """Say whether a slice is ready and its end is near."""
    return (
        allocation is not None
        and allocation.state == Allocation.State.ACTIVE
        and allocation.ends_at is not None
        and allocation.ends_at <= now + SOON
    )


def allocations_in(rows: Iterable[SliceRequest]) -> list[Allocation]:
    """Return the allocations of loaded requests that have one which is not ended."""
    found = [allocation_of(row) for row in rows]
    return [one for one in found if one is not None and one.state != Allocation.State.ENDED]


def allocation_of(slice_request: SliceRequest) -> Allocation | None:
    """Return the allocation of a loaded request; None where there is none."""
    return getattr(slice_request, "allocation", None)


def _with_relations(rows: QuerySet[SliceRequest]) -> QuerySet[SliceRequest]:
    return rows.select_related(
        "tenant",
        "requester",
        "offering",
        "gpu_model",
        "decided_by",
        "allocation__pool__model",
        "allocation__tenant",
    ).fetch_mode(models.FETCH_RAISE)


def _search(text: str) -> Q:
    found = Q()
    for lookup in _SEARCHED:
        found |= Q(**{lookup: text})
    number = text.removeprefix("#")
    if number.isdecimal() and len(number) < len(str(2**63)):
        found |= Q(pk=int(number))
    return found


def _use(
    allocation: Allocation,
    labelled: Mapping[tuple[str, str], list[GpuPod]],
    without: Mapping[tuple[str, str], int],
) -> Use:
    space, key = allocation.tenant.namespace, allocation.pool.resource_name
    own = [pod for pod in labelled.get((space, str(allocation.pk)), ()) if pod.resources.get(key)]
    return Use(
        pods=tuple(own),
        devices=sum(pod.resources[key] for pod in own if pod.node_id),
        unlabelled=without.get((space, key), 0),
    )
