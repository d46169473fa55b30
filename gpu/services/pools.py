"""Counting what the cluster holds of each resource, and who holds it without a right."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from django.db import transaction
from django.db.models import Q

from gpu.models import Allocation, Gpu, GpuModel, GpuPod, Operation, ResourcePool
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.resources import WHOLE_GPU
from gpu.selectors.sharing import key_of, shares_of
from gpu.services import allocations

type Key = tuple[int, str]


@transaction.atomic(durable=True)
def refresh_pools_now() -> None:
    """Bring every pool to what is observed, in a transaction of its own."""
    refresh_pools()


def refresh_pools() -> None:
    """Bring every pool to what is observed; runs in the caller's transaction.

    Devices that an open operation is making count only once it has proved them.
    """
    capacity = _capacity()
    foreign = _foreign(capacity)
    known = set(ResourcePool.objects.values_list("model_id", "resource_name"))
    models = GpuModel.objects.in_bulk()
    for model_id, resource in sorted(capacity.keys() | foreign.keys() | known):
        allocations.record_capacity(
            models[model_id],
            resource,
            capacity=capacity[model_id, resource],
            foreign=foreign[model_id, resource],
        )


def _capacity() -> Counter[Key]:
    counts: Counter[Key] = Counter()
    proved = _proved_layouts()
    changing = _wanted_sharings()
    gpus = Gpu.objects.filter(
        is_present=True, is_in_service=True, node__is_present=True, node__is_ready=True
    ).prefetch_related("instances")
    gpus = gpus.select_related("node")
    for gpu in gpus:
        if not gpu.is_mig_enabled:
            if gpu.pk not in proved or proved[gpu.pk] is None:
                _add(counts, gpu, WHOLE_GPU, changing)
            continue
        for instance in gpu.instances.all():
            layout = proved.get(gpu.pk)
            if gpu.pk in proved and (
                layout is None or (instance.profile, instance.start) not in layout
            ):
                continue
            _add(counts, gpu, instance.resource_name, changing)
    return counts


def _add(
    counts: Counter[Key], gpu: Gpu, resource: str, changing: Mapping[int, NodeSharing]
) -> None:
    """Count a device's shares; while they are being changed, those that stay in any case."""
    key, shares = key_of(gpu, resource), shares_of(gpu, resource)
    wanted = changing.get(gpu.node_id)
    if wanted is not None:
        is_same_key = wanted.name_of(resource) == key
        shares = min(shares, wanted.shares_of(resource)) if is_same_key else 0
    counts[gpu.model_id, key] += shares


def _wanted_sharings() -> dict[int, NodeSharing]:
    """Return, for each node whose sharing is being changed, what it is to become."""
    changes = Operation.objects.under_way().filter(gpu__isnull=True)
    return {
        node_id: NodeSharing.from_json(desired["sharing"])
        for node_id, desired in changes.values_list("node_id", "desired")
    }


def _proved_layouts() -> dict[int, set[tuple[str, int]] | None]:
    """Return, for each GPU under change, the instances that the change leaves alone.

    None stands for a GPU that is whole before and after.
    """
    found: dict[int, set[tuple[str, int]] | None] = {}
    for gpu_id, desired, previous in (
        Operation.objects.under_way()
        .filter(gpu__isnull=False)
        .values_list("gpu_id", "desired", "previous")
    ):
        before = previous or desired
        if not desired["mig"] and not before["mig"]:
            found[gpu_id] = None
            continue
        found[gpu_id] = {(p, s) for p, s in desired["instances"]} & {
            (p, s) for p, s in before["instances"]
        }
    return found


def _foreign(capacity: Counter[Key]) -> Counter[Key]:
    """Count devices that Pods hold beyond what their namespace has been granted."""
    held = _held(capacity)
    granted: Counter[tuple[str, int, str]] = Counter()
    active = Allocation.objects.filter(state=Allocation.State.ACTIVE)
    for namespace, model_id, resource, count in active.values_list(
        "tenant__namespace", "pool__model_id", "pool__resource_name", "count"
    ):
        granted[namespace, model_id, resource] += count
    foreign: Counter[Key] = Counter()
    for (namespace, model_id, resource), count in held.items():
        foreign[model_id, resource] += max(0, count - granted[namespace, model_id, resource])
    return foreign


def _held(capacity: Counter[Key]) -> Counter[tuple[str, int, str]]:
    models_of_node: dict[int, list[int]] = defaultdict(list)
    for node_id, model_id in Gpu.objects.filter(is_present=True).values_list("node_id", "model_id"):
        models_of_node[node_id].append(model_id)
    held: Counter[tuple[str, int, str]] = Counter()
    pods = GpuPod.objects.filter(node__isnull=False).exclude(
        Q(phase="Succeeded") | Q(phase="Failed")
    )
    for node_id, namespace, resources in pods.values_list("node_id", "namespace", "resources"):
        for resource, count in resources.items():
            candidates = [m for m in models_of_node[node_id] if capacity[m, resource]]
            if candidates:
                held[namespace, candidates[0], resource] += count
    return held
