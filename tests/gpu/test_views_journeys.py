"""The way of a request, told step by step: failures, second attempts, what is still to come."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from gpu.models import Allocation, Operation, OperationStep, ResourcePool, SliceRequest
from gpu.selectors.operations import usual_duration_s
from gpu.selectors.requests import requests_for_detail
from gpu.services import allocations, placing, requests
from gpu.views.journeys import JourneyStep, journey_of
from gpu.views.request_story import Story, story_of
from tenants.models import Membership
from tests import factories
from tests.gpu.people import People, make_people, signed_in

State = SliceRequest.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def row(people: People) -> SliceRequest:
    """A request of bob's that has been approved."""
    found = factories.submit(people.vision, people.bob)
    return requests.approve_request(found.pk, actor=people.alice)


def tell(row: SliceRequest, people: People) -> tuple[JourneyStep, ...]:
    loaded = requests_for_detail(people.bob).get(pk=row.pk)
    return journey_of(loaded, deciders=["alice"], now=timezone.now())


def story(row: SliceRequest, people: People) -> Story:
    loaded = requests_for_detail(people.bob).get(pk=row.pk)
    return story_of(loaded, viewer=people.bob, now=timezone.now())


def outcomes(steps: tuple[JourneyStep, ...]) -> dict[str, str]:
    return {step.code: step.outcome for step in steps}


def reserve(row: SliceRequest, *, pending: int = 0) -> Allocation:
    pool, _new = ResourcePool.objects.get_or_create(
        model=factories.make_model(), resource_name="nvidia.com/mig-1g.10gb"
    )
    with transaction.atomic():
        found = allocations.reserve(row, factories.grant_of(pool))
        found.pending_changes = [{"gpu": f"GPU-{number}"} for number in range(pending)]
        found.save()
        requests.set_state(row, State.BEING_MADE)
    return found


def change(row: SliceRequest, name: str, state: str) -> Operation:
    is_over = state in Operation.FINAL_STATES
    node = factories.make_node(name)
    found = Operation.objects.create(
        node=node,
        gpu=node.gpus.get(),
        state=state,
        slice_request=row,
        desired={"mig": True, "instances": [["1g.10gb", 0]]},
        previous={"mig": True, "instances": []},
        failure="%(node)s did not answer." if is_over and state != "done" else "",
        failure_params={"node": name},
        finished_at=timezone.now() if is_over else None,
        deadline_at=None if is_over else timezone.now() + timedelta(minutes=5),
    )
    OperationStep.objects.create(
        operation=found,
        state="applying",
        outcome="done" if is_over else "running",
        message="Reading the GPUs of the node.",
        finished_at=timezone.now() + timedelta(seconds=40) if is_over else None,
    )
    return found


def test_a_request_that_looks_for_room_has_all_the_rest_to_come(
    row: SliceRequest, people: People
) -> None:
    assert outcomes(tell(row, people)) == {
        "submitted": "done",
        "approval": "done",
        "room": "running",
        "granted": "to_come",
        "tested": "to_come",
        "ready": "to_come",
    }


def test_a_change_that_failed_says_why_and_the_next_attempt_follows_it(
    row: SliceRequest, people: People
) -> None:
    failed = change(row, "n1", Operation.State.ROLLED_BACK)
    reserve(row)
    change(row, "n2", Operation.State.APPLYING)

    steps = tell(row, people)

    assert [step.code for step in steps][2:5] == ["change", "room", "change"]
    assert steps[2].outcome == "failed"
    assert steps[2].detail == "n1 did not answer."
    assert steps[2].operation_id == failed.pk
    assert steps[4].outcome == "running"
    assert steps[4].parts[0].message == "Reading the GPUs of the node."


