"""Fills an empty portal with people, tenants and offerings for the demo; safe to run again."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from gpu.manifests import ALLOCATION_LABEL
from gpu.models import Gpu, GpuInstance, GpuPod, Offering, SliceRequest
from gpu.objects import NodeObject, PodObject
from gpu.planning.resources import WHOLE_GPU
from gpu.ports import NODE, POD, Cluster
from gpu.reconcilers.inventory import read_unread_nodes
from gpu.services import allocations, grants, inventory, pools, requests
from gpu.services.errors import ServiceError
from tenants.models import Membership, Tenant, User
from tenants.services import add_member, create_tenant

PASSWORD = "slicedesk-demo"  # noqa: S105  # printed by the demo, and for the demo only

_GIB = 1024
_LEAD = Membership.Role.LEAD
_RESEARCHER = Membership.Role.RESEARCHER

TENANTS = (
    ("vision", "Computer Vision", 1200 * _GIB, 120_000),
    ("nlp", "Language Models", 1200 * _GIB, 120_000),
    ("bio", "Protein Folding", 600 * _GIB, 70_000),
    ("audio", "Speech and Audio", 400 * _GIB, 49_000),
)
PEOPLE = (
    ("ada", "Ada", "Lindqvist", User.Role.RESEARCHER, "vision", _RESEARCHER),
    ("lei", "Lei", "Ming", User.Role.RESEARCHER, "vision", _LEAD),
    ("noor", "Noor", "Haddad", User.Role.RESEARCHER, "nlp", _RESEARCHER),
    ("omar", "Omar", "Castellanos", User.Role.RESEARCHER, "nlp", _LEAD),
    ("ines", "Inês", "Carvalho", User.Role.RESEARCHER, "bio", _LEAD),
    ("tomo", "Tomoko", "Arai", User.Role.RESEARCHER, "audio", _LEAD),
    ("grace", "Grace", "Okafor", User.Role.ADMIN, None, None),
    ("marta", "Marta", "Kowalska", User.Role.MANAGER, None, None),
)
OFFERINGS = (
    ("Isolated slice", "独占切片", "isolated", True, 14),
    ("Shared GPU", "共享 GPU", "shared", False, 7),
    ("Whole GPU", "整卡", "whole", True, 7),
)
REQUESTS = (
    ("noor", "nlp", "isolated", 19.5, 2, 7, "Evaluating two checkpoints of the 13B model"),
    ("ines", "bio", "whole", 79.0, 1, 3, "Refining a cryo-EM map that needs the whole memory"),
    ("tomo", "audio", "isolated", 5.5, 1, 14, "Speech recognition demo for the open day"),
    ("ada", "vision", "isolated", 45.0, 1, 5, "Training a depth model on the new data set"),
)
_PURPOSES = (
    "Fine-tuning a segmentation model",
    "Evaluation of checkpoints",
    "Notebook for data exploration",
    "Hyper-parameter search",
    "Inference service for the reading group",
)


def seed(
    cluster: Cluster,
    *,
    say: Callable[[str], None],
    patience_s: float = 120.0,
    with_wishes: bool = True,
) -> None:
    """Read the cluster, then make people, tenants, offerings, and rights for Pods that run.

    `with_wishes` leaves requests in the inbox that fit the simulated lab.
    """
    tenants = _make_tenants()
    _make_people(tenants)
    offerings = _make_offerings()
    say("Reading the GPUs of every node …")
    _read_cluster(cluster, patience_s)
    adopted = sum(_adopt(pod, offerings, cluster) for pod in _unmanaged())
    _take_over(cluster)
    if with_wishes:
        _ask(tenants, offerings)
    say(f"{Gpu.objects.count()} GPUs read, {adopted} running Pods taken over.")


def _make_tenants() -> dict[str, Tenant]:
    for slug, name, memory, compute in TENANTS:
        if not Tenant.objects.filter(slug=slug).exists():
            create_tenant(
                slug=slug, name=name, memory_limit_mib=memory, compute_limit=compute, actor=None
            )
    return {tenant.slug: tenant for tenant in Tenant.objects.all()}


def _make_people(tenants: dict[str, Tenant]) -> None:
    for username, first, last, role, slug, tenant_role in PEOPLE:
        user, is_new = User.objects.get_or_create(
            username=username,
            defaults={
                "first_name": first,
                "last_name": last,
                "role": role,
                "email": f"{username}@example.org",
            },
        )
        if is_new:
            user.set_password(PASSWORD)
            user.save(update_fields=["password"])
            if slug and tenant_role:
                add_member(tenants[slug], user, role=tenant_role, actor=None)


def _make_offerings() -> dict[str, Offering]:
    for name, name_zh, isolation, needs_approval, days in OFFERINGS:
        Offering.objects.get_or_create(
            isolation=isolation,
            is_active=True,
            defaults={
                "name": name,
                "name_zh": name_zh,
                "needs_approval": needs_approval,
                "max_days": days,
            },
        )
    return {offering.isolation: offering for offering in Offering.objects.filter(is_active=True)}


def _read_cluster(cluster: Cluster, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        _take_over(cluster)
        unread = read_unread_nodes(cluster=cluster)
        if not unread or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    _take_over(cluster)
    with transaction.atomic():
        pools.refresh_pools()


def _take_over(cluster: Cluster) -> None:
    nodes = [NodeObject.from_manifest(item) for item in cluster.list(NODE).items]
    inventory.record_nodes(nodes, now=timezone.now(), is_complete=True)
    pods = [PodObject.from_manifest(item) for item in cluster.list(POD).items]
    inventory.record_pods(pods, is_complete=True)


def _unmanaged() -> list[GpuPod]:
    return list(
        GpuPod.objects.filter(
            tenant__isnull=False, node__isnull=False, phase="Running", allocation_label=""
        )
        .select_related("tenant", "node")
        .order_by("pk")
    )


def _adopt(pod: GpuPod, offerings: dict[str, Offering], cluster: Cluster) -> bool:
    """Make the request and the right that such a Pod would have had, and label it with them."""
    if pod.tenant is None or pod.node is None:
        return False
    resource = next(iter(pod.resources))
    gpus = Gpu.objects.filter(node=pod.node, is_present=True).select_related("model")
    gpu = gpus.filter(instances__resource_name=resource).first() or gpus.first()
    if gpu is None:
        return False
    replicas = gpu.replicas
    isolation = "isolated"
    if resource == WHOLE_GPU:
        isolation = "shared" if replicas > 1 else "whole"
    offering = offerings[isolation]
    grant = replace(
        grants.grant_for(
            gpu.model,
            resource,
            share=grants.share_of_node(pod.node),
            offering=offering,
            replicas=replicas,
        ),
        placements=_places(pod),
    )
    try:
        with transaction.atomic():
            slice_request = _request_for(pod, pod.tenant, offering, grant)
            started = slice_request.ready_at or timezone.now()
            allocation = allocations.adopt(slice_request, grant, now=started)
    except ServiceError:
        return False
    label = {"metadata": {"labels": {ALLOCATION_LABEL: str(allocation.pk)}}}
    cluster.patch(POD, pod.name, label, pod.namespace)
    return True


def _ask(tenants: dict[str, Tenant], offerings: dict[str, Offering]) -> None:
    """Leave some requests in the inbox, so that the demo has something to decide."""
    if SliceRequest.objects.filter(state=SliceRequest.State.WAITING_FOR_APPROVAL).exists():
        return
    for username, slug, isolation, memory_gib, count, days, purpose in REQUESTS:
        requests.submit_request(
            requests.Wish(
                tenant=tenants[slug],
                offering=offerings[isolation],
                memory_mib=int(memory_gib * _GIB),
                count=count,
                days=days,
                purpose=purpose,
            ),
            actor=User.objects.get(username=username),
        )


def _places(pod: GpuPod) -> list[dict[str, Any]]:
    """Return where the Pod's devices are, as an allocation remembers it."""
    ids = [device.split("::")[0] for held in (pod.devices or {}).values() for device in held]
    places: list[dict[str, Any]] = [
        {"gpu": item.gpu.uuid, "profile": item.profile, "start": item.start}
        for item in GpuInstance.objects.filter(mig_uuid__in=ids).select_related("gpu")
    ]
    whole = Gpu.objects.filter(uuid__in=ids).values_list("uuid", flat=True)
    return places + [{"gpu": uuid, "profile": "", "start": 0} for uuid in whole]


def _request_for(
    pod: GpuPod, tenant: Tenant, offering: Offering, grant: allocations.Grant
) -> SliceRequest:
    members = list(
        User.objects.filter(memberships__tenant=tenant).order_by("memberships__role", "pk")
    )
    number = sum(map(ord, pod.name))
    days = 1 + number % offering.max_days
    # A Pod older than the longest slice holds one that was asked for again and again.
    latest = timezone.now() - timedelta(days=days) * 0.7
    started = max(pod.started_at or latest, latest)
    slice_request = SliceRequest.objects.create(
        tenant=tenant,
        requester=members[number % len(members)],
        offering=offering,
        memory_mib=grant.memory_mib,
        count=sum(pod.resources.values()),
        days=days,
        purpose=_PURPOSES[number % len(_PURPOSES)],
        state=SliceRequest.State.READY,
        decided_at=started - timedelta(minutes=20),
        ready_at=started,
    )
    SliceRequest.objects.filter(pk=slice_request.pk).update(
        submitted_at=started - timedelta(minutes=40), state_changed_at=started
    )
    return slice_request
