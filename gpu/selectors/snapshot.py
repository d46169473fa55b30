"""From rows to the picture of the cluster on which planning decides; a constant number of queries.

A right is to a count of a resource on a GPU product, not to one GPU instance. So that planning
keeps off what is promised, rights that no Pod uses yet are laid on free devices: first where the
device was cut for them, else in order.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from gpu.models import Allocation, Gpu, GpuInstance, GpuPod, Node, Operation, ResourcePool
from gpu.planning.geometry import Instance
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.snapshot import (
    Beside,
    ClusterSnapshot,
    GpuMode,
    GpuSnapshot,
    InstanceSnapshot,
    NodeSnapshot,
)
from gpu.planning.tables import GpuTable
from gpu.selectors.executors import executor_for
from gpu.selectors.sharing import shares_of
from gpu.selectors.tables import table_of

UNKNOWN_HOLDER = "?"
"""Stands for a Pod that holds some device of its node, the cluster does not tell which."""

_MIB = 2**20

type Key = tuple[int, str]


@dataclass(slots=True)
class _Device:
    """One advertised device: a whole GPU or share, or a GPU instance."""

    gpu: Gpu
    resource: str
    instance: GpuInstance | None = None
    holder: str | None = None
    is_granted: bool = False

    @property
    def is_free(self) -> bool:
        return self.holder is None and not self.is_granted

    @property
    def key(self) -> Key:
        return self.gpu.model_id, self.resource


@dataclass(slots=True)
class _Holders:
    """Which Pods hold which device ids, and which hold some device of a node."""

    by_device: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unknown: dict[tuple[int, str], list[str]] = field(default_factory=lambda: defaultdict(list))


def cluster_snapshot(*, avoid_gpus: Collection[str] = ()) -> ClusterSnapshot:
    """Return all present nodes with their GPUs, and what of them is used, promised or changing.

    GPUs in `avoid_gpus` (UUIDs) count as changing, so that nothing is planned on them.
    """
    gpus = list(
        Gpu.objects.filter(is_present=True, node__is_present=True)
        .select_related("node", "model")
        .prefetch_related("instances")
        .order_by("node__name", "index")
    )
    devices = [device for gpu in gpus for device in _devices(gpu)]
    _mark_held(devices, _holders())
    _mark_granted(devices)
    _keep_shared(devices)
    changing, busy = _under_change(gpus)
    waiting = _waiting_for_a_change()
    changing |= {gpu.pk for gpu in gpus if gpu.uuid in avoid_gpus or gpu.uuid in waiting}
    models = {gpu.model_id: gpu.model for gpu in gpus}
    tables = {pk: table_of(model) for pk, model in models.items()}
    by_gpu: dict[int, list[_Device]] = defaultdict(list)
    for device in devices:
        by_gpu[device.gpu.pk].append(device)
    nodes: dict[int, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        nodes[gpu.node_id].append(gpu)
    return ClusterSnapshot(
        tuple(
            _node(
                members[0].node,
                [
                    _gpu(gpu, by_gpu[gpu.pk], tables[gpu.model_id], is_changing=gpu.pk in changing)
                    for gpu in members
                ],
                is_busy=node_id in busy,
            )
            for node_id, members in nodes.items()
        )
    )


def _devices(gpu: Gpu) -> Iterator[_Device]:
    if not gpu.is_mig_enabled:
        for _share in range(gpu.replicas):
            yield _Device(gpu, WHOLE_GPU)
        return
    for instance in gpu.instances.all():
        yield _Device(gpu, instance.resource_name, instance)


def _holders() -> _Holders:
    found = _Holders()
    pods = GpuPod.objects.filter(node__isnull=False).exclude(phase__in=["Succeeded", "Failed"])
    for node_id, namespace, name, resources, devices in pods.values_list(
        "node_id", "namespace", "name", "resources", "devices"
    ):
        holder = f"{namespace}/{name}"
        if devices is None:
            for resource, count in resources.items():
                found.unknown[node_id, resource] += [holder] * count
            continue
        for ids in devices.values():
            for device_id in ids:
                found.by_device[device_id.split("::")[0]].append(holder)
    return found


def _mark_held(devices: list[_Device], holders: _Holders) -> None:
    for device in devices:
        uuid = device.instance.mig_uuid if device.instance else device.gpu.uuid
        if holders.by_device.get(uuid):
            device.holder = holders.by_device[uuid].pop(0)
    for (node_id, resource), names in holders.unknown.items():
        free = [
            device
            for device in devices
            if device.gpu.node_id == node_id and device.resource == resource and device.is_free
        ]
        for device, _name in zip(free, names, strict=False):
            device.holder = UNKNOWN_HOLDER


def _mark_granted(devices: list[_Device]) -> None:
    """Lay rights that no Pod uses yet on free devices, remembered placements first."""
    idle = _idle_rights(devices)
    by_key: dict[Key, list[_Device]] = defaultdict(list)
    for device in devices:
        by_key[device.key].append(device)
    remembered = _remembered()
    for key, count in idle.items():
        free = [device for device in by_key[key] if device.is_free]
        free.sort(key=lambda device: not _is_remembered(device, remembered))
        for device in free[:count]:
            device.is_granted = True


def _keep_shared(devices: Iterable[_Device]) -> None:
    """Keep instances that several Pods may share from those who are promised one of their own."""
    for device in devices:
        if device.instance and device.is_free and shares_of(device.gpu, device.resource) > 1:
            device.is_granted = True


def _idle_rights(devices: Iterable[_Device]) -> Counter[Key]:
    held: Counter[Key] = Counter(device.key for device in devices if device.holder)
    idle: Counter[Key] = Counter()
    for pool in ResourcePool.objects.all():
        key = pool.model_id, pool.resource_name
        # What others hold without a right is held, and takes nothing from the rights.
        used = max(0, held[key] - pool.foreign)
        idle[key] = max(0, pool.granted + pool.reserved - used)
    return idle


def _remembered() -> set[tuple[str, int]]:
    rows = Allocation.objects.exclude(state=Allocation.State.ENDED).values_list(
        "placements", flat=True
    )
    return {(place["gpu"], place["start"]) for places in rows for place in places}


def _under_change(gpus: Iterable[Gpu]) -> tuple[set[int], set[int]]:
    """Return the GPUs that are being changed, alone or with their node, and the nodes of all."""
    changes: list[tuple[int | None, int]] = list(
        Operation.objects.under_way().values_list("gpu_id", "node_id")
    )
    alone = {gpu_id for gpu_id, _node_id in changes if gpu_id is not None}
    whole = {node_id for gpu_id, node_id in changes if gpu_id is None}
    together = {gpu.pk for gpu in gpus if gpu.node_id in whole}
    return alone | together, {node_id for _gpu_id, node_id in changes}


def _waiting_for_a_change() -> set[str]:
    rows = Allocation.objects.filter(state=Allocation.State.RESERVED)
    changes = rows.values_list("pending_changes", flat=True)
    return {change["gpu"] for pending in changes for change in pending}


def _is_remembered(device: _Device, remembered: set[tuple[str, int]]) -> bool:
    start = device.instance.start if device.instance else 0
    return (device.gpu.uuid, start) in remembered


def _gpu(
    gpu: Gpu, devices: list[_Device], table: GpuTable | None, *, is_changing: bool
) -> GpuSnapshot:
    is_mig = gpu.is_mig_enabled
    return GpuSnapshot(
        uuid=gpu.uuid,
        index=gpu.index,
        product=gpu.model.product,
        memory_mib=gpu.memory_mib,
        table=table,
        mode=_mode(gpu),
        instances=tuple(
            InstanceSnapshot(
                Instance(profile=device.instance.profile, start=device.instance.start),
                device.holder,
                device.is_granted,
            )
            for device in devices
            if device.instance
        ),
        replicas=1 if is_mig else gpu.replicas,
        granted=0 if is_mig else sum(not device.is_free for device in devices),
        holders=() if is_mig else tuple(d.holder for d in devices if d.holder),
        is_in_service=gpu.is_in_service and not gpu.node.gpu_owner,
        is_changing=is_changing,
        is_recut_whole=executor_for(gpu.node) == Operation.Executor.MIG_MANAGER,
    )


def _mode(gpu: Gpu) -> GpuMode:
    if gpu.is_mig_enabled:
        return GpuMode.MIG
    if gpu.sharing == Gpu.Sharing.NONE:
        return GpuMode.WHOLE
    return GpuMode(gpu.sharing)


def _node(node: Node, gpus: list[GpuSnapshot], *, is_busy: bool) -> NodeSnapshot:
    total = Beside(node.cpu_milli, node.memory_bytes // _MIB, node.storage_bytes // _MIB)
    whole = NodeSnapshot(node.name, tuple(gpus), total=total)
    left = total
    for gpu in gpus:
        part = whole.part_of(_taken_mib(gpu))
        if part is not None:
            left = left.less(part)
    return NodeSnapshot(
        name=node.name,
        gpus=tuple(gpus),
        # A node that is being changed comes back by itself: it is busy, not lost.
        is_schedulable=node.is_schedulable or is_busy,
        is_ready=node.is_ready,
        total=total,
        left=left,
    )


def _taken_mib(gpu: GpuSnapshot) -> int:
    if gpu.mode is not GpuMode.MIG:
        return gpu.memory_mib * min(gpu.granted, gpu.replicas) // gpu.replicas
    if gpu.table is None:
        return 0
    return sum(
        gpu.table.profile(item.instance.profile).memory_mib or 0
        for item in gpu.instances
        if not item.is_free
    )
