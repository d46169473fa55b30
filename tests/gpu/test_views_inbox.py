"""The inbox: what waits for whom, what a yes means, one decision and several, and what it costs."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gpu.models import Gpu, SliceRequest
from gpu.services import requests
from gpu.services.errors import ServiceError
from tenants.models import Tenant
from tests import factories
from tests.gpu.people import People, make_people, signed_in

State = SliceRequest.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def lead(people: People) -> Client:
    return signed_in(people.alice)


def page(client: Client, path: str = "/inbox/") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def state_of(row: SliceRequest) -> str:
    return SliceRequest.objects.get(pk=row.pk).state


def waiting(people: People, **changes: int) -> SliceRequest:
    return factories.submit(people.vision, people.bob, **changes)


def test_leads_see_what_waits_in_their_tenant_and_admins_all(people: People) -> None:
    ours = waiting(people)
    theirs = factories.submit(people.other, people.mallory)

    def listed(client: Client) -> set[int]:
        text = page(client)
        return {row.pk for row in (ours, theirs) if f'id="request-{row.pk}"' in text}

    assert listed(signed_in(people.alice)) == {ours.pk}
    assert listed(signed_in(people.grace)) == {ours.pk, theirs.pk}


@pytest.mark.parametrize("who", ["bob", "mallory", "charlie"])
def test_who_decides_nothing_has_no_inbox(people: People, who: str) -> None:
    row = waiting(people)
    client = signed_in(getattr(people, who))
    assert client.get("/inbox/").status_code == 403
    assert client.post(f"/requests/{row.pk}/approve/").status_code == 403
    assert state_of(row) == State.WAITING_FOR_APPROVAL


def test_an_empty_inbox_says_what_would_be_here(lead: Client) -> None:
    assert "Nothing waits for you" in page(lead)


def test_a_yes_names_the_quota_before_and_after_and_what_changes_on_which_gpu(
    people: People, lead: Client
) -> None:
    factories.make_node()
    Tenant.objects.update(memory_granted_mib=100 * 1024, compute_granted=10_000)
    waiting(people)

    text = page(lead)

    assert "9 GiB, isolated · for 3 days" in text
    assert "Fits after a change that disturbs nobody." in text
    assert "1g.10gb on A100 40GB, 9.62 GiB" in text
    assert "n1 · 0: create 1g.10gb@" in text
    assert "100 GiB → 109.62 GiB of 400 GiB" in text
    assert "10 → 11 of 70" in text


def test_a_free_instance_fits_now_and_changes_nothing(people: People, lead: Client) -> None:
    gpu = Gpu.objects.get(node=factories.make_node())
    cut = factories.cut(gpu, "1g.10gb", 0)
    gpu.node.allocatable = gpu.node.capacity = {cut.resource_name: 1}
    gpu.node.save()
    factories.make_pool(gpu.model, cut.resource_name, capacity=1)
    waiting(people)

    text = page(lead)

    assert "Fits now: it is granted at once." in text
    assert "What changes" not in text


def test_who_is_in_the_way_is_named(people: People, lead: Client) -> None:
    gpu = factories.make_node(gpus=2).gpus.get(index=0)
    Gpu.objects.filter(index=1).update(is_in_service=False)
    held = factories.cut(gpu, "7g.40gb", 0)
    factories.make_pod(gpu.node, "train", resource=held.resource_name, devices=[held.mig_uuid])
    waiting(people)

    text = page(lead)

    assert "Waits: it fits only if others make room." in text
    assert "In the way" in text
    assert "train on n1 · 0" in text


def test_what_can_never_be_had_is_said_with_the_reason(people: People, lead: Client) -> None:
    factories.make_node()
    row = waiting(people)
    SliceRequest.objects.filter(pk=row.pk).update(memory_mib=300 * 1024)

    text = page(lead)

    assert "This cluster can never give that." in text
    assert "In the way" not in text


def test_a_quota_that_does_not_hold_it_is_said_first(people: People, lead: Client) -> None:
    factories.make_node()
    waiting(people)
    Tenant.objects.update(memory_granted_mib=395 * 1024)

    text = page(lead)

    assert "The quota does not hold this" in text
    assert "meter-over" in text


def test_approving_moves_the_request_on_with_the_reason(people: People, lead: Client) -> None:
    row = waiting(people)
    answer = lead.post(f"/requests/{row.pk}/approve/", {"reason": " For the class "}, follow=True)
    assert answer.redirect_chain == [("/inbox/", 302)]
    assert "1 request approved." in answer.content.decode()
    decided = SliceRequest.objects.get(pk=row.pk)
    assert decided.state != State.WAITING_FOR_APPROVAL
    assert (decided.decided_by, decided.decision_reason) == (people.alice, "For the class")


def test_a_no_needs_a_reason(people: People, lead: Client) -> None:
    row = waiting(people)

    answer = lead.post(f"/requests/{row.pk}/decline/", {"reason": ""})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()
    assert state_of(row) == State.WAITING_FOR_APPROVAL

    assert lead.post(f"/requests/{row.pk}/decline/", {"reason": "Too large"}).status_code == 302
    assert state_of(row) == State.DECLINED


def test_a_decision_that_comes_too_late_is_refused_and_keeps_the_others(
    people: People, lead: Client
) -> None:
    row, other = waiting(people), waiting(people)
    requests.decline_request(row.pk, actor=people.grace, reason="No")

    answer = lead.post(f"/requests/{row.pk}/approve/")
    text = answer.content.decode()

    assert answer.status_code == 409
    assert "This request is declined already; nothing was changed." in text
    assert f'id="request-{other.pk}"' in text
    assert 'hx-get="/inbox/?page=1"' in text  # never the address of a decision
    assert "sse:requests" not in text  # news would wipe the sentence away


@pytest.mark.parametrize("action", ["approve", "decline"])
def test_nobody_decides_for_another_tenant(people: People, lead: Client, action: str) -> None:
    row = factories.submit(people.other, people.mallory)
    answer = lead.post(f"/requests/{row.pk}/{action}/", {"reason": "No"})
    assert answer.status_code == 404
    assert state_of(row) == State.WAITING_FOR_APPROVAL
    assert lead.get(f"/requests/{row.pk}/{action}/").status_code == 405


@pytest.mark.parametrize(
    ("decision", "words"),
    [("approve", "2 requests approved."), ("decline", "2 requests declined.")],
)
def test_one_decision_on_several(people: People, lead: Client, decision: str, words: str) -> None:
    chosen, kept = [waiting(people), waiting(people)], waiting(people)
    data = {"ids": [row.pk for row in chosen], "decision": decision, "reason": "The class is over"}

    answer = lead.post("/inbox/", data, follow=True)

    assert words in answer.content.decode()
    assert all(state_of(row) != State.WAITING_FOR_APPROVAL for row in chosen)
    assert state_of(kept) == State.WAITING_FOR_APPROVAL


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"decision": "approve"}, "Choose at least one request"),
        ({"decision": "decline", "ids": "ours", "reason": " "}, "Say why"),
        ({"decision": "approve", "ids": "theirs"}, "Choose at least one request"),
        ({"decision": "maybe", "ids": "ours"}, "not one of the available choices"),
    ],
)
def test_several_at_once_are_refused_whole_where_something_is_missing(
    people: People, lead: Client, data: dict[str, str], sentence: str
) -> None:
    rows = {"ours": waiting(people), "theirs": factories.submit(people.other, people.mallory)}
    sent: dict[str, Any] = dict(data)
    if "ids" in sent:
        sent["ids"] = [rows[sent["ids"]].pk]

    answer = lead.post("/inbox/", sent)

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert {state_of(row) for row in rows.values()} == {State.WAITING_FOR_APPROVAL}


def test_one_that_comes_too_late_stops_none_of_the_others(
    people: People, lead: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, timely = waiting(people), waiting(people)
    approve: Callable[..., SliceRequest] = requests.approve_request

    def racing(request_id: int, **given: Any) -> SliceRequest:  # noqa: ANN401  # handed on
        if request_id == late.pk:
            message = "Somebody was faster."
            raise ServiceError(message)
        return approve(request_id, **given)

    monkeypatch.setattr(requests, "approve_request", racing)
    answer = lead.post("/inbox/", {"ids": [late.pk, timely.pk], "decision": "approve"})

    assert answer.status_code == 409
    assert "Somebody was faster." in answer.content.decode()
    assert state_of(timely) != State.WAITING_FOR_APPROVAL


def test_htmx_gets_the_list_alone(people: People, lead: Client) -> None:
    waiting(people)
    answer = lead.get("/inbox/", headers={"HX-Request": "true", "HX-Target": "inbox-list"})
    text = answer.content.decode()
    assert text.strip().startswith('<section id="inbox-list"')
    assert "<html" not in text


def test_twenty_requests_ask_as_much_as_one(people: People, lead: Client) -> None:
    factories.make_node(gpus=2)
    waiting(people)
    page(lead)
    with CaptureQueriesContext(
        connection,
    ) as one:
        page(lead)
    for number in range(24):
        person = factories.join(people.vision, factories.make_user(f"person-{number}"))
        factories.submit(people.vision, person)
    with CaptureQueriesContext(connection) as many:
        text = page(lead)

    assert text.count("data-inbox-item") == 20
    assert "1 to 20 of 25" in text
    assert len(many) == len(one)
    assert len(one) <= 24
