"""Nodes as their pages show them: what each offers against what it should."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import models
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from gpu.models import Allocation, Gpu, GpuInstance, Node, Operation, ResourcePool
from gpu.planning.resources import GpuSetup, node_resources
from gpu.selectors.sharing import device_counts, proved_sharing, sharing_of

STALE_AFTER = timedelta(minutes=2)  # the watcher confirms what it knows every 15 seconds


class NodeState(StrEnum):
    """The one word for a node, the most pressing first."""

    STALE = "stale"
    NOT_READY = "not_ready"
    CHANGING = "changing"
    CORDONED = "cordoned"
    READY = "ready"


class Disagreement(StrEnum):
    """Why two figures of one resource differ."""

    CHANGING = "changing"
    NOT_REGISTERED = "not_registered"
    STILL_OFFERED = "still_offered"
    CAPACITY_KEPT = "capacity_kept"
    HELD_BUT_GONE = "held_but_gone"
    NOT_GRANTED = "not_granted"
    NOT_READ = "not_read"


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource key of a node in five figures; `expected` is None where no probe told.

    `granted` counts devices cut on this node for allocations that are active; `foreign` names Pods
    that hold the resource in namespaces that are no tenant's.
    """

    key: str
    capacity: int
    allocatable: int
    requested: int
    granted: int
    expected: int | None
    disagreements: tuple[Disagreement, ...]
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """How fresh what we see is: the time now, and whether the watcher is alive."""

    now: datetime
    is_watched: bool


def nodes_for_list(*, name: str = "", product: str = "") -> QuerySet[Node]:
    """Return nodes with counts of GPUs and Pods and `is_changing`; further reads raise."""
    conditions = Q()
    if name:
        conditions &= Q(name__icontains=name)
    if product:
        conditions &= Q(gpus__is_present=True, gpus__model__product=product)
    in_service = Gpu.objects.filter(is_present=True).select_related("model")
    return (
        Node.objects.filter(conditions)
        .annotate(
            pod_count=Count("pods", distinct=True),
            is_changing=Exists(Operation.objects.under_way().filter(node=OuterRef("pk"))),
        )
        .prefetch_related(Prefetch("gpus", in_service, to_attr="present_gpus"))
        .order_by("-is_present", "name")
        .fetch_mode(models.FETCH_RAISE)
    )


def state_of(node: Node, *, is_changing: bool, sight: Sight) -> NodeState:
    """Return the node's word."""
    is_old = node.observed_at is None or sight.now - node.observed_at > STALE_AFTER
    if node.is_present and (is_old or not sight.is_watched):
        return NodeState.STALE
    if not node.is_present or not node.is_ready:
        return NodeState.NOT_READY
    if is_changing:
        return NodeState.CHANGING
    return NodeState.READY if node.is_schedulable else NodeState.CORDONED


def resources_of(node: Node, *, is_changing: bool) -> list[ResourceRow]:
    """Return the figures of every resource key that any of the five sides knows; 4 queries."""
    gpus = list(
        node.gpus.filter(is_present=True).prefetch_related(
            Prefetch("instances", GpuInstance.objects.order_by("memory_slices"))
        )
    )
    pods = list(node.pods.exclude(phase__in=("Succeeded", "Failed")).order_by("namespace", "name"))
    requested: Counter[str] = Counter()
    for pod in pods:
        requested.update(pod.resources)
    expected = _expected(node, gpus) if node.probed_at else None
    granted = _granted(gpus)
    keys = {*node.capacity, *node.allocatable, *requested, *granted, *(expected or ())}
    return [
        _row(
            key,
            node,
            requested=requested[key],
            granted=granted[key],
            expected=None if expected is None else expected.get(key, 0),
            foreign=tuple(str(p) for p in pods if p.tenant_id is None and p.resources.get(key)),
            is_changing=is_changing,
        )
        for key in sorted(keys)
    ]


def pools_of(node: Node) -> QuerySet[ResourcePool]:
    """Return the pools that the node's GPU models take part in, all nodes together."""
    return (
        ResourcePool.objects.filter(model__gpus__node=node, model__gpus__is_present=True)
        .select_related("model")
        .distinct()
        .order_by("model__product", "resource_name")
    )


def _expected(node: Node, gpus: Sequence[Gpu]) -> dict[str, int]:
    sharing = sharing_of(node)
    if sharing.replicas or proved_sharing(node):
        return sharing.advertised(device_counts(gpus))
    return node_resources(
        GpuSetup(
            is_mig_enabled=gpu.is_mig_enabled,
            resource_names=tuple(i.resource_name for i in gpu.instances.all()),
            replicas=gpu.replicas,
        )
        for gpu in gpus
    )


def _granted(gpus: Iterable[Gpu]) -> Counter[str]:
    """Count devices cut here for active allocations, by resource."""
    here = {gpu.uuid for gpu in gpus}
    models_here = {gpu.model_id for gpu in gpus}
    counts: Counter[str] = Counter()
    rows = Allocation.objects.filter(
        state=Allocation.State.ACTIVE, pool__model__in=models_here
    ).values_list("pool__resource_name", "placements")
    for key, placements in rows:
        counts[key] += sum(1 for placement in placements if placement.get("gpu") in here)
    return counts


def _row(  # noqa: PLR0913  # one argument a figure
    key: str,
    node: Node,
    *,
    requested: int,
    granted: int,
    expected: int | None,
    foreign: tuple[str, ...],
    is_changing: bool,
) -> ResourceRow:
    capacity, allocatable = node.capacity.get(key, 0), node.allocatable.get(key, 0)
    found: list[Disagreement] = []
    if expected is None:
        found.append(Disagreement.NOT_READ)
    elif allocatable != expected and is_changing:
        found.append(Disagreement.CHANGING)
    elif allocatable < expected:
        found.append(Disagreement.NOT_REGISTERED)
    elif allocatable > expected:
        found.append(Disagreement.STILL_OFFERED)
    if capacity > allocatable:
        found.append(Disagreement.CAPACITY_KEPT)
    if requested > allocatable:
        found.append(Disagreement.HELD_BUT_GONE)
    if foreign:
        found.append(Disagreement.NOT_GRANTED)
    return ResourceRow(
        key, capacity, allocatable, requested, granted, expected, tuple(found), foreign
    )
