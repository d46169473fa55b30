"""The picture that planning decides on: held, promised, unknown, changing; in few queries."""

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.models import Allocation, Gpu, Operation
from gpu.planning.snapshot import GpuMode
from gpu.selectors.snapshot import UNKNOWN_HOLDER, cluster_snapshot
from gpu.services import allocations, pools
from tests import factories

pytestmark = pytest.mark.django_db

RESOURCE = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def gpu() -> Gpu:
    node = factories.make_node()
    found = Gpu.objects.get(node=node)
    for start in (0, 1, 2):
        factories.cut(found, "1g.5gb", start)
    return found


def _free_starts() -> list[int]:
    (node,) = cluster_snapshot().nodes
    return [instance.start for instance in node.gpus[0].free]


def test_free_instances_are_those_that_no_pod_holds(gpu: Gpu) -> None:
    factories.make_pod(gpu.node, "p", resource=RESOURCE, devices=[f"MIG-{gpu.uuid}-1"])
    (node,) = cluster_snapshot().nodes
    assert node.gpus[0].mode is GpuMode.MIG
    assert _free_starts() == [0, 2]
    assert [item.holder for item in node.gpus[0].instances] == [None, "team-nlp/p", None]


def test_pod_whose_device_is_unknown_takes_some_device_of_its_node(gpu: Gpu) -> None:
    factories.make_pod(gpu.node, "p", resource=RESOURCE, devices=None)
    (node,) = cluster_snapshot().nodes
    assert [item.holder for item in node.gpus[0].instances].count(UNKNOWN_HOLDER) == 1
    assert len(_free_starts()) == 2


def test_right_that_nobody_uses_is_laid_on_the_device_cut_for_it(gpu: Gpu) -> None:
    tenant = factories.make_tenant()
    user = factories.join(tenant, factories.make_user())
    pools.refresh_pools()
    pool = gpu.model.pools.get()
    granted = allocations.grant_now(
        factories.submit(tenant, user),
        factories.grant_of(pool, profile="1g.5gb"),
        now=timezone.now(),
    )
    Allocation.objects.filter(pk=granted.pk).update(
        placements=[{"gpu": gpu.uuid, "profile": "1g.5gb", "start": 2}]
    )
    assert _free_starts() == [0, 1]


def test_use_by_a_namespace_without_rights_is_foreign_and_takes_no_right(gpu: Gpu) -> None:
    factories.make_pod(gpu.node, "p", resource=RESOURCE, devices=[f"MIG-{gpu.uuid}-0"])
    pools.refresh_pools()
    pool = gpu.model.pools.get()
    assert (pool.capacity, pool.foreign, pool.free) == (3, 1, 2)


def test_shares_are_counted_by_holder(gpu: Gpu) -> None:
    gpu.instances.all().delete()
    Gpu.objects.update(is_mig_enabled=False, sharing="time-slicing", replicas=4)
    factories.make_pod(gpu.node, "p", resource="nvidia.com/gpu", devices=[f"{gpu.uuid}::1"])
    (node,) = cluster_snapshot().nodes
    assert (node.gpus[0].mode, node.gpus[0].free_replicas) == (GpuMode.TIME_SLICING, 3)


def test_gpu_under_an_operation_is_changing_and_its_new_devices_do_not_count_yet(gpu: Gpu) -> None:
    Operation.objects.create(
        node=gpu.node,
        gpu=gpu,
        state=Operation.State.VERIFYING,
        previous={"mig": True, "instances": [["1g.5gb", 0]]},
        desired={"mig": True, "instances": [["1g.5gb", 0], ["1g.5gb", 1], ["1g.5gb", 2]]},
    )
    (node,) = cluster_snapshot().nodes
    assert node.gpus[0].is_changing
    pools.refresh_pools()
    assert gpu.model.pools.get().capacity == 1


def test_number_of_queries_does_not_grow_with_gpus(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(8):
        factories.make_node(f"n{number}", gpus=8)
    with django_assert_max_num_queries(7):
        assert sum(len(node.gpus) for node in cluster_snapshot().nodes) == 64
