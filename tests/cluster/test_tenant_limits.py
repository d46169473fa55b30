"""A tenant with one slice starts a Pod on it and on no other GPU key, whenever that key appears.

The real API server admits or refuses; the portal's watcher and worker write what it goes by.
"""

import secrets
from collections.abc import Iterator

import pytest
from django.db import transaction
from django.utils import timezone

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.manifests import MEMBER_NAME
from gpu.models import Allocation, SliceRequest
from gpu.ports import NODE, Cluster, Manifest, RefusedError
from gpu.reconcilers.namespaces import sync_namespace
from gpu.reconcilers.watching import Watcher
from gpu.services import allocations, endings, requests
from gpu.views.kubeconfigs import kubeconfig
from tenants.models import Tenant
from tests import factories
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_until
from tests.cluster.roles import install, remove, signed_in

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

GRANTED = "nvidia.com/mig-1g.10gb"
WHOLE = "nvidia.com/gpu"
LATER = "nvidia.com/mig-2g.20gb"
NODES = "/api/v1/nodes"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with our roles, and a node object that offers two keys."""
    install(control_plane)
    labels = {"nvidia.com/gpu.present": "true"}
    control_plane.api.post(NODES, {"metadata": {"name": "limits-1", "labels": labels}})
    offer(control_plane, WHOLE, GRANTED)
    yield control_plane
    control_plane.api.delete(f"{NODES}/limits-1")


@pytest.fixture
def guarded(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The same with the policy of deploy/admission.yaml."""
    install(plane, "admission.yaml")
    yield plane
    remove(plane, "admission.yaml")


@pytest.fixture
def tenant(plane: ControlPlane) -> Iterator[Tenant]:
    """A tenant that was granted one slice; its namespace is written by the worker's account."""
    found = factories.make_tenant(f"limits-{secrets.token_hex(3)}")  # a namespace ends slowly
    lead = factories.join(found, factories.make_user("lea"), role="lead")
    watch_once(plane)
    pool = factories.make_pool(factories.make_model(), GRANTED, capacity=4)
    row = factories.submit(found, lead, count=1)
    if row.state == SliceRequest.State.WAITING_FOR_APPROVAL:
        requests.approve_request(row.pk, actor=lead, reason="")
        row.refresh_from_db()
    with transaction.atomic():
        allocations.grant_now(row, factories.grant_of(pool), now=timezone.now())
    sync(plane, found)
    yield found
    plane.api.delete(f"/api/v1/namespaces/{found.namespace}")


@pytest.fixture
def member(plane: ControlPlane, tenant: Tenant) -> KubernetesCluster:
    """The cluster through the kubeconfig of a member."""
    web = signed_in(plane, "slicedesk-web")
    token = web.request_token(MEMBER_NAME, tenant.namespace, lifetime_s=3600)
    path = plane.directory / "limits.kubeconfig"
    path.write_text(kubeconfig(tenant.namespace, web.endpoint(), token))
    account = f"/api/v1/namespaces/{tenant.namespace}/serviceaccounts"
    wait_until(lambda: len(plane.api.get(account)["items"]) > 1, "an account", timeout_s=60)
    return KubernetesCluster.from_kubeconfig(str(path))


def offer(plane: ControlPlane, *keys: str) -> None:
    """Let the node offer four of each key."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **dict.fromkeys(keys, "4")}
    status = {"capacity": amounts, "allocatable": amounts}
    plane.api.merge(f"{NODES}/limits-1/status", {"status": status})


def watch_once(plane: ControlPlane) -> None:
    """Do what the watcher does with a list of nodes."""
    cluster = KubernetesCluster.from_kubeconfig(str(plane.kubeconfig))
    Watcher(cluster, on_beat=lambda: None).write([(NODE, cluster.list(NODE))])


def sync(plane: ControlPlane, tenant: Tenant) -> None:
    """Do what the worker does; the API server takes a new quota up a little later."""
    worker = signed_in(plane, "slicedesk-worker")

    def is_kept() -> bool:
        return sync_namespace(tenant, cluster=worker) == ""

    wait_until(is_kept, "a quota that is kept", timeout_s=60)


def pod(tenant: Tenant, name: str, key: str, count: int = 1) -> Manifest:
    container = {"name": "main", "image": "nowhere.test/none:1"}
    amounts = {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi", key: str(count)}
    container |= {"resources": {"limits": amounts, "requests": amounts}}  # type: ignore[dict-item]
    meta = {"name": name, "namespace": tenant.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container]},
    }


def refused(member: Cluster, body: Manifest) -> str:
    with pytest.raises(RefusedError) as refusal:
        member.create(body)
    return str(refusal.value)


def test_one_slice_is_one_pod_on_that_key_and_none_on_another(
    tenant: Tenant, member: KubernetesCluster
) -> None:
    member.create(pod(tenant, "first", GRANTED))
    assert "exceeded quota" in refused(member, pod(tenant, "second", GRANTED))
    assert "exceeded quota" in refused(member, pod(tenant, "two", GRANTED, 2))
    assert "exceeded quota" in refused(member, pod(tenant, "whole", WHOLE))


def test_key_that_appears_later_gets_its_zero_from_the_watcher(
    plane: ControlPlane, tenant: Tenant, member: KubernetesCluster
) -> None:
    assert endings.tenants_out_of_step() == []
    offer(plane, WHOLE, GRANTED, LATER)
    watch_once(plane)
    assert endings.tenants_out_of_step() == [tenant.pk]
    sync(plane, tenant)
    assert "exceeded quota" in refused(member, pod(tenant, "later", LATER))
    member.create(pod(tenant, "granted", GRANTED))


def test_policy_refuses_a_key_that_nobody_knows_yet(
    guarded: ControlPlane, tenant: Tenant, member: KubernetesCluster
) -> None:
    def is_on() -> bool:
        try:
            member.create(pod(tenant, "later", LATER), dry_run=True)
        except RefusedError as error:
            return "is not granted to" in str(error)
        return False

    wait_until(is_on, "the policy", timeout_s=60)
    text = refused(member, pod(tenant, "later", LATER))
    assert "container main asks for a GPU resource that is not granted to" in text
    hidden = pod(tenant, "hidden", GRANTED)
    hidden["spec"]["initContainers"] = pod(tenant, "x", LATER)["spec"]["containers"]
    hidden["spec"]["initContainers"][0]["name"] = "before"
    assert "container before asks" in refused(member, hidden)
    sync(guarded, tenant)
    member.create(pod(tenant, "granted", GRANTED))
    assert "exceeded quota" in refused(member, pod(tenant, "whole", WHOLE))


def test_slice_that_was_given_back_starts_nothing(
    plane: ControlPlane, tenant: Tenant, member: KubernetesCluster
) -> None:
    [allocation_id] = tenant_allocations(tenant)
    with transaction.atomic():
        allocation = allocations.locked(allocation_id)
        allocations.end_allocation(allocation, now=timezone.now(), actor=None)
    sync(plane, tenant)
    assert "exceeded quota" in refused(member, pod(tenant, "after", GRANTED))


def tenant_allocations(tenant: Tenant) -> list[int]:
    return list(Allocation.objects.filter(tenant=tenant).values_list("pk", flat=True))
