"""Operations as their pages show them: a filtered list, and one with its whole history."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from django.db import models
from django.db.models import Prefetch, Q, QuerySet

from gpu.models import Gpu, GpuInstance, GpuPod, Node, Operation, OperationStep

UNDER_WAY = "under_way"
FAILED = "failed"
_MEASURED = 20


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Which operations are wanted; empty means all.

    `state` is a state, or `under_way` or `failed` for the groups of them.
    """

    state: str = ""
    node: str = ""
    by: str = ""
    gpu_id: int | None = None
    node_id: int | None = None


def operations_for_list(wanted: OperationFilter) -> QuerySet[Operation]:
    """Return matching operations, newest first, with all that a list shows; else it raises."""
    conditions = Q()
    if wanted.state == UNDER_WAY:
        conditions &= Q(finished_at=None)
    elif wanted.state == FAILED:
        conditions &= Q(state__in=(Operation.State.ROLLED_BACK, Operation.State.NEEDS_OPERATOR))
    elif wanted.state:
        conditions &= Q(state=wanted.state)
    if wanted.node:
        conditions &= Q(node__name__icontains=wanted.node)
    if wanted.by:
        conditions &= Q(opened_by__username__icontains=wanted.by)
    if wanted.gpu_id is not None:
        conditions &= Q(gpu_id=wanted.gpu_id)
    if wanted.node_id is not None:
        conditions &= Q(node_id=wanted.node_id)
    return (
        _with_relations(Operation.objects.filter(conditions))
        .order_by("-opened_at", "-pk")
        .fetch_mode(models.FETCH_RAISE)
    )


def operations_for_detail() -> QuerySet[Operation]:
    """Return operations with steps, the GPU's present instances and undos; 4 queries for one."""
    return (
        _with_relations(Operation.objects.all())
        .select_related("gpu__node")
        .prefetch_related(
            Prefetch("steps", OperationStep.objects.order_by("pk")),
            Prefetch("gpu__instances", GpuInstance.objects.order_by("memory_slices")),
            Prefetch("undone_by", Operation.objects.order_by("pk")),
        )
        .fetch_mode(models.FETCH_RAISE)
    )


def newest_done_id(node: Node, gpu: Gpu | None) -> int | None:
    """Return the newest change of the GPU, or of the node: the only one that can be undone."""
    done = Operation.objects.filter(node=node, gpu=gpu, state=Operation.State.DONE)
    return done.order_by("-pk").values_list("pk", flat=True).first()


def open_operation_id(node_id: int) -> int | None:
    """Return the operation under way on a node, if there is one."""
    return (
        Operation.objects.under_way().filter(node_id=node_id).values_list("pk", flat=True).first()
    )


def named_pods_alive(operation: Operation) -> set[str]:
    """Return which Pods that the preview named are still there, as `namespace/name/uid`."""
    uids = [key.rpartition("/")[2] for key in operation.named_pods]
    alive = GpuPod.objects.filter(uid__in=uids).values_list("namespace", "name", "uid")
    return {"/".join(parts) for parts in alive}


def _with_relations(rows: QuerySet[Operation]) -> QuerySet[Operation]:
    return rows.select_related("node", "gpu__model", "opened_by", "undoes", "slice_request__tenant")


def usual_duration_s() -> float | None:
    """Return the median time of the last changes without the wait for Pods; None before any."""
    last = Operation.objects.filter(state=Operation.State.DONE).order_by("-pk")[:_MEASURED]
    steps = OperationStep.objects.filter(operation__in=list(last), finished_at__isnull=False)
    seconds: defaultdict[int, float] = defaultdict(float)
    working = steps.exclude(state=Operation.State.DRAINING)
    for operation_id, start, end in working.values_list("operation", "started_at", "finished_at"):
        seconds[operation_id] += (end - start).total_seconds() if end else 0.0
    return median(seconds.values()) if seconds else None
