"""What a tenant's namespace may hold, computed from the ledger; the writing is a reconciler's."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from gpu.models import Allocation, NamespaceQuota, Node, ResourcePool
from tenants.models import Tenant

_LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a namespace may hold: GPU resources by key, CPU in millicores, the rest in MiB.

    `each_*` are the defaults for a container that names none: the smallest slice's amounts.
    """

    gpu: dict[str, int]
    cpu_milli: int
    ram_mib: int
    storage_mib: int
    each_cpu_milli: int
    each_ram_mib: int
    each_storage_mib: int

    def hard(self) -> dict[str, str]:
        """Return the quota's keys and values, an explicit 0 for each key without a grant."""
        hard = {
            **{f"requests.{key}": str(count) for key, count in self.gpu.items()},
            "requests.cpu": f"{self.cpu_milli}m",
            "requests.memory": f"{self.ram_mib}Mi",
        }
        if self.storage_mib:
            hard["requests.ephemeral-storage"] = f"{self.storage_mib}Mi"
        return hard


def known_gpu_keys() -> set[str]:
    """Return every GPU resource key that the cluster has shown or that we are about to make."""
    keys = set(ResourcePool.objects.values_list("resource_name", flat=True))
    for capacity in Node.objects.filter(is_present=True).values_list("capacity", flat=True):
        keys |= set(capacity)
    return keys


def amounts_of(tenant: Tenant) -> Amounts:
    """Return what the tenant's active allocations add up to."""
    rows = list(
        Allocation.objects.filter(tenant=tenant, state=Allocation.State.ACTIVE).select_related(
            "pool"
        )
    )
    gpu: Counter[str] = Counter(dict.fromkeys(known_gpu_keys(), 0))
    for row in rows:
        gpu[row.pool.resource_name] += row.count
    return Amounts(
        gpu=dict(sorted(gpu.items())),
        cpu_milli=sum(row.cpu_milli * row.count for row in rows),
        ram_mib=sum(row.ram_mib * row.count for row in rows),
        storage_mib=sum(row.storage_mib * row.count for row in rows),
        each_cpu_milli=min((row.cpu_milli for row in rows), default=100),
        each_ram_mib=min((row.ram_mib for row in rows), default=128),
        each_storage_mib=min((row.storage_mib for row in rows), default=0),
    )


def claim_namespace(tenant: Tenant, *, holder: str) -> bool:
    """Take the right to write a tenant's quota for a while; False when another worker has it."""
    NamespaceQuota.objects.get_or_create(tenant=tenant)
    now = timezone.now()
    free = Q(lease_until=None) | Q(lease_until__lt=now)
    rows = NamespaceQuota.objects.filter(free, tenant=tenant)
    return rows.update(lease_until=now + _LEASE, lease_holder=holder) == 1


@transaction.atomic(durable=True)
def record_written(tenant: Tenant, *, hard: dict[str, str], problem: str) -> None:
    """Write down what the namespace's quota is now and whether it held, and let it go."""
    now = timezone.now()
    NamespaceQuota.objects.filter(tenant=tenant).update(
        hard=hard,
        written_at=now,
        tested_at=now,
        problem=problem,
        lease_until=None,
        lease_holder="",
    )


def let_go(tenant: Tenant, *, holder: str) -> None:
    """Give the right to write back after a failure, so that the next try need not wait."""
    NamespaceQuota.objects.filter(tenant=tenant, lease_holder=holder).update(
        lease_until=None, lease_holder=""
    )
