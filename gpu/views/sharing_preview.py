"""What a wanted sharing means before anything is done: counts, shares, Pods in the way, grants."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu.models import Allocation, Gpu, GpuPod, Node, ResourcePool
from gpu.planning.node_sharing import NodeSharing, changed_resources
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.sharing import SharingStrategy
from gpu.selectors.occupancy import live_pods
from gpu.selectors.sharing import device_counts, sharing_of
from gpu.views.layout_preview import CountChange, Fate, GrantShortage
from gpu.views.wording import gib_words


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A Pod on a resource that will be shared in another way."""

    pod: GpuPod
    keys: tuple[str, ...]
    fate: Fate
    loses_data: bool

    @property
    def key(self) -> str:
        """Return `namespace/name/uid`, by which an operation knows whom it may evict."""
        return f"{self.pod.namespace}/{self.pod.name}/{self.pod.uid}"


@dataclass(frozen=True, slots=True)
class ShareLine:
    """One resource of the node: its devices, into how many shares each goes, and how big one is.

    `memory` is in words and only a division: nothing keeps a share to it.
    """

    resource: str
    devices: int
    shares: int
    memory: str


@dataclass(frozen=True, slots=True)
class SharingPreview:
    """All that an admin should know before confirming a sharing."""

    present: NodeSharing
    wanted: NodeSharing
    lines: tuple[ShareLine, ...]
    counts: tuple[CountChange, ...]
    pods: tuple[PodInTheWay, ...]
    bystanders: tuple[GpuPod, ...]
    shortages: tuple[GrantShortage, ...]
    weakened: tuple[GrantShortage, ...]
    is_empty: bool

    @property
    def is_shared(self) -> bool:
        """Say whether anything would be shared."""
        return self.wanted.strategy is not SharingStrategy.NONE

    @property
    def is_mps(self) -> bool:
        """Say whether the shares would come from MPS."""
        return self.wanted.strategy is SharingStrategy.MPS

    @property
    def named_pods(self) -> tuple[str, ...]:
        """Return the keys of the Pods in the way, in order."""
        return tuple(sorted(item.key for item in self.pods))


def present_gpus_of(node: Node) -> list[Gpu]:
    """Return a node's GPUs with models and instances; 2 queries."""
    rows = node.gpus.filter(is_present=True).select_related("model").order_by("index")
    return list(rows.prefetch_related("instances"))


def build_preview(node: Node, gpus: Iterable[Gpu], wanted: NodeSharing) -> SharingPreview:
    """Return what sharing a node's GPUs so would do; at most 4 queries."""
    rows = list(gpus)
    present, devices = sharing_of(node), device_counts(rows)
    changed = changed_resources(present, wanted, devices)
    keys = {way.name_of(key) for key in changed for way in (present, wanted)}
    pods = live_pods([node.pk])
    in_the_way = tuple(_in_the_way(pods, keys))
    named = {item.pod.uid for item in in_the_way}
    before, after = present.advertised(devices), wanted.advertised(devices)
    grants = _grants(rows, keys)
    return SharingPreview(
        present=present,
        wanted=wanted,
        lines=tuple(share_lines(rows, wanted)),
        counts=tuple(
            CountChange(key, before.get(key, 0), after.get(key, 0))
            for key in sorted(before.keys() | after.keys())
        ),
        pods=in_the_way,
        bystanders=tuple(pod for pod in pods if pod.uid not in named) if changed else (),
        shortages=tuple(_shortages(grants, before, after)),
        weakened=tuple(_weakened(grants, present, wanted)),
        is_empty=not changed,
    )


def share_lines(gpus: Iterable[Gpu], sharing: NodeSharing) -> Iterable[ShareLine]:
    """Yield a line for each resource that the GPUs have."""
    rows = list(gpus)
    sizes: dict[str, int] = {}
    for gpu in rows:
        if not gpu.is_mig_enabled:
            sizes[WHOLE_GPU] = min(sizes.get(WHOLE_GPU, gpu.memory_mib), gpu.memory_mib)
        for item in gpu.instances.all() if gpu.is_mig_enabled else ():
            sizes[item.resource_name] = item.memory_mib or 0
    for resource, count in device_counts(rows).items():
        shares = sharing.shares_of(resource)
        size = sizes.get(resource, 0)
        yield ShareLine(resource, count, shares, gib_words(size // shares if size else None))


def _in_the_way(pods: Iterable[GpuPod], keys: set[str]) -> Iterable[PodInTheWay]:
    for pod in pods:
        held = tuple(sorted(keys & set(pod.resources)))
        if held:
            fate = Fate.COMES_BACK if pod.owner_kind else Fate.LOST
            yield PodInTheWay(pod, held, fate, pod.has_local_data)


@dataclass(frozen=True, slots=True)
class _Grant:
    pool: ResourcePool
    tenants: tuple[str, ...]

    @property
    def promised(self) -> int:
        return self.pool.granted + self.pool.reserved


def _grants(gpus: Iterable[Gpu], keys: set[str]) -> list[_Grant]:
    """Return the pools of the node's models from which something is promised; 2 queries."""
    models = {gpu.model_id for gpu in gpus}
    pools = ResourcePool.objects.filter(model_id__in=models, resource_name__in=keys)
    promised = [p for p in pools.order_by("resource_name", "pk") if p.granted + p.reserved]
    holders = Allocation.objects.filter(pool__in=promised).exclude(state=Allocation.State.ENDED)
    names = set(holders.values_list("pool_id", "tenant__name")) if promised else set()
    return [
        _Grant(pool, tuple(sorted(name for pk, name in names if pk == pool.pk)))
        for pool in promised
    ]


def _shortages(
    grants: Iterable[_Grant], before: Mapping[str, int], after: Mapping[str, int]
) -> Iterable[GrantShortage]:
    for grant in grants:
        key = grant.pool.resource_name
        left = grant.pool.capacity - before.get(key, 0) + after.get(key, 0) - grant.pool.foreign
        missing = grant.promised - max(0, left)
        if missing > 0 and after.get(key, 0) < before.get(key, 0):
            yield GrantShortage(key, missing, grant.tenants)


def _weakened(
    grants: Iterable[_Grant], present: NodeSharing, wanted: NodeSharing
) -> Iterable[GrantShortage]:
    """Yield rights whose Pods may get less of a device than before, under the same key."""
    for grant in grants:
        key = grant.pool.resource_name
        if wanted.name_of(key) == key and wanted.shares_of(key) > present.shares_of(key):
            yield GrantShortage(key, grant.promised, grant.tenants)