def test_a_failed_change_stands_there_while_room_is_looked_for_again(
    row: SliceRequest, people: People
) -> None:
    change(row, "n1", Operation.State.NEEDS_OPERATOR)
    placing.keep_waiting(row.pk, "change_failed")

    found = story(row, people)

    assert [step.code for step in found.steps][2:4] == ["change", "room"]
    assert found.reasons[0].startswith("The change of a GPU that was made for you did not work")


def test_changes_that_have_not_begun_are_counted(row: SliceRequest, people: People) -> None:
    reserve(row, pending=2)
    labels = [step.label for step in tell(row, people)]
    assert "2 more GPUs to change" in labels


def test_what_holds_a_slice_up_is_said_while_it_is_made(row: SliceRequest, people: People) -> None:
    reserve(row)
    placing.mark_held_up(row.pk, "cluster", error="timed out")

    found = story(row, people)

    assert found.reasons == ("The cluster does not answer at the moment; it is tried again.",)
    assert found.state == "being made"
    assert not found.may_withdraw


def test_without_a_lead_an_admin_decides(people: People) -> None:
    Membership.objects.filter(user=people.alice).delete()
    row = factories.submit(people.vision, people.bob)
    assert story(row, people).reasons == ("An admin decides; the tenant has no lead.",)


def test_what_needs_no_approval_says_so(people: People) -> None:
    offering = factories.make_offering("shared", needs_approval=False)
    wish = requests.Wish(people.vision, offering, 1024, 1, 1, "Notebook")
    row = requests.submit_request(wish, actor=people.bob)
    steps = tell(row, people)
    assert (steps[1].label, steps[1].outcome) == ("No approval needed", "done")


def test_a_withdrawn_request_has_nothing_more_to_come(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    requests.withdraw_request(row.pk, actor=people.bob)
    found = story(row, people)
    assert [step.code for step in found.steps] == ["submitted", "withdrawn"]
    assert found.reasons == ("The person who asked for it withdrew it.",)
    assert found.may_ask_again


def test_a_slice_past_its_end_says_so(row: SliceRequest, people: People) -> None:
    reserve(row)
    now = timezone.now()
    Allocation.objects.update(
        state="ended", starts_at=now - timedelta(days=3), ends_at=now, ended_at=now
    )
    SliceRequest.objects.filter(pk=row.pk).update(state=State.ENDED)
    found = story(row, people)
    assert found.reasons == ("It had reached its end.",)
    assert found.time_left == ""


def test_a_share_and_a_whole_gpu_are_named_without_a_profile(people: People) -> None:
    names = {}
    for isolation, replicas in (("shared", 4), ("whole", 1)):
        offering = factories.make_offering(isolation, needs_approval=False)
        wish = requests.Wish(people.vision, offering, 1024, 2, 1, "Notebook")
        row = requests.submit_request(wish, actor=people.bob)
        pool, _new = ResourcePool.objects.get_or_create(
            model=factories.make_model(), resource_name="nvidia.com/gpu", defaults={"capacity": 9}
        )
        what = allocations.Grant(
            pool.model, "nvidia.com/gpu", "", 40960 // replicas, 7000 // replicas, 1, 1, 1
        )
        with transaction.atomic():
            allocations.grant_now(row, what, now=timezone.now())
        names[isolation] = story(row, people).title
    assert names == {
        "shared": "2 \N{MULTIPLICATION SIGN} share of one A100 40GB, 10 GiB",
        "whole": "2 \N{MULTIPLICATION SIGN} whole A100 40GB, 40 GiB",
    }


def test_the_answer_says_how_long_the_last_changes_took(row: SliceRequest, people: People) -> None:
    change(row, "n1", Operation.State.DONE)
    assert usual_duration_s() == pytest.approx(40, abs=1)
    factories.make_node("n2")

    answer = signed_in(people.bob).get(
        "/requests/fit/",
        {
            "tenant": "vision",
            "isolation": "isolated",
            "memory": "9",
            "count": "1",
            "days": "1",
            "gpu_model": "",
        },
    )

    assert "The last changes took about 40 s." in answer.content.decode()
