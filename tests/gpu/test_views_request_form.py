"""Asking for a slice: the form and its answer, with and without scripts, in each refusal."""

import re

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from gpu.models import Gpu, SliceRequest
from gpu.selectors.operations import usual_duration_s
from gpu.services import requests
from tests import factories
from tests.gpu.people import People, make_people, signed_in

A100_80 = "NVIDIA-A100-SXM4-80GB"
NEW = "/requests/new/"
FIT = "/requests/fit/"
WISH = {
    "tenant": "vision",
    "isolation": "isolated",
    "memory": "9",
    "count": "1",
    "days": "3",
    "gpu_model": "",
    "purpose": "Training",
}


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def gpu(db: None) -> Gpu:
    """One A100 80GB with a free 1g.10gb, and all three kinds offered."""
    factories.make_offering("isolated")
    factories.make_offering("shared", needs_approval=False)
    factories.make_offering("whole")
    gpu = factories.make_node("gpu-a", product=A100_80).gpus.get()
    factories.cut(gpu, "1g.10gb", 0)
    return gpu


@pytest.fixture
def bob(people: People, gpu: Gpu) -> Client:
    return signed_in(people.bob)


def text_of(answer: object) -> str:
    return " ".join(answer.content.decode().split())  # type: ignore[attr-defined]  # a response


def value_of(text: str, name: str) -> str:
    found = re.search(rf'name="{name}"[^>]*?value="([^"]*)"', text) or re.search(
        rf'value="([^"]*)"[^>]*?name="{name}"', text
    )
    assert found is not None, f"there is no field {name}"
    return found.group(1)


def test_the_empty_form_starts_with_a_usual_size_and_answers_it_at_once(bob: Client) -> None:
    text = text_of(bob.get(NEW))

    assert value_of(text, "memory") == "9.5"
    assert value_of(text, "tenant") == "vision"
    assert "You can have this now." in text
    assert "1g.10gb on A100 80GB: 9.5 GiB, 1 of 7 parts of the compute." in text
    assert "Your tenant's lead or an admin has to approve it first." in text


def test_each_choice_says_what_it_does_not_give(bob: Client) -> None:
    text = text_of(bob.get(NEW))
    for sentence in (
        "Not given: NVLink or peer-to-peer between slices",
        "Not given: memory of its own",
        "A share is not a GPU",
        "Not given: CPU, disk and network of its own.",
    ):
        assert sentence in text


def test_submitting_makes_a_request_and_shows_it(bob: Client, people: People) -> None:
    answer = bob.post(NEW, WISH)

    row = SliceRequest.objects.get()
    assert answer.headers["Location"] == f"/requests/{row.pk}/"
    assert (row.requester, row.tenant, row.memory_mib) == (people.bob, people.vision, 9 * 1024)
    assert row.state == SliceRequest.State.WAITING_FOR_APPROVAL


def test_htmx_is_sent_to_the_new_page(bob: Client) -> None:
    answer = bob.post(NEW, WISH, headers={"HX-Request": "true", "HX-Target": "request-form"})
    assert answer.headers["HX-Redirect"] == f"/requests/{SliceRequest.objects.get().pk}/"


@pytest.mark.parametrize(
    ("field", "typed", "sentence"),
    [
        ("memory", "", "Say how much GPU memory each slice needs, in GiB."),
        ("memory", "much", "Write the memory as a number of GiB, such as 20 or 9.5."),
        ("memory", "-1", "Ask for more than 0 GiB of memory."),
        ("memory", "1e99", "Ensure that there are no more than"),
        ("count", "0", "Ask for at least one slice."),
        ("count", "9", "Ask for 1 to 8 at once."),
        ("count", "two", "Write how many slices as a whole number, such as 2."),
        ("days", "99", "Choose 1 to 14 days; a longer need is asked for again near the end."),
        ("days", "", "Say for how many days you need it."),
        ("tenant", "nlp", "Choose one of your own tenants."),
        ("isolation", "magic", "This is not offered any more; choose another kind."),
        ("gpu_model", "NVIDIA-Z9", "The cluster has no such model; choose another or any."),
        ("purpose", "  ", "Say in a few words what the slice is for."),
        ("purpose", "x" * 501, "Say what it is for in at most 500 characters."),
    ],
)
def test_a_wrong_field_is_named_and_nothing_typed_is_lost(
    bob: Client, field: str, typed: str, sentence: str
) -> None:
    answer = bob.post(NEW, {**WISH, "purpose": "My <b>own</b> words", field: typed})

    text = text_of(answer)
    assert answer.status_code == 422
    assert sentence in text
    if field != "purpose":
        assert "My &lt;b&gt;own&lt;/b&gt; words" in text
    assert SliceRequest.objects.count() == 0


