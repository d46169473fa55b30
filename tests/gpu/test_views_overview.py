"""The manager's overview: where the capacity goes, by tenant, model and kind; and as CSV."""

import csv
import io
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.models import Gpu, Node, Operation, ResourcePool, SliceRequest
from gpu.planning.quotas import Amounts
from gpu.selectors.overview import Split, overview
from gpu.services import allocations, pools
from tenants.models import Tenant
from tests import factories
from tests.gpu.people import People, make_people, signed_in

A100_80 = "NVIDIA-A100-SXM4-80GB"
SMALL = "nvidia.com/mig-1g.10gb"
PARTS = [name for name in Split.__dataclass_fields__ if name != "capacity"]


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def manager(people: People) -> Client:
    return signed_in(people.charlie)


def grant(people: People, gpu: Gpu, *, count: int = 1) -> SliceRequest:
    row = SliceRequest.objects.create(
        tenant=people.vision,
        requester=people.bob,
        offering=factories.make_offering(),
        memory_mib=9000,
        count=count,
        days=3,
        purpose="Training",
        state=SliceRequest.State.READY,
    )
    pool = ResourcePool.objects.get(model=gpu.model, resource_name=SMALL)
    with transaction.atomic():
        allocations.grant_now(row, factories.grant_of(pool, memory_mib=9728), now=timezone.now())
    return row


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/overview/{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def table(client: Client, name: str) -> list[list[str]]:
    answer = client.get(f"/overview/{name}.csv")
    assert answer.status_code == 200
    assert answer.content.startswith("\ufeff".encode())
    return list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))


def refreshed() -> None:
    with transaction.atomic():
        pools.refresh_pools()


def whole(split: Split) -> int:
    return sum(getattr(split, name).memory_mib for name in PARTS)


def test_every_mib_of_the_capacity_is_told_where_it_goes(people: People) -> None:
    gpus = list(factories.make_node(gpus=3, product=A100_80).gpus.order_by("index"))
    for start in range(3):
        factories.cut(gpus[0], "1g.10gb", start)
    factories.make_pod(gpus[0].node, "x", resource=SMALL, devices=[f"MIG-{gpus[0].uuid}-1"])
    refreshed()
    grant(people, gpus[0])
    Gpu.objects.filter(pk=gpus[1].pk).update(is_in_service=False)
    down = factories.make_node("down", product=A100_80)
    Node.objects.filter(pk=down.pk).update(is_ready=False)

    total = overview().total

    assert total.capacity == Amounts(4 * 81920, 4 * 7000)
    assert total.granted == Amounts(9728, 1000)
    assert total.foreign == Amounts(9728, 1000)
    assert total.closed == Amounts(81920, 7000)
    assert total.unknown == Amounts(81920, 7000)
    assert total.free == Amounts(81920 + 9728 + 5 * 10240, 7000 + 1000 + 4000)
    assert total.lost == Amounts(81920 - 3 * 9728 - 5 * 10240, 0)
    assert whole(total) == total.capacity.memory_mib


def test_a_gpu_under_change_counts_as_being_made(people: People) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    Operation.objects.create(
        node=gpu.node,
        gpu=gpu,
        state=Operation.State.APPLYING,
        desired={"mig": True, "instances": [["1g.10gb", 0]]},
        deadline_at=timezone.now() + timedelta(minutes=5),
    )
    total = overview().total
    assert total.changing == total.capacity
    assert total.free == Amounts()


def test_a_reserved_device_counts_as_being_made_and_not_as_free(people: People) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    factories.cut(gpu, "1g.10gb", 0)
    refreshed()
    row = factories.submit(people.vision, people.bob)
    pool = ResourcePool.objects.get(model=gpu.model, resource_name=SMALL)
    with transaction.atomic():
        allocations.reserve(row, factories.grant_of(pool, memory_mib=9728))

    found = overview()

    assert found.total.changing == Amounts(9728, 1000)
    assert found.total.granted == Amounts()
    assert whole(found.total) == found.total.capacity.memory_mib
    vision = next(row for row in found.tenants if row.tenant == people.vision)
    assert (vision.promised, vision.granted) == (Amounts(9728, 1000), Amounts())


