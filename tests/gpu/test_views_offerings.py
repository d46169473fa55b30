"""Offerings: what is free by model and real memory, and what each kind does not give."""

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from tests import factories
from tests.gpu.people import People, make_people, signed_in

A100_80 = "NVIDIA-A100-SXM4-80GB"


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def page(client: Client) -> str:
    answer = client.get("/offerings/")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_each_size_stands_there_with_its_real_memory_and_what_is_free(people: People) -> None:
    offering = factories.make_offering()
    offering.name_zh = "独占切片"
    offering.save()
    node = factories.make_node(product=A100_80)
    factories.cut(node.gpus.get(), "1g.10gb", 0)
    client = signed_in(people.bob)

    text = page(client)

    row = text[text.index('<span class="mono">1g.10gb</span>') :].split("</tr>")[0]
    assert '<td class="num">9.5 GiB</td>' in row
    assert '<td class="num">1 of 7</td>' in row
    assert '<td class="num"><strong>1</strong></td> <td class="num">7</td>' in row
    assert "isolation=isolated&amp;memory=9.5&amp;gpu_model=NVIDIA-A100-SXM4-80GB" in row
    assert "at most 14 days" in text
    assert "needs approval" in text
    assert "No NVLink and no peer-to-peer" in text


def test_the_offerings_name_follows_the_language(people: People) -> None:
    offering = factories.make_offering()
    offering.name_zh = "独占切片"
    offering.save()
    client = signed_in(people.bob)
    client.cookies["slicedesk_language"] = "zh-hans"
    assert "独占切片" in page(client)


def test_shares_and_whole_gpus_have_their_own_words(people: People) -> None:
    factories.make_offering("shared", needs_approval=False)
    factories.make_offering("whole")
    factories.make_node("a", product=A100_80).gpus.update(
        is_mig_enabled=False, sharing="time-slicing", replicas=4
    )
    factories.make_node("b").gpus.update(is_mig_enabled=False)

    text = page(signed_in(people.bob))

    assert "1 of 4" in text
    assert "no approval needed" in text
    assert "whole GPU" in text
    assert "Memory is not kept apart" in text


def test_who_may_not_ask_sees_no_buttons_to_ask(people: People) -> None:
    factories.make_offering()
    factories.make_node()
    assert "/requests/new/" not in page(signed_in(people.charlie))


def test_what_the_cluster_has_none_of_says_so(people: People) -> None:
    assert "Nothing is offered yet" in page(signed_in(people.bob))
    factories.make_offering("shared")
    assert "The cluster has none of this at the moment." in page(signed_in(people.bob))


def test_an_offering_that_is_withdrawn_is_not_shown(people: People) -> None:
    offering = factories.make_offering()
    offering.is_active = False
    offering.save()
    assert "Nothing is offered yet" in page(signed_in(people.bob))


@pytest.mark.parametrize("nodes", [1, 50])
def test_offerings_cost_as_many_queries_on_fifty_nodes_as_on_one(
    people: People, nodes: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for isolation in ("isolated", "shared", "whole"):
        factories.make_offering(isolation)
    for number in range(nodes):
        factories.make_node(f"n{number}", product=A100_80)
    client = signed_in(people.bob)
    with django_assert_max_num_queries(20):
        client.get("/offerings/")