def test_htmx_gets_the_form_alone_with_its_errors(bob: Client) -> None:
    answer = bob.post(
        NEW, {**WISH, "days": "99"}, headers={"HX-Request": "true", "HX-Target": "request-form"}
    )
    assert answer.status_code == 422
    assert text_of(answer).startswith('<form id="request-form"')


def test_what_the_cluster_can_never_give_is_refused_with_the_reason(bob: Client) -> None:
    answer = bob.post(NEW, {**WISH, "memory": "500"})

    assert answer.status_code == 422
    assert "No slice of A100 80GB holds that much memory." in text_of(answer)
    assert SliceRequest.objects.count() == 0


def test_more_than_the_whole_quota_is_refused_with_the_way_out(bob: Client, people: People) -> None:
    people.vision.memory_limit_mib = 5 * 1024
    people.vision.save()

    answer = bob.post(NEW, WISH)

    assert answer.status_code == 422
    assert "more than the whole quota of Vision" in text_of(answer)


def test_what_the_service_refuses_stands_on_the_form(bob: Client, people: People) -> None:
    for _number in range(20):
        factories.submit(people.vision, people.bob)

    answer = bob.post(NEW, WISH)

    assert answer.status_code == 422
    assert "You have 20 requests open; withdraw one" in text_of(answer)


def test_a_stranger_cannot_ask_in_the_name_of_a_tenant(people: People, gpu: Gpu) -> None:
    answer = signed_in(people.mallory).post(NEW, WISH)
    assert answer.status_code == 422
    assert SliceRequest.objects.count() == 0


@pytest.mark.parametrize("who", ["charlie", "grace"])
def test_who_belongs_to_no_tenant_is_told_what_to_do(people: People, gpu: Gpu, who: str) -> None:
    answer = signed_in(getattr(people, who)).get(NEW)
    assert answer.status_code == 403
    assert "You belong to no tenant" in text_of(answer)


def test_checking_without_scripts_answers_and_asks_for_nothing(bob: Client) -> None:
    answer = bob.post(NEW, {**WISH, "purpose": "", "memory": "30", "check": "1"})

    text = text_of(answer)
    assert answer.status_code == 200
    assert "You can have this after a change that disturbs nobody." in text
    assert "3g.40gb on A100 80GB" in text
    assert value_of(text, "memory") == "30"
    assert SliceRequest.objects.count() == 0


def test_a_counter_offer_fills_the_form_and_keeps_the_rest(bob: Client) -> None:
    text = text_of(bob.post(NEW, {**WISH, "memory": "500", "check": "1"}))
    offer = value_of(text, "fill")
    assert offer.startswith("isolation=isolated|memory=79|count=1|gpu_model=")

    answer = bob.post(NEW, {**WISH, "memory": "500", "purpose": "Kept", "days": "2", "fill": offer})

    text = text_of(answer)
    assert answer.status_code == 200
    assert value_of(text, "memory") == "79"
    assert value_of(text, "days") == "2"
    assert value_of(text, "purpose") == "Kept"
    assert SliceRequest.objects.count() == 0


def test_a_forged_counter_offer_fills_nothing_else(bob: Client) -> None:
    answer = bob.post(NEW, {**WISH, "fill": "tenant=nlp|purpose=stolen|memory=12|nonsense"})
    text = text_of(answer)
    assert value_of(text, "tenant") == "vision"
    assert value_of(text, "purpose") == "Training"
    assert value_of(text, "memory") == "12"


def test_the_answer_follows_what_is_typed(bob: Client) -> None:
    answer = bob.get(FIT, {**WISH, "memory": "20"})

    text = text_of(answer)
    assert answer.status_code == 200
    assert text.startswith('<div id="fit-answer"')
    assert "3g.40gb" in text
    assert "Ask for 19.5 GiB" in text