def test_shares_and_whole_gpus_are_split_too(people: People) -> None:
    shared = factories.make_node("shared", product=A100_80)
    shared.gpus.update(is_mig_enabled=False, sharing="time-slicing", replicas=4)
    factories.make_pod(
        shared, "x", resource="nvidia.com/gpu", devices=[f"{shared.gpus.get().uuid}::0"]
    )
    factories.make_node("whole", product=A100_80).gpus.update(is_mig_enabled=False)
    refreshed()

    total = overview().total

    assert total.foreign == Amounts(20480, 1750)
    assert total.free == Amounts(3 * 20480 + 81920, 3 * 1750 + 7000)
    assert whole(total) == total.capacity.memory_mib


def test_the_page_names_tenants_models_kinds_and_says_that_use_is_unknown(
    people: People, manager: Client
) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    factories.cut(gpu, "1g.10gb", 0)
    factories.cut(gpu, "1g.10gb", 1)
    refreshed()
    grant(people, gpu, count=2)

    text = page(manager)

    assert "A100 80GB" in text
    assert 'href="/requests/?tenant=vision&amp;state=ready"' in text
    assert '<span class="tile-value">19 <span class="unit">GiB</span></span>' in text
    assert "23 % of the capacity" in text
    assert "Isolated slice (MIG)" in text
    assert "No metrics are connected yet: granted is a right, not use." in text
    assert 'aria-label="All GPUs: Granted 19,' in text


def test_the_unit_is_in_the_address(people: People, manager: Client) -> None:
    factories.make_node(product=A100_80)
    assert "GiB of GPU memory as the drivers report it" in page(manager, "?unit=memory")
    text = page(manager, "?unit=compute")
    assert "a whole GPU of any model is 7" in text
    assert '<span class="tile-value">7 <span class="unit">sevenths</span></span>' in text
    assert "GiB of GPU memory" in page(manager, "?unit=nonsense")


def test_devices_that_no_pod_holds_are_counted_by_tenant(people: People, manager: Client) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    for start in range(3):
        factories.cut(gpu, "1g.10gb", start)
    refreshed()
    grant(people, gpu, count=3)
    pod = factories.make_pod(gpu.node, "x", resource=SMALL, devices=[f"MIG-{gpu.uuid}-0"])
    pod.tenant = people.vision
    pod.save()

    rows = {row[0]: row for row in table(manager, "tenants")[1:]}

    assert rows["Vision"] == ["Vision", "3", "28.5", "0", "400", "3", "0", "70", "2", "0"]
    assert rows["Nlp"][1] == "0"


def test_models_and_kinds_as_csv(people: People, manager: Client) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    factories.cut(gpu, "1g.10gb", 0)
    refreshed()
    grant(people, gpu)

    head, row = table(manager, "models")
    kinds = table(manager, "kinds")

    found = dict(zip(head, row, strict=True))
    assert (found["Model"], found["GPUs"]) == ("A100 80GB", "1")
    assert (found["Capacity (GiB)"], found["Granted (GiB)"]) == ("80", "9.5")
    assert (found["Capacity (sevenths)"], found["Granted (sevenths)"]) == ("7", "1")
    assert kinds[1] == ["Isolated slice (MIG)", "1", "9.5", "1", "1"]


def test_a_name_never_becomes_a_formula(people: People, manager: Client) -> None:
    Tenant.objects.filter(pk=people.vision.pk).update(name="=HYPERLINK(1)")
    assert any(row[0] == "'=HYPERLINK(1)" for row in table(manager, "tenants"))


def test_an_unknown_table_is_404(manager: Client) -> None:
    assert manager.get("/overview/people.csv").status_code == 404


def test_an_empty_cluster_says_what_will_be_here(manager: Client) -> None:
    assert "No GPU has been read yet" in page(manager)


@pytest.mark.parametrize(
    ("who", "status"), [("alice", 403), ("bob", 403), ("mallory", 403), ("charlie", 200)]
)
def test_only_managers_and_admins_see_it(people: People, who: str, status: int) -> None:
    client = signed_in(getattr(people, who))
    assert client.get("/overview/").status_code == status
    assert client.get("/overview/tenants.csv").status_code == status


@pytest.mark.parametrize("rows", [1, 50])
def test_the_overview_costs_as_many_queries_for_fifty_as_for_one(
    people: People,
    manager: Client,
    rows: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(rows):
        factories.make_node(f"n{number}", product=A100_80)
        factories.make_tenant(f"t{number}")
    with django_assert_max_num_queries(19):
        manager.get("/overview/")
