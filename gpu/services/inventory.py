"""Taking over what the cluster shows: nodes and GPU Pods."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from gpu import dispatch
from gpu.manifests import ALLOCATION_LABEL
from gpu.models import GpuPod, Node, Operation
from gpu.objects import GPU_PREFIX, NodeObject, PodObject
from tenants.models import Tenant

_NODE_FIELDS = (
    "uid",
    "boot_id",
    "labels",
    "capacity",
    "allocatable",
    "is_schedulable",
    "is_ready",
    "is_present",
    "cpu_milli",
    "memory_bytes",
    "storage_bytes",
    "kubelet_version",
    "observed_at",
)
_POD_FIELDS = (
    "namespace",
    "name",
    "node",
    "tenant",
    "phase",
    "resources",
    "devices",
    "owner_kind",
    "owner_name",
    "has_local_data",
    "allocation_label",
    "message",
    "started_at",
)
_PROBE_AGAIN = timedelta(seconds=120)


def has_gpus(node: NodeObject) -> bool:
    """Say whether a node is of interest: it offers a GPU resource or carries a GPU label."""
    return bool(node.capacity) or any(key.startswith(GPU_PREFIX) for key in node.labels)


@transaction.atomic(durable=True)
def record_nodes(nodes: Iterable[NodeObject], *, now: datetime, is_complete: bool) -> set[str]:
    """Upsert nodes; with a complete list, those missing from it are marked as gone.

    Returns the names of nodes whose shown facts changed.
    """
    seen = [node for node in nodes if has_gpus(node)]
    before = {row.name: row for row in Node.objects.filter(name__in=[n.name for n in seen])}
    rows = [_node_row(node, now) for node in seen]
    changed = {row.name for row in rows if _differs(before.get(row.name), row)}
    Node.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["name"], update_fields=list(_NODE_FIELDS)
    )
    if is_complete:
        gone = Node.objects.filter(is_present=True).exclude(name__in=[n.name for n in seen])
        changed |= set(gone.values_list("name", flat=True))
        gone.update(is_present=False, is_ready=False)
    if changed:
        dispatch.announce("gpus", "nodes", *(f"node-{name}" for name in sorted(changed)))
    return changed


def confirm_nodes(*, now: datetime) -> None:
    """Note that what is known of the present nodes is fresh: nothing has happened to them."""
    Node.objects.filter(is_present=True).update(observed_at=now)


@transaction.atomic(durable=True)
def record_pods(pods: Iterable[PodObject], *, is_complete: bool) -> None:
    """Upsert Pods that ask for a GPU; finished ones are dropped, for they hold nothing.

    Our own verification Pods are left out: counted as holders, they would take away the very
    devices that they prove from the request that these were cut for.
    """
    wanted = [pod for pod in pods if pod.resources and not _is_ours(pod)]
    live = [pod for pod in wanted if not pod.is_finished]
    nodes = dict(Node.objects.values_list("name", "pk"))
    tenants = dict(Tenant.objects.values_list("namespace", "pk"))
    GpuPod.objects.bulk_create(
        [_pod_row(pod, nodes, tenants) for pod in live],
        update_conflicts=True,
        unique_fields=["uid"],
        update_fields=list(_POD_FIELDS),
    )
    stale = Q(uid__in=[pod.uid for pod in wanted if pod.is_finished])
    if is_complete:
        stale = ~Q(uid__in=[pod.uid for pod in live])
    GpuPod.objects.filter(stale).delete()
    concerned = {tenants[pod.namespace] for pod in wanted if pod.namespace in tenants}
    dispatch.announce(
        "gpus",
        "overview",
        *(f"node-{pod.node}" for pod in wanted if pod.node),
        *(f"tenant-{tenant_id}" for tenant_id in sorted(concerned)),
    )


@transaction.atomic(durable=True)
def forget_pods(uids: Iterable[str]) -> None:
    """Drop Pods that the cluster has deleted."""
    gone = GpuPod.objects.filter(uid__in=list(uids))
    tenant_ids = set(gone.filter(tenant__isnull=False).values_list("tenant_id", flat=True))
    gone.delete()
    dispatch.announce("gpus", "overview", *(f"tenant-{pk}" for pk in sorted(tenant_ids)))


@transaction.atomic(durable=True)
def forget_node(name: str) -> None:
    """Mark a node as gone; its history stays."""
    Node.objects.filter(name=name).update(is_present=False, is_ready=False)
    dispatch.announce("gpus", "nodes", f"node-{name}")


def _is_ours(pod: PodObject) -> bool:
    """Say whether a Pod is a verification Pod: it holds a device for seconds and is nobody's."""
    return pod.namespace == settings.SYSTEM_NAMESPACE


def nodes_to_probe() -> list[Node]:
    """Return ready nodes whose GPUs have not been read since their last start, oldest first.

    A node under an operation is left alone, for the operation reads it itself.
    """
    unread = Q(probed_at=None) | ~Q(probed_boot_id=F("boot_id"))
    return list(
        Node.objects.filter(unread, is_present=True, is_ready=True)
        .exclude(Exists(Operation.objects.under_way().filter(node=OuterRef("pk"))))
        .order_by("probed_at", "name")
    )


def claim_probe(node: Node, *, now: datetime) -> datetime:
    """Return the time that names the present probe of a node, a new one when the last is old."""
    expired = Q(probe_requested_at=None) | Q(probe_requested_at__lt=now - _PROBE_AGAIN)
    Node.objects.filter(expired, pk=node.pk).update(probe_requested_at=now)
    node.refresh_from_db(fields=["probe_requested_at"])
    return node.probe_requested_at or now


def _node_row(node: NodeObject, now: datetime) -> Node:
    return Node(
        name=node.name,
        uid=node.uid,
        boot_id=node.boot_id,
        labels=dict(node.labels),
        capacity=dict(node.capacity),
        allocatable=dict(node.allocatable),
        is_schedulable=node.is_schedulable,
        is_ready=node.is_ready,
        is_present=True,
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_bytes,
        storage_bytes=node.storage_bytes,
        kubelet_version=node.kubelet_version,
        observed_at=now,
    )


def _differs(before: Node | None, after: Node) -> bool:
    watched = [name for name in _NODE_FIELDS if name != "observed_at"]
    return before is None or any(getattr(before, f) != getattr(after, f) for f in watched)


def _pod_row(pod: PodObject, nodes: dict[str, int], tenants: dict[str, int]) -> GpuPod:
    devices = None if pod.devices is None else {k: list(v) for k, v in pod.devices.items()}
    return GpuPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node_id=nodes.get(pod.node),
        tenant_id=tenants.get(pod.namespace),
        phase=pod.phase,
        resources=dict(pod.resources),
        devices=devices,
        owner_kind=pod.owner_kind,
        owner_name=pod.owner_name,
        has_local_data=pod.has_local_data,
        allocation_label=pod.labels.get(ALLOCATION_LABEL, ""),
        message=pod.message[:2000],
        started_at=pod.created_at,
    )
