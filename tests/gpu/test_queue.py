"""From a request to a slice in the simulated lab: at once, after a change, later, never."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from gpu import manifests
from gpu.adapters.simulated import SimulatedCluster
from gpu.models import Allocation, NamespaceQuota, Operation, ResourcePool, SliceRequest
from gpu.ports import POD, RESOURCE_QUOTA, RefusedError
from gpu.reconcilers import queue
from gpu.services import requests
from gpu.services.allocations import declare_keys
from tenants.models import Membership, Tenant, User
from tests import factories
from tests.gpu.lab import make_lab, work

pytestmark = pytest.mark.django_db

State = SliceRequest.State
H200 = "gpu-h200-01"


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    return make_lab(tmp_path, nodes=[H200])


@pytest.fixture
def tenant(db: None) -> Tenant:
    return factories.make_tenant("genomics", memory_gib=2000, sevenths=200)


@pytest.fixture
def ada(tenant: Tenant) -> User:
    return factories.join(tenant, factories.make_user("ada"))


def _approved(tenant: Tenant, user: User, **changes: int) -> SliceRequest:
    lead = factories.join(
        tenant, factories.make_user(f"lead{User.objects.count()}"), role=Membership.Role.LEAD
    )
    slice_request = factories.submit(tenant, user, **changes)
    return requests.approve_request(slice_request.pk, actor=lead)


def test_free_instance_is_granted_at_once_and_the_quota_is_proved(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    slice_request = work(_approved(tenant, ada, memory_mib=16_000), cluster)
    assert slice_request.state == State.READY
    assert not Operation.objects.exists()
    hard = cluster.read(RESOURCE_QUOTA, manifests.QUOTA_NAME, tenant.namespace)["spec"]["hard"]
    assert hard["requests.nvidia.com/mig-1g.18gb"] == "1"
    assert hard["requests.nvidia.com/gpu"] == "0"
    assert NamespaceQuota.objects.get().problem == ""


def test_tenants_pod_runs_on_the_slice_and_a_second_one_is_refused(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    work(_approved(tenant, ada, memory_mib=16_000), cluster)
    allocation = Allocation.objects.select_related("pool__model").get()

    def pod(name: str) -> manifests.Body:
        return manifests.slice_pod(
            manifests.SlicePod(
                name=name,
                namespace=tenant.namespace,
                allocation=str(allocation.pk),
                resource_name=allocation.pool.resource_name,
                products=[allocation.pool.model.product],
                image="busybox",
                command=["sleep", "1000"],
                amounts=manifests.Amounts(100, 64, 64),
            )
        )

    cluster.create(pod("first"))
    assert cluster.read(POD, "first", tenant.namespace)["status"]["phase"] == "Running"
    with pytest.raises(RefusedError, match="exceeded quota"):
        cluster.create(pod("second"))


def test_instance_is_cut_for_a_request_that_fits_after_a_change(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    slice_request = work(_approved(tenant, ada, memory_mib=140_000), cluster)
    assert slice_request.state == State.READY
    operation = Operation.objects.get()
    assert (operation.state, operation.slice_request_id) == ("done", slice_request.pk)
    allocation = Allocation.objects.get()
    assert (allocation.state, allocation.profile) == ("active", "7g.141gb")
    pool = ResourcePool.objects.get(resource_name="nvidia.com/mig-7g.141gb")
    assert (pool.capacity, pool.granted, pool.reserved) == (1, 1, 0)


def test_failed_change_gives_the_reservation_up_and_is_not_tried_again_there(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    cluster.set_fault(H200, "create_fails", on=True)
    slice_request = work(_approved(tenant, ada, memory_mib=140_000), cluster)
    assert slice_request.state == State.WAITING_FOR_ROOM
    failed = Operation.objects.filter(state=Operation.State.ROLLED_BACK)
    assert failed.count() == len(set(failed.values_list("gpu_id", flat=True)))
    tenant.refresh_from_db()
    assert tenant.compute_granted == 0
    assert not Allocation.objects.exists()
    assert set(ResourcePool.objects.values_list("reserved", flat=True)) == {0}


def test_request_above_the_tenants_quota_waits_and_says_so(
    cluster: SimulatedCluster, ada: User
) -> None:
    poor = factories.make_tenant("poor", memory_gib=10, sevenths=70)
    factories.join(poor, ada)
    slice_request = work(_approved(poor, ada, memory_mib=16_000), cluster)
    assert (slice_request.state, slice_request.waiting_reason) == (State.WAITING_FOR_ROOM, "quota")


def test_request_that_nothing_can_ever_meet_says_never(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    slice_request = work(_approved(tenant, ada, memory_mib=900_000), cluster)
    assert (slice_request.state, slice_request.waiting_reason) == (State.WAITING_FOR_ROOM, "never")


def test_released_slice_goes_to_who_waits_and_the_quota_follows(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    first = work(_approved(tenant, ada, memory_mib=140_000), cluster)
    assert first.state == State.READY
    second = work(_approved(tenant, ada, memory_mib=140_000), cluster)
    third = work(_approved(tenant, ada, memory_mib=140_000), cluster)
    assert [second.state, third.state] == [State.READY, State.WAITING_FOR_ROOM]
    requests.release_slice(second.pk, actor=ada)
    queue.advance_waiting(cluster=cluster)
    queue.end_overdue(cluster=cluster)
    third.refresh_from_db()
    assert third.state == State.READY
    hard = cluster.read(RESOURCE_QUOTA, manifests.QUOTA_NAME, tenant.namespace)["spec"]["hard"]
    assert hard["requests.nvidia.com/mig-7g.141gb"] == "2"


def test_allocation_past_its_end_is_ended_and_its_quota_lowered(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    slice_request = work(_approved(tenant, ada, memory_mib=16_000), cluster)
    Allocation.objects.update(ends_at=timezone.now() - timedelta(minutes=1))
    queue.end_overdue(cluster=cluster)
    slice_request.refresh_from_db()
    assert slice_request.state == State.ENDED
    hard = cluster.read(RESOURCE_QUOTA, manifests.QUOTA_NAME, tenant.namespace)["spec"]["hard"]
    assert hard["requests.nvidia.com/mig-1g.18gb"] == "0"


def test_key_about_to_appear_is_closed_in_every_quota_beforehand(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    work(_approved(tenant, ada, memory_mib=16_000), cluster)
    model = ResourcePool.objects.get(resource_name="nvidia.com/mig-1g.18gb").model
    assert declare_keys(model, {"nvidia.com/mig-1g.18gb.me"}) == {"nvidia.com/mig-1g.18gb.me"}
    queue.sync_tenant(tenant.pk, cluster=cluster)
    hard = cluster.read(RESOURCE_QUOTA, manifests.QUOTA_NAME, tenant.namespace)["spec"]["hard"]
    assert hard["requests.nvidia.com/mig-1g.18gb.me"] == "0"


def test_cluster_that_does_not_answer_holds_a_slice_up_and_loses_nothing(
    cluster: SimulatedCluster, tenant: Tenant, ada: User
) -> None:
    slice_request = _approved(tenant, ada, memory_mib=16_000)
    cluster.set_fault("*", "api_unreachable", on=True)
    work(slice_request, cluster)
    assert (slice_request.state, slice_request.waiting_reason) == (State.BEING_MADE, "cluster")
    cluster.set_fault("*", "api_unreachable", on=False)
    assert work(slice_request, cluster).state == State.READY