def test_a_half_typed_wish_is_answered_with_what_is_missing(bob: Client) -> None:
    text = text_of(bob.get(FIT, {**WISH, "memory": "", "purpose": ""}))
    assert "Say how much GPU memory each slice needs, in GiB." in text
    assert "what the slice is for" not in text


def test_the_answer_shows_the_quota_before_and_after(bob: Client) -> None:
    text = text_of(bob.get(FIT, WISH))
    assert "Quota of Vision, now and after" in text
    assert "0 GiB → 9.5 GiB of 400 GiB" in text
    assert "0 → 1 of 70" in text


def test_a_full_quota_is_said_and_may_still_be_waited_for(bob: Client, people: People) -> None:
    people.vision.memory_granted_mib = people.vision.memory_limit_mib
    people.vision.save()

    assert "The quota is used up" in text_of(bob.get(FIT, WISH))
    assert bob.post(NEW, WISH).status_code == 302


def test_nothing_free_names_no_other_tenant(bob: Client, people: People, gpu: Gpu) -> None:
    gpu.instances.all().delete()
    factories.cut(gpu, "7g.80gb", 0)
    factories.make_pod(
        gpu.node, "secret-7f", resource="nvidia.com/mig-7g.80gb", devices=[f"MIG-{gpu.uuid}-0"]
    )

    text = text_of(bob.get(FIT, WISH))

    assert "Not now: it would wait for room." in text
    assert "1 A100 80GB GPU is in use." in text
    assert "secret-7f" not in text
    assert "team-nlp" not in text


def test_asking_again_fills_in_what_was_asked_before(bob: Client, people: People) -> None:
    row = factories.submit(people.vision, people.bob, memory_mib=19968, count=2, days=5)
    requests.decline_request(row.pk, actor=people.alice, reason="Later")

    text = text_of(bob.get(f"{NEW}?again={row.pk}&count=1"))

    assert value_of(text, "memory") == "19.5"
    assert value_of(text, "count") == "1"
    assert value_of(text, "days") == "5"
    assert value_of(text, "purpose") == "Training a small model"


@pytest.mark.parametrize("number", ["1", "x", "99999999999999999999999"])
def test_asking_again_for_somebody_elses_request_is_404(
    people: People, gpu: Gpu, number: str
) -> None:
    factories.submit(people.vision, people.bob)
    number = str(SliceRequest.objects.get().pk) if number == "1" else number
    assert signed_in(people.mallory).get(f"{NEW}?again={number}").status_code == 404


def test_who_belongs_to_two_tenants_chooses(people: People, gpu: Gpu) -> None:
    factories.join(people.other, people.bob)
    client = signed_in(people.bob)
    assert '<select name="tenant"' in text_of(client.get(NEW))
    client.post(NEW, {**WISH, "tenant": "nlp"})
    assert SliceRequest.objects.get().tenant == people.other


def test_a_portal_without_gpus_or_offerings_still_has_a_page(people: People) -> None:
    client = signed_in(people.bob)
    text = text_of(client.get(NEW))
    assert "Nothing is offered yet" in text
    factories.make_offering()
    text = text_of(client.get(FIT, WISH))
    assert "No GPU of the cluster has been read yet." in text


def test_the_slider_knows_the_real_sizes_of_each_kind_and_model(bob: Client) -> None:
    text = text_of(bob.get(NEW))
    sizes = re.search(r'data-sizes="([^"]*)"', text)
    assert sizes is not None
    assert (
        "&quot;NVIDIA-A100-SXM4-80GB&quot;: [&quot;9.5&quot;, &quot;19.5&quot;,"
        " &quot;39.25&quot;, &quot;79&quot;]" in sizes.group(1)
    )


def test_a_change_says_how_long_the_last_ones_took(bob: Client) -> None:
    assert usual_duration_s() is None
    text = text_of(bob.get(FIT, {**WISH, "memory": "30"}))
    assert "1 GPU on gpu-a is cut for it first." in text
    assert "The last changes took" not in text


@pytest.mark.parametrize("nodes", [1, 50])
def test_an_answer_costs_as_many_queries_on_fifty_nodes_as_on_one(
    bob: Client, nodes: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(nodes - 1):
        factories.make_node(f"n{number}", product=A100_80)
    with django_assert_max_num_queries(20):
        bob.get(FIT, {**WISH, "memory": "30"})
