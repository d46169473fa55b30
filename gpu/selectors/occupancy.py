"""Who holds what on each GPU: Pods by the devices that the cluster names, grants by the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db import models
from django.db.models import Prefetch, QuerySet

from gpu.models import Allocation, Gpu, GpuInstance, GpuPod, Operation
from gpu.planning.resources import WHOLE_GPU
from tenants.models import Tenant

_MIG, _SHARE = "MIG-", "::"
_FINISHED = ("Succeeded", "Failed")

type _Right = tuple[int, int, str]  # tenant, model, resource


class Use(StrEnum):
    """What is going on with one device."""

    IN_USE = "in_use"
    GRANTED = "granted"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Hold:
    """One device and who has it.

    `pods` hold it; with `UNKNOWN` they are those that may, since the cluster does not say. `tenant`
    is theirs, or the one that it is granted to while no Pod runs on it.
    """

    use: Use
    pods: tuple[GpuPod, ...] = ()
    tenant: Tenant | None = None


@dataclass(frozen=True, slots=True)
class InstanceHold:
    """A GPU instance and who has it."""

    instance: GpuInstance
    hold: Hold


@dataclass(frozen=True, slots=True)
class GpuOccupancy:
    """A GPU with all that is on it.

    `shares` has one entry for each share of a GPU that is not cut, in the plugin's numbering: one
    for a whole GPU. It is empty for a GPU with MIG on, and `instances` is for one with MIG off.
    """

    gpu: Gpu
    instances: tuple[InstanceHold, ...]
    shares: tuple[Hold, ...]
    operation: Operation | None

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Return the devices, whatever they are."""
        return tuple(item.hold for item in self.instances) + self.shares

    @property
    def is_changing(self) -> bool:
        """Say whether an operation is under way on this very GPU, or on the whole node."""
        return self.operation is not None and self.operation.gpu_id in {None, self.gpu.pk}


def occupancy(gpus: QuerySet[Gpu]) -> list[GpuOccupancy]:
    """Return who holds what on the GPUs, in their order; 5 queries, however many GPUs there are."""
    rows = list(
        gpus.select_related("node", "model")
        .prefetch_related(Prefetch("instances", GpuInstance.objects.order_by("memory_slices")))
        .fetch_mode(models.FETCH_RAISE)
    )
    node_ids = {gpu.node_id for gpu in rows}
    pods = live_pods(node_ids)
    under_way = {
        operation.node_id: operation
        for operation in Operation.objects.under_way().filter(node_id__in=node_ids)
    }
    known = _Known(rows, pods, _idle_grants(rows, pods))
    return [known.look_at(gpu, under_way.get(gpu.node_id)) for gpu in rows]


def live_pods(node_ids: Iterable[int]) -> list[GpuPod]:
    """Return the GPU Pods that are bound to the nodes and have not ended, with their tenants."""
    return list(
        GpuPod.objects.filter(node_id__in=node_ids)
        .exclude(phase__in=_FINISHED)
        .select_related("tenant", "node")
        .order_by("namespace", "name")
        .fetch_mode(models.FETCH_RAISE)
    )


