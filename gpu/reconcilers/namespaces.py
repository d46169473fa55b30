"""Brings a tenant's namespace to what the ledger says, and proves that the cluster keeps to it."""

import time
import uuid

import structlog

from gpu import manifests
from gpu.ports import Cluster, Manifest, RefusedError, UnreachableError
from gpu.services import namespaces
from tenants.models import Tenant

_log = structlog.get_logger(__name__)

_PATIENCE_S = (0.0, 0.2, 0.4, 0.8)


class NamespaceBusyError(Exception):
    """Another worker is writing this namespace; look again in a moment."""


def sync_namespace(tenant: Tenant, *, cluster: Cluster) -> str:
    """Write namespace, limits, quota and members' account; return what of the limits is not kept.

    Each limit is tried out with a Pod that would exceed it. Idempotent. An empty answer means that
    a Pod above each limit was refused.
    """
    holder = str(uuid.uuid4())
    if not namespaces.claim_namespace(tenant, holder=holder):
        raise NamespaceBusyError(tenant.namespace)
    try:
        amounts = namespaces.amounts_of(tenant)
        for body in _bodies(tenant.namespace, amounts):
            cluster.apply(body)
        problem = _persistent_problem(tenant.namespace, amounts, cluster)
    except BaseException:
        namespaces.let_go(tenant, holder=holder)
        raise
    namespaces.record_written(tenant, hard=amounts.hard(), problem=problem)
    if problem:
        _log.error("namespace.quota_not_kept", namespace=tenant.namespace, problem=problem)
    return problem


def _bodies(namespace: str, amounts: namespaces.Amounts) -> list[Manifest]:
    each = manifests.Amounts(amounts.each_cpu_milli, amounts.each_ram_mib, amounts.each_storage_mib)
    return [
        manifests.namespace(namespace, pod_security="baseline"),
        manifests.resource_quota(namespace, amounts.hard()),
        manifests.limit_range(namespace, each),
        manifests.member_account(namespace),
        manifests.member_binding(namespace),
    ]


def _persistent_problem(namespace: str, amounts: namespaces.Amounts, cluster: Cluster) -> str:
    """Ask again for a moment: the API server takes a new quota up a little after it is written."""
    problem = ""
    for delay_s in _PATIENCE_S:
        time.sleep(delay_s)
        problem = _exceedable(namespace, amounts, cluster)
        if not problem:
            break
    return problem


def _exceedable(namespace: str, amounts: namespaces.Amounts, cluster: Cluster) -> str:
    for key, count in amounts.gpu.items():
        body = manifests.quota_test_pod(namespace, key, count + 1)
        try:
            cluster.create(body, dry_run=True)
        except RefusedError as error:
            text = str(error)
            if "exceeded quota" in text and key in text:
                continue
            if "status unknown for quota" in text:
                msg = f"{namespace}: the quota has not been taken up by the cluster yet"
                raise UnreachableError(msg) from error
            return f"{key}: {text}"
        return (
            f"{key}: a Pod that asks for {count + 1} would be admitted although {count} are granted"
        )
    return ""
