"""Taking over what the cluster shows: nodes and GPU Pods."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, Subquery

from gpu import dispatch
from gpu.manifests import ALLOCATION_LABEL
from gpu.models import GpuPod, NamespaceQuota, Node, Operation
from gpu.objects import GPU_PREFIX, NodeObject, PodObject
from gpu.services import bulk
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
    "taints",
    "gpu_owner",
    "probed_boot_id",
    "observed_at",
)
type _PodRow = dict[str, Any]
_POD_FIELDS = (
    "uid",
    "namespace",
    "name",
    "node_id",
    "tenant_id",
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

    Only what differs is written. Returns the names of nodes whose shown facts changed.
    """
    found = list(nodes)
    before = _nodes_by_name(None if is_complete else [node.name for node in found])
    seen = [node for node in found if node.name in before or has_gpus(node)]
    rows = {node.name: _node_row(node, before.get(node.name), now) for node in seen}
    changed = {name for name, row in rows.items() if _differs(before.get(name), row)}
    bulk.upsert(
        Node, [_values(rows[name]) for name in sorted(changed)], key="name", update=_NODE_FIELDS
    )
    Node.objects.filter(name__in=rows.keys() - changed).update(observed_at=now)
    _read_anew({name for name in changed if _offers_otherwise(before.get(name), rows[name])})
    if is_complete:
        gone = {name for name, row in before.items() if row.is_present and name not in rows}
        Node.objects.filter(name__in=gone).update(is_present=False, is_ready=False)
        changed |= gone
    if changed:
        dispatch.announce("gpus", "nodes", *(f"node-{name}" for name in sorted(changed)))
        _close_new_keys({key for name in changed & rows.keys() for key in rows[name].capacity})
    return changed


def _offers_otherwise(before: Node | None, after: Node) -> bool:
    return before is not None and before.allocatable != after.allocatable


def _read_anew(names: set[str]) -> None:
    """Have the GPUs of nodes read again that offer other devices, by nobody's order of ours."""
    Node.objects.filter(name__in=names).exclude(
        Exists(Operation.objects.under_way().filter(node=OuterRef("pk")))
    ).update(probed_boot_id="", probe_requested_at=None)


def _close_new_keys(keys: set[str]) -> None:
    """Have an explicit 0 written wherever a quota does not name a key yet: it limits no other."""
    for tenant_id, hard in NamespaceQuota.objects.values_list("tenant_id", "hard"):
        if any(f"requests.{key}" not in hard for key in keys):
            dispatch.wake(dispatch.RECONCILE_NAMESPACE, tenant_id)


def _nodes_by_name(names: list[str] | None) -> dict[str, Node]:
    """Return the rows of these nodes, locked in order of their names; None means all."""
    rows = Node.objects.select_for_update(no_key=True).order_by("name")
    return {row.name: row for row in (rows if names is None else rows.filter(name__in=names))}


def confirm_nodes(*, now: datetime) -> None:
    """Note that what is known of the present nodes is fresh: nothing has happened to them.

    Pods of tenants that were made after them get their tenant here.
    """
    Node.objects.filter(is_present=True).update(observed_at=now)
    owner = Tenant.objects.filter(namespace=OuterRef("namespace"))
    orphans = GpuPod.objects.filter(Exists(owner), tenant=None)
    orphans.update(tenant=Subquery(owner.values("pk")[:1]))


@transaction.atomic(durable=True)
def record_pods(pods: Iterable[PodObject], *, is_complete: bool) -> set[str]:
    """Upsert Pods that ask for a GPU; finished ones are dropped, for they hold nothing.

    Our own verification Pods are left out: counted as holders, they would take away the very
    devices that they prove from the request that these were cut for. Only what differs is written.
    Returns the uids of Pods whose node is not known yet: record those again when it is.
    """
    wanted = [pod for pod in pods if pod.resources and not _is_ours(pod)]
    live = {pod.uid: pod for pod in wanted if not pod.is_finished}
    rows = GpuPod.objects.all() if is_complete else GpuPod.objects.filter(uid__in=_uids(wanted))
    before = {row["uid"]: row for row in rows.values(*_POD_FIELDS)}
    nodes = dict(Node.objects.filter(name__in={p.node for p in wanted}).values_list("name", "pk"))
    spaces = {pod.namespace for pod in wanted}
    tenants = dict(Tenant.objects.filter(namespace__in=spaces).values_list("namespace", "pk"))
    after = {uid: _pod_row(pod, nodes, tenants) for uid, pod in live.items()}
    changed = [row for uid, row in after.items() if before.get(uid) != row]
    bulk.upsert(GpuPod, changed, key="uid", update=_POD_FIELDS)
    gone = [row for uid, row in before.items() if uid not in live]
    if gone:
        GpuPod.objects.filter(uid__in=[row["uid"] for row in gone]).delete()
    _announce_pods([*changed, *gone])
    return {pod.uid for pod in live.values() if pod.node and pod.node not in nodes}


@transaction.atomic(durable=True)
def forget_pods(uids: Iterable[str]) -> None:
    """Drop Pods that the cluster has deleted."""
    gone = list(GpuPod.objects.filter(uid__in=list(uids)).values(*_POD_FIELDS))
    if gone:
        GpuPod.objects.filter(uid__in=[row["uid"] for row in gone]).delete()
        _announce_pods(gone)


def _announce_pods(rows: Iterable[_PodRow]) -> None:
    """Tell the pages that show any of these Pods; nothing when there are none."""
    listed = list(rows)
    node_ids = {row["node_id"] for row in listed if row["node_id"]}
    names = Node.objects.filter(pk__in=node_ids).values_list("name", flat=True) if node_ids else ()
    tenant_ids = sorted({row["tenant_id"] for row in listed if row["tenant_id"]})
    if listed:
        dispatch.announce(
            "gpus",
            "overview",
            *(f"node-{name}" for name in names),
            *(f"tenant-{pk}" for pk in tenant_ids),
        )


def _uids(pods: Iterable[PodObject]) -> list[str]:
    return [pod.uid for pod in pods]


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


def _node_row(node: NodeObject, before: Node | None, now: datetime) -> Node:
    # A node that was deleted and has joined again may be another machine under the same name, with
    # the same boot ID or not: its GPUs are read anew.
    is_same = before is not None and before.uid in {"", node.uid} and before.is_present
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
        taints=[dict(taint) for taint in node.taints],
        gpu_owner=node.gpu_owner,
        probed_boot_id=before.probed_boot_id if before is not None and is_same else "",
        observed_at=now,
    )


def _differs(before: Node | None, after: Node) -> bool:
    watched = [name for name in _NODE_FIELDS if name != "observed_at"]
    return before is None or any(getattr(before, f) != getattr(after, f) for f in watched)


def _values(node: Node) -> dict[str, Any]:
    return {
        field.attname: getattr(node, field.attname)
        for field in Node._meta.concrete_fields  # noqa: SLF001  # Django's public API
        if not field.primary_key
    }


def _pod_row(pod: PodObject, nodes: dict[str, int], tenants: dict[str, int]) -> _PodRow:
    devices = None if pod.devices is None else {k: list(v) for k, v in pod.devices.items()}
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "node_id": nodes.get(pod.node),
        "tenant_id": tenants.get(pod.namespace),
        "phase": pod.phase,
        "resources": dict(pod.resources),
        "devices": devices,
        "owner_kind": pod.owner_kind,
        "owner_name": pod.owner_name,
        "has_local_data": pod.has_local_data,
        "allocation_label": pod.labels.get(ALLOCATION_LABEL, ""),
        "message": pod.message[:2000],
        "started_at": pod.created_at,
    }