class _Known:
    """What the cluster and the ledger say, by device."""

    def __init__(self, gpus: Sequence[Gpu], pods: Iterable[GpuPod], idle: "_IdleGrants") -> None:
        self._idle = idle
        self._holders: defaultdict[str, list[GpuPod]] = defaultdict(list)
        self._unplaced: defaultdict[tuple[int, str], list[GpuPod]] = defaultdict(list)
        for pod in pods:
            if pod.devices is None:
                for key in pod.resources:
                    self._unplaced[pod.node_id or 0, key].append(pod)
                continue
            for ids in pod.devices.values():
                for device in ids:
                    # Whoever has a share of an instance has that instance.
                    is_share = device.startswith(_MIG) and _SHARE in device
                    held = device.partition(_SHARE)[0] if is_share else device
                    self._holders[held].append(pod)
        self._reserve_named(gpus)

    def look_at(self, gpu: Gpu, operation: Operation | None) -> GpuOccupancy:
        """Return who holds what on one GPU."""
        if gpu.is_mig_enabled:
            instances = tuple(
                InstanceHold(instance, self._hold(gpu, instance.mig_uuid, instance.resource_name))
                for instance in gpu.instances.all()
            )
            return GpuOccupancy(gpu, instances, (), operation)
        return GpuOccupancy(gpu, (), tuple(self._shares(gpu)), operation)

    def _reserve_named(self, gpus: Iterable[Gpu]) -> None:
        """Let grants have the instance that was cut for them before any other free one."""
        for gpu in gpus:
            for instance in gpu.instances.all():
                if not self._holders.get(instance.mig_uuid):
                    self._idle.take_named(gpu, instance)

    def _shares(self, gpu: Gpu) -> Iterable[Hold]:
        key = WHOLE_GPU
        if gpu.replicas == 1:
            yield self._hold(gpu, gpu.uuid, key)
            return
        for number in range(gpu.replicas):
            yield self._hold(gpu, f"{gpu.uuid}::{number}", key)

    def _hold(self, gpu: Gpu, device: str, key: str) -> Hold:
        pods = self._holders.get(device)
        if pods:
            return Hold(Use.IN_USE, tuple(pods), pods[0].tenant)
        unplaced = self._unplaced.get((gpu.node_id, key))
        if unplaced:
            return Hold(Use.UNKNOWN, tuple(unplaced))
        tenant = self._idle.take(gpu, device, key)
        return Hold(Use.GRANTED, (), tenant) if tenant else Hold(Use.FREE)


class _IdleGrants:
    """Rights to devices on which no Pod runs; each can be taken once."""

    def __init__(
        self,
        counts: Counter[_Right],
        tenants: Mapping[int, Tenant],
        named: Mapping[tuple[str, str, int], int],
    ) -> None:
        self._counts = counts
        self._tenants = tenants
        self._named = named
        self._kept: dict[str, int] = {}

    def take_named(self, gpu: Gpu, instance: GpuInstance) -> None:
        """Tie a right to the instance that was cut for it."""
        tenant_id = self._named.get((gpu.uuid, instance.profile, instance.start))
        if tenant_id is None:
            return
        right = (tenant_id, gpu.model_id, instance.resource_name)
        if self._counts[right] > 0:
            self._counts[right] -= 1
            self._kept[instance.mig_uuid] = tenant_id

    def take(self, gpu: Gpu, device: str, key: str) -> Tenant | None:
        """Return whom a free device is kept for; a right holds for any device of its kind."""
        if device in self._kept:
            return self._tenants[self._kept[device]]
        for right, count in self._counts.items():
            if count > 0 and right[1:] == (gpu.model_id, key):
                self._counts[right] -= 1
                return self._tenants[right[0]]
        return None


def _idle_grants(gpus: Iterable[Gpu], pods: Iterable[GpuPod]) -> _IdleGrants:
    """Return the rights that no Pod makes use of; 1 query."""
    models_of_node: defaultdict[int, set[int]] = defaultdict(set)
    for gpu in gpus:
        models_of_node[gpu.node_id].add(gpu.model_id)
    active = (
        Allocation.objects.filter(state=Allocation.State.ACTIVE)
        .select_related("tenant", "pool")
        .order_by("pk")
    )
    counts: Counter[_Right] = Counter()
    tenants: dict[int, Tenant] = {}
    named: dict[tuple[str, str, int], int] = {}
    for allocation in active:
        tenants[allocation.tenant_id] = allocation.tenant
        right = (allocation.tenant_id, allocation.pool.model_id, allocation.pool.resource_name)
        counts[right] += allocation.count
        for place in allocation.placements:
            named[str(place["gpu"]), str(place["profile"]), int(place["start"])] = (
                allocation.tenant_id
            )
    for pod in pods:
        for key, count in pod.resources.items():
            for model_id in models_of_node[pod.node_id or 0]:
                right = (pod.tenant_id or 0, model_id, key)
                if counts[right] > 0:
                    counts[right] = max(0, counts[right] - count)
                    break
    return _IdleGrants(counts, tenants, named)
