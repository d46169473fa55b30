"""Home: slices and requests of the person alone, and another start for admins and managers."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.models import Allocation, SliceRequest
from gpu.services import allocations, placing, requests
from tenants.models import Tenant
from tests import factories
from tests.gpu.people import People, make_people, signed_in

RESOURCE = "nvidia.com/mig-1g.10gb"
State = SliceRequest.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def page(client: Client) -> str:
    answer = client.get("/")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def make_slices(people: People, number: int) -> list[SliceRequest]:
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=100)
    Tenant.objects.update(memory_limit_mib=10**6, compute_limit=10**6)
    rows = []
    for _one in range(number):
        row = SliceRequest.objects.create(
            tenant=people.vision,
            requester=people.bob,
            offering=factories.make_offering(),
            memory_mib=9000,
            days=3,
            purpose="Training",
            state=State.BEING_MADE,
        )
        with transaction.atomic():
            allocations.grant_now(row, factories.grant_of(pool), now=timezone.now())
        placing.mark_ready(row.pk)
        rows.append(row)
    return rows


def test_a_researcher_sees_own_slices_with_end_tenant_and_what_they_are(people: People) -> None:
    (row,) = make_slices(people, 1)
    Allocation.objects.update(ends_at=timezone.now() + timedelta(days=2, hours=5, minutes=30))

    text = page(signed_in(people.bob))

    assert f"/requests/{row.pk}/" in text
    assert "1g.10gb on A100 40GB, 9.62 GiB" in text
    assert "no Pod</td>" in text
    assert "in 2 d 5 h" in text
    assert f"/requests/{row.pk}/" not in page(signed_in(people.alice))


def test_a_slice_that_ends_today_stands_out(people: People) -> None:
    make_slices(people, 1)
    Allocation.objects.update(ends_at=timezone.now() + timedelta(hours=3))
    assert "ending soon" in page(signed_in(people.bob))


def test_what_waits_says_its_place_and_why(people: People) -> None:
    factories.make_model()
    row = factories.submit(people.vision, people.bob)
    requests.approve_request(row.pk, actor=people.alice)
    placing.keep_waiting(row.pk, "full", reasons=[["full", factories.A100, 2]])

    text = page(signed_in(people.bob))

    assert "You are first in the queue. 2 A100 40GB GPUs are in use." in text


def test_a_declined_request_stays_in_sight_for_a_week(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    requests.decline_request(row.pk, actor=people.alice, reason="Too much at once")
    client = signed_in(people.bob)
    assert "Too much at once" in page(client)

    SliceRequest.objects.update(state_changed_at=timezone.now() - timedelta(days=8))
    assert "Too much at once" not in page(client)


def test_a_lead_is_told_what_waits_for_her(people: People) -> None:
    factories.submit(people.vision, people.bob)
    assert "1 request waits for your decision" in page(signed_in(people.alice))
    assert "waits for your decision" not in page(signed_in(people.bob))


def test_the_first_visit_offers_the_first_step(people: People) -> None:
    text = page(signed_in(people.mallory))
    assert "You have no slice at the moment" in text
    assert 'href="/requests/new/"' in text
    assert "What your tenants hold of their quota" in text


def test_who_belongs_to_no_tenant_is_told_whom_to_ask(people: People) -> None:
    text = page(signed_in(factories.make_user("newcomer")))
    assert "You belong to no tenant yet" in text
    assert "button-primary" not in text


@pytest.mark.parametrize(("who", "there"), [("charlie", "/overview/"), ("grace", "/inbox/")])
def test_managers_and_admins_start_elsewhere(people: People, who: str, there: str) -> None:
    answer = signed_in(getattr(people, who)).get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, there)


def test_an_admin_who_is_a_member_has_a_home(people: People) -> None:
    factories.join(people.vision, people.grace)
    assert "You have no slice at the moment" in page(signed_in(people.grace))


@pytest.mark.parametrize("rows", [1, 50])
def test_home_asks_as_much_for_fifty_slices_as_for_one(
    people: People, rows: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_slices(people, rows)
    waiting = factories.submit(people.vision, people.bob)
    requests.approve_request(waiting.pk, actor=people.alice)
    client = signed_in(people.bob)
    with django_assert_max_num_queries(11):
        client.get("/")
