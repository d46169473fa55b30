"""Small typed functions that put rows and people in place; what follows is made by services."""

from datetime import timedelta

from django.db.backends.postgresql.psycopg_any import NumericRange
from django.utils import timezone

from gpu.models import (
    Gpu,
    GpuInstance,
    GpuModel,
    GpuPod,
    Node,
    Offering,
    ResourcePool,
    SliceRequest,
)
from gpu.planning.catalogue import find_table
from gpu.planning.tables import table_to_json
from gpu.services import requests
from gpu.services.allocations import Grant
from tenants.models import Membership, Tenant, User

A100 = "NVIDIA-A100-SXM4-40GB"


def make_user(name: str = "bob", *, role: str = User.Role.RESEARCHER) -> User:
    """Create a person who signs in with the password `secret`."""
    return User.objects.create_user(name, password="secret", role=role)  # noqa: S106  # tests


def make_tenant(slug: str = "vision", *, memory_gib: int = 400, sevenths: int = 70) -> Tenant:
    """Create a tenant with a quota."""
    return Tenant.objects.create(
        slug=slug,
        name=slug.title(),
        namespace=f"team-{slug}",
        memory_limit_mib=memory_gib * 1024,
        compute_limit=sevenths * 1000,
    )


def join(tenant: Tenant, user: User, *, role: str = Membership.Role.RESEARCHER) -> User:
    """Make a person a member of a tenant and return the person."""
    Membership.objects.create(tenant=tenant, user=user, role=role)
    return user


def make_model(product: str = A100) -> GpuModel:
    """Return the row of a GPU model of the catalogue."""
    table = find_table(product)
    model, _created = GpuModel.objects.get_or_create(
        product=product,
        defaults={
            "name": table.marketing,
            "memory_mib": table.memory_mib or 0,
            "table": table_to_json(table),
            "table_source": GpuModel.TableSource.CATALOGUE,
        },
    )
    return model


def make_node(name: str = "n1", *, gpus: int = 1, product: str = A100) -> Node:
    """Create a ready node with GPUs, MIG on and nothing cut."""
    model = make_model(product)
    node = Node.objects.create(
        name=name,
        is_ready=True,
        cpu_milli=64_000,
        memory_bytes=512 * 2**30,
        storage_bytes=2**40,
        observed_at=timezone.now(),
        boot_id="boot-1",
        probed_boot_id="boot-1",
        probed_at=timezone.now(),
        labels={"nvidia.com/gpu.product": product, "kubernetes.io/hostname": name},
    )
    for index in range(gpus):
        Gpu.objects.create(
            node=node,
            model=model,
            index=index,
            uuid=f"GPU-{name}-{index}",
            memory_mib=model.memory_mib,
            is_mig_enabled=True,
        )
    return node


def cut(gpu: Gpu, profile: str, start: int) -> GpuInstance:
    """Put an instance on a GPU."""
    found = find_table(gpu.model.product).profile(profile)
    placement = found.placement_at(start)
    assert placement is not None, f"{profile} cannot start at {start}"
    return GpuInstance.objects.create(
        gpu=gpu,
        profile=profile,
        memory_slices=NumericRange(placement.start, placement.end),
        resource_name=found.resource_name,
        memory_mib=found.memory_mib,
        gi_id=start + 7,
        ci_id=0,
        mig_uuid=f"MIG-{gpu.uuid}-{start}",
    )


def make_pool(model: GpuModel, resource: str, *, capacity: int) -> ResourcePool:
    """Create a pool with free devices."""
    return ResourcePool.objects.create(model=model, resource_name=resource, capacity=capacity)


def make_pod(node: Node, name: str, *, resource: str, devices: list[str] | None) -> GpuPod:
    """Create a running Pod with one device, or one whose devices are not known."""
    return GpuPod.objects.create(
        uid=f"uid-{name}",
        namespace="team-nlp",
        name=name,
        node=node,
        phase="Running",
        resources={resource: 1},
        devices=None if devices is None else {resource: devices},
        owner_kind="Job",
        owner_name=name,
        started_at=timezone.now() - timedelta(hours=3),
    )


def make_offering(isolation: str = "isolated", *, needs_approval: bool = True) -> Offering:
    """Return the offering of one kind of isolation."""
    offering, _created = Offering.objects.get_or_create(
        isolation=isolation,
        defaults={"name": isolation.title(), "needs_approval": needs_approval, "max_days": 14},
    )
    return offering


def submit(tenant: Tenant, user: User, **changes: int) -> SliceRequest:
    """Submit a request through the service: 9 GiB, isolated, one for three days."""
    wish = requests.Wish(
        tenant=tenant,
        offering=make_offering(),
        memory_mib=changes.get("memory_mib", 9 * 1024),
        count=changes.get("count", 1),
        days=changes.get("days", 3),
        purpose="Training a small model",
    )
    return requests.submit_request(wish, actor=user)


def grant_of(pool: ResourcePool, *, profile: str = "1g.10gb", memory_mib: int = 9856) -> Grant:
    """Return a grant out of a pool, a seventh of a GPU each."""
    return Grant(
        model=pool.model,
        resource_name=pool.resource_name,
        profile=profile,
        memory_mib=memory_mib,
        compute=1000,
        cpu_milli=4000,
        ram_mib=16_384,
        storage_mib=51_200,
    )
