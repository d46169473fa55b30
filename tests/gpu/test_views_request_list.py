"""The list of requests: who sees which, filters, search, order, pages, and what it costs."""

import pytest
from django.db import transaction
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from gpu.models import SliceRequest
from gpu.services import allocations
from tenants.models import Tenant
from tests import factories
from tests.gpu.people import People, make_people, signed_in

RESOURCE = "nvidia.com/mig-1g.10gb"
State = SliceRequest.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_each_sees_own_requests_leads_those_of_the_tenant_managers_and_admins_all(
    people: People,
) -> None:
    row = factories.submit(people.vision, people.bob)
    theirs = factories.submit(people.other, people.mallory)

    def seen(user: str) -> set[int]:
        text = page(signed_in(getattr(people, user)), "/requests/")
        return {pk for pk in (row.pk, theirs.pk) if f"/requests/{pk}/" in text}

    assert seen("bob") == {row.pk}
    assert seen("alice") == {row.pk}
    assert seen("mallory") == {theirs.pk}
    assert seen("charlie") == {row.pk, theirs.pk}
    assert seen("grace") == {row.pk, theirs.pk}


def test_the_list_filters_searches_sorts_and_pages_by_its_address(people: People) -> None:
    for number in range(30):
        SliceRequest.objects.create(
            tenant=people.vision,
            requester=people.bob,
            offering=factories.make_offering(),
            memory_mib=1024 * (number + 1),
            days=1,
            purpose=f"run {number:02}",
            state=State.DECLINED if number % 2 else State.WAITING_FOR_APPROVAL,
        )
    client = signed_in(people.alice)

    def purposes(query: str) -> list[str]:
        text = page(client, f"/requests/?{query}")
        return [f"run {n:02}" for n in range(30) if f"run {n:02}" in text]

    assert len(purposes("")) == 25
    assert len(purposes("page=2")) == 5
    assert len(purposes("page=99")) == 5
    assert len(purposes("state=declined")) == 15
    assert len(purposes("state=open")) == 15
    assert purposes("q=run+07") == ["run 07"]
    assert purposes("sort=memory") == [f"run {n:02}" for n in range(25)]
    assert purposes("sort=-memory") == [f"run {n:02}" for n in range(5, 30)]
    assert len(purposes("state=nonsense&sort=nonsense")) == 25
    assert "No request matches these filters." in page(client, "/requests/?q=nothing")


def test_a_request_is_found_by_its_number(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    client = signed_in(people.bob)
    for query in (str(row.pk), f"%23{row.pk}"):
        assert f"/requests/{row.pk}/" in page(client, f"/requests/?q={query}")
    assert "No request matches" in page(client, "/requests/?q=99999999999999999999")


def test_an_empty_list_says_what_would_be_here(people: People) -> None:
    assert "No requests yet" in page(signed_in(people.bob), "/requests/")


def test_htmx_gets_the_table_alone(people: People) -> None:
    factories.submit(people.vision, people.bob)
    answer = signed_in(people.bob).get(
        "/requests/", headers={"HX-Request": "true", "HX-Target": "request-table"}
    )
    text = answer.content.decode()
    assert text.strip().startswith('<section id="request-table"')
    assert "<html" not in text


@pytest.mark.parametrize("rows", [1, 50])
def test_the_list_asks_as_much_for_fifty_requests_as_for_one(
    people: People, rows: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=100)
    Tenant.objects.update(memory_limit_mib=10**6, compute_limit=10**6)
    for _number in range(rows):
        row = SliceRequest.objects.create(
            tenant=people.vision,
            requester=people.bob,
            offering=factories.make_offering(),
            memory_mib=9000,
            days=1,
            purpose="x",
            state=State.WAITING_FOR_ROOM,
        )
        with transaction.atomic():
            allocations.reserve(row, factories.grant_of(pool))
    client = signed_in(people.alice)
    with django_assert_max_num_queries(13):
        client.get("/requests/")
