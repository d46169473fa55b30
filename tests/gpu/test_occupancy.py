"""Who holds what: devices by Pod, grants without a Pod, and what the cluster does not tell."""

import pytest
from django.utils import timezone

from gpu.models import Gpu, GpuPod, ResourcePool, SliceRequest
from gpu.selectors.occupancy import GpuOccupancy, Use, occupancy
from gpu.services import allocations
from tenants.models import Tenant
from tests import factories

pytestmark = pytest.mark.django_db

SMALL = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def gpu() -> Gpu:
    return Gpu.objects.get(node=factories.make_node())


@pytest.fixture
def vision() -> Tenant:
    return factories.make_tenant("vision")


def look() -> GpuOccupancy:
    (seen,) = occupancy(Gpu.objects.order_by("pk"))
    return seen


def uses() -> list[Use]:
    return [hold.use for hold in look().holds]


def grant(tenant: Tenant, gpu: Gpu, *, placements: list[dict[str, str | int]]) -> None:
    pool, _ = ResourcePool.objects.get_or_create(
        model=gpu.model, resource_name=SMALL, defaults={"capacity": 7}
    )
    person = factories.join(tenant, factories.make_user(f"member-{SliceRequest.objects.count()}"))
    wish = factories.submit(tenant, person)
    given = factories.grant_of(pool, profile="1g.5gb")
    allocation = allocations.grant_now(wish, given, now=timezone.now())
    allocation.placements = placements
    allocation.save()


def test_a_pod_holds_the_instance_whose_device_it_names(gpu: Gpu, vision: Tenant) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    held = factories.cut(gpu, "1g.5gb", 1)
    pod = factories.make_pod(gpu.node, "train", resource=SMALL, devices=[held.mig_uuid])
    GpuPod.objects.update(tenant=vision)

    seen = look()

    assert [hold.use for hold in seen.holds] == [Use.FREE, Use.IN_USE]
    assert seen.instances[1].hold.pods == (pod,)
    assert seen.instances[1].hold.tenant == vision


def test_a_pod_whose_devices_nobody_tells_may_hold_any_of_its_kind(gpu: Gpu) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "2g.10gb", 2)
    factories.make_pod(gpu.node, "train", resource=SMALL, devices=None)

    assert uses() == [Use.UNKNOWN, Use.FREE]


def test_a_finished_pod_holds_nothing(gpu: Gpu) -> None:
    held = factories.cut(gpu, "1g.5gb", 0)
    factories.make_pod(gpu.node, "train", resource=SMALL, devices=[held.mig_uuid])
    GpuPod.objects.update(phase="Succeeded")

    assert uses() == [Use.FREE]


def test_a_grant_without_a_pod_keeps_the_instance_that_was_cut_for_it(
    gpu: Gpu, vision: Tenant
) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "1g.5gb", 3)
    grant(vision, gpu, placements=[{"gpu": gpu.uuid, "profile": "1g.5gb", "start": 3}])

    seen = look()

    assert [hold.use for hold in seen.holds] == [Use.FREE, Use.GRANTED]
    assert seen.instances[1].hold.tenant == vision


def test_a_grant_without_a_place_keeps_one_of_the_free_instances(gpu: Gpu, vision: Tenant) -> None:
    factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "1g.5gb", 3)
    grant(vision, gpu, placements=[])

    assert uses() == [Use.GRANTED, Use.FREE]


def test_a_right_that_a_pod_uses_keeps_nothing_more(gpu: Gpu, vision: Tenant) -> None:
    held = factories.cut(gpu, "1g.5gb", 0)
    factories.cut(gpu, "1g.5gb", 3)
    grant(vision, gpu, placements=[{"gpu": gpu.uuid, "profile": "1g.5gb", "start": 3}])
    factories.make_pod(gpu.node, "train", resource=SMALL, devices=[held.mig_uuid])
    GpuPod.objects.update(tenant=vision)

    assert uses() == [Use.IN_USE, Use.FREE]


def test_a_whole_gpu_is_held_by_its_uuid(gpu: Gpu) -> None:
    Gpu.objects.update(is_mig_enabled=False)
    factories.make_pod(gpu.node, "train", resource="nvidia.com/gpu", devices=[gpu.uuid])

    assert uses() == [Use.IN_USE]


def test_shares_of_a_gpu_are_held_one_by_one(gpu: Gpu) -> None:
    Gpu.objects.update(is_mig_enabled=False, sharing="time-slicing", replicas=3)
    factories.make_pod(gpu.node, "a", resource="nvidia.com/gpu", devices=[f"{gpu.uuid}::1"])

    assert uses() == [Use.FREE, Use.IN_USE, Use.FREE]


@pytest.mark.parametrize("gpus", [1, 8])
def test_looking_takes_five_queries_for_any_number_of_gpus(
    gpus: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    node = factories.make_node("many", gpus=gpus)
    for gpu in node.gpus.all():
        held = factories.cut(gpu, "1g.5gb", 0)
        factories.make_pod(node, f"p{gpu.index}", resource=SMALL, devices=[held.mig_uuid])

    with django_assert_num_queries(5):  # type: ignore[operator]  # pytest-django's fixture
        seen = occupancy(Gpu.objects.order_by("index"))

    assert [hold.use for item in seen for hold in item.holds] == [Use.IN_USE] * gpus
