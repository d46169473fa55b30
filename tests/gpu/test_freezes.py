"""Change freezes and GPUs out of service: what they stop, what goes on, and their pages."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import ChangeFreeze, Gpu, Node, Operation, SliceRequest
from gpu.reconcilers import queue
from gpu.services import freezes, operations, requests, service_state
from gpu.services.errors import ServiceError
from gpu.services.freezes import FrozenError
from gpu.services.operations import Change
from portal.audit.models import AuditEvent
from tests import factories
from tests.gpu.lab import drive, make_lab, work
from tests.gpu.people import People, make_people, signed_in

H200 = "gpu-h200-01"
BIG_MIB = 130 * 1024


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def cluster(people: People, tmp_path: Path) -> SimulatedCluster:
    return make_lab(tmp_path, nodes=[H200])


@pytest.fixture
def gpu(people: People) -> Gpu:
    return Gpu.objects.select_related("node").get(node=factories.make_node())


def hold(node: Node | None, people: People, *, hours: int = 2) -> ChangeFreeze:
    ends_at = timezone.now() + timedelta(hours=hours)
    return freezes.freeze(node, reason="Conference deadline", ends_at=ends_at, actor=people.grace)


def start(gpu: Gpu, people: People) -> Operation:
    desired = {"mig": True, "instances": []}
    return operations.start_operation(Change(gpu=gpu, desired=desired), actor=people.grace)


@pytest.mark.parametrize("is_everywhere", [True, False])
def test_a_freeze_stops_new_changes_and_says_why(
    gpu: Gpu, people: People, *, is_everywhere: bool
) -> None:
    freeze = hold(None if is_everywhere else gpu.node, people)

    with pytest.raises(FrozenError, match=r"n1 until .*Conference deadline"):
        start(gpu, people)

    assert not Operation.objects.exists()
    freezes.lift(freeze.pk, actor=people.grace)
    assert start(gpu, people).state == "approved"
    verbs = set(AuditEvent.objects.values_list("verb", flat=True))
    assert {"freeze.set", "freeze.lifted", "operation.opened"} <= verbs


def test_a_freeze_of_another_node_or_of_the_past_stops_nothing(gpu: Gpu, people: People) -> None:
    hold(factories.make_node("n2"), people)
    past = hold(gpu.node, people)
    ChangeFreeze.objects.filter(pk=past.pk).update(ends_at=timezone.now())

    assert start(gpu, people).state == "approved"


def test_what_is_under_way_goes_on(cluster: SimulatedCluster, people: People) -> None:
    gpu = Gpu.objects.select_related("node").get(index=1, node__name=H200)
    operation = start(gpu, people)
    hold(None, people)

    assert drive(operation, cluster).state == "done"


def test_a_request_waits_for_the_end_says_so_and_goes_on(
    cluster: SimulatedCluster, people: People
) -> None:
    freeze = hold(None, people)
    row = factories.submit(people.vision, people.bob, memory_mib=70 * 1024)
    requests.approve_request(row.pk, actor=people.alice)
    queue.advance_request(row.pk, cluster=cluster)
    queue.advance_request(row.pk, cluster=cluster)
    row.refresh_from_db()
    assert (row.state, row.waiting_reason) == ("being_made", "frozen")
    text = signed_in(people.bob).get(f"/requests/{row.pk}/").content.decode()
    assert "the admins let no change start for now" in text

    freezes.lift(freeze.pk, actor=people.grace)
    assert work(row, cluster).state == SliceRequest.State.READY


def test_a_second_change_is_told_who_was_first(gpu: Gpu, people: People) -> None:
    first = start(gpu, people)

    with pytest.raises(ServiceError) as refused:
        start(gpu, people)

    text = str(refused.value)
    assert people.grace.display_name in text
    assert f"operation {first.pk}" in text


def test_the_page_sets_lists_and_lifts(admin: Client, gpu: Gpu) -> None:
    until = (timezone.localtime() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    data = {"node": gpu.node.pk, "ends_at": until, "reason": "Driver update by hand"}

    answer = admin.post("/freezes/", data, follow=True)

    text = answer.content.decode()
    assert "Driver update by hand" in text
    assert "No new change starts there now" in text
    for path in (f"/nodes/{gpu.node.name}/", f"/gpus/{gpu.pk}/layout/"):
        page = admin.get(path).content.decode()
        assert "No change may start on this node until" in page, path
    row = ChangeFreeze.objects.get()
    assert admin.post(f"/freezes/{row.pk}/lift/", follow=True).status_code == 200
    row.refresh_from_db()
    assert row.lifted_at is not None
    again = admin.post(f"/freezes/{row.pk}/lift/", follow=True).content.decode()
    assert "This freeze has ended already." in again


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ends_at": "tomorrow"}, "This is no date with a time"),
        ({"ends_at": ""}, "Say until when"),
        ({"ends_at": "2020-01-01T10:00"}, "The end has passed already"),
        ({"reason": " "}, "Say why"),
        ({"node": "4711"}, "Select a valid choice"),
    ],
)
def test_bad_input_gets_one_sentence(
    admin: Client, gpu: Gpu, changes: dict[str, str], sentence: str
) -> None:
    good = {"node": "", "ends_at": "2999-01-01T10:00", "reason": "x"}

    answer = admin.post("/freezes/", {**good, **changes})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not ChangeFreeze.objects.exists()


def test_the_list_costs_the_same_for_many(
    admin: Client, people: People, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _number in range(20):
        hold(None, people)
    with django_assert_max_num_queries(10):
        admin.get("/freezes/")


def test_a_gpu_out_of_service_is_given_to_nobody_until_it_is_back(
    cluster: SimulatedCluster, people: People
) -> None:
    for gpu in Gpu.objects.filter(node__name=H200):
        service_state.take_out_of_service(gpu.pk, note="ECC errors", actor=people.grace)
    row = factories.submit(people.vision, people.bob, memory_mib=16_000)
    requests.approve_request(row.pk, actor=people.alice)
    assert work(row, cluster).state == SliceRequest.State.WAITING_FOR_ROOM

    for gpu in Gpu.objects.filter(node__name=H200):
        service_state.put_back_in_service(gpu.pk, actor=people.grace)
    assert work(row, cluster).state == SliceRequest.State.READY


def test_the_gpus_page_takes_it_out_and_puts_it_back(admin: Client, gpu: Gpu) -> None:
    path = f"/gpus/{gpu.pk}/service/"
    empty = admin.post(path, {"action": "out", "note": ""})
    assert (empty.status_code, "Say why" in empty.content.decode()) == (422, True)

    text = admin.post(path, {"action": "out", "note": "Fan is loud"}, follow=True).content.decode()
    assert "nobody new gets it" in text
    assert "Out of service: Fan is loud" in text
    gpu.refresh_from_db()
    assert (gpu.is_in_service, gpu.service_note) == (False, "Fan is loud")
    twice = admin.post(path, {"action": "out", "note": "again"})
    assert (twice.status_code, "out of service already" in twice.content.decode()) == (409, True)

    text = admin.post(path, {"action": "back"}, follow=True).content.decode()
    assert "in service again" in text
    gpu.refresh_from_db()
    assert (gpu.is_in_service, gpu.service_note) == (True, "")
