"""Operations' pages: the list, the story with its evidence, what to do after a failure, undo."""

from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import Gpu, Operation, OperationStep
from gpu.services import operations
from gpu.services.operations import Change
from tenants.models import User
from tests import factories
from tests.gpu.lab import drive, make_lab
from tests.gpu.people import People, make_people, signed_in

State = Operation.State
CUT = (("3g.71gb", 4), ("1g.18gb", 0))


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def cluster(people: People, tmp_path: Path) -> SimulatedCluster:
    return make_lab(tmp_path, nodes=["gpu-h200-01"])


def change(gpu: Gpu, *instances: tuple[str, int], actor: User | None = None) -> Operation:
    desired = {"mig": True, "instances": [list(pair) for pair in instances]}
    with transaction.atomic():
        return operations.open_operation(
            Change(gpu=gpu, desired=desired, reason="A class begins on Monday"), actor=actor
        )


def end(operation: Operation, state: str) -> Operation:
    """Let an operation end in a state, as if it had run."""
    operation.state = state
    operation.finished_at = timezone.now()
    operation.previous = {"mig": True, "instances": []}
    operation.save()
    return operation


def page(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, path
    return response.content.decode()


def empty_gpu() -> Gpu:
    return Gpu.objects.get(node__name="gpu-h200-01", index=1)


def test_a_change_is_told_with_commands_and_evidence(
    people: People, admin: Client, cluster: SimulatedCluster
) -> None:
    operation = drive(change(empty_gpu(), *CUT, actor=people.grace), cluster)

    text = page(admin, f"/operations/{operation.pk}/")

    assert "Change of GPU 1 on gpu-h200-01" in text
    assert "A class begins on Monday" in text
    assert "nvidia-smi mig -cgi 9:4 -C -i 1" in text
    assert "<code>nvidia.com/mig-3g.71gb</code>" in text
    assert "A Pod that asked for no GPU saw none." in text
    verified = operation.steps.get(state=State.VERIFYING).evidence
    devices = [device for row in verified["pods"] for device in row["devices"]]
    assert len(devices) >= 2
    for device in devices:
        assert device["uuid"] in text
    assert text.count("step step-done") == operation.steps.count()
    assert "step-to_come" not in text


def test_an_operation_under_way_shows_deadline_and_what_is_to_come(
    admin: Client, people: People
) -> None:
    operation = change(Gpu.objects.get(node=factories.make_node()), ("1g.5gb", 0))
    now = timezone.now()
    OperationStep.objects.create(operation=operation, state=State.APPROVED, started_at=now)

    text = page(admin, f"/operations/{operation.pk}/")

    assert "step step-running" in text
    assert "left until its deadline" in text
    assert text.count("step step-to_come") == 8
    assert "Undo" not in text

    Operation.objects.update(deadline_at=now)
    assert "past its deadline" in page(admin, f"/operations/{operation.pk}/")


def test_the_story_alone_is_given_to_htmx(admin: Client) -> None:
    operation = change(Gpu.objects.get(node=factories.make_node()), ("1g.5gb", 0))
    headers = {"HX-Request": "true", "HX-Target": "operation-story"}
    response = admin.get(f"/operations/{operation.pk}/", headers=headers)
    text = response.content.decode()
    assert text.lstrip().startswith('<div id="operation-story"')
    assert "<html" not in text


def test_one_that_needs_an_operator_says_what_is_left_and_what_to_do(admin: Client) -> None:
    gpu = Gpu.objects.get(node=factories.make_node())
    operation = end(change(gpu, ("1g.5gb", 0)), State.NEEDS_OPERATOR)
    factories.cut(gpu, "1g.5gb", 0)

    text = page(admin, f"/operations/{operation.pk}/")

    assert "What is as before, and what is not" in text
    assert "not as before" in text
    assert "What to do now" in text
    assert "nvidia-smi mig -i 0 -dgi -gi 7" in text
    assert "kubectl -n " in text


def test_one_that_was_rolled_back_needs_nothing(admin: Client) -> None:
    operation = change(Gpu.objects.get(node=factories.make_node()), ("1g.5gb", 0))
    text = page(admin, f"/operations/{end(operation, State.ROLLED_BACK).pk}/")
    assert "Nothing is left to do." in text
    assert "as before" in text
    assert "What to do now" not in text


def test_undo_asks_first_and_then_puts_it_back(
    people: People, admin: Client, cluster: SimulatedCluster
) -> None:
    operation = drive(change(empty_gpu(), *CUT, actor=people.grace), cluster)
    assert f"/operations/{operation.pk}/undo/" in page(admin, f"/operations/{operation.pk}/")

    text = page(admin, f"/operations/{operation.pk}/undo/")
    assert "Remove 3g.71gb@4" in text
    assert "No Pod is in the way." in text

    response = admin.post(f"/operations/{operation.pk}/undo/")
    undo = Operation.objects.get(undoes=operation)
    assert response.status_code == 302
    assert response["Location"] == f"/operations/{undo.pk}/"
    story = page(admin, f"/operations/{operation.pk}/")
    assert f"/operations/{operation.pk}/undo/" not in story
    assert f"Undone by operation {undo.pk}" in story

    assert drive(undo, cluster).state == State.DONE
    assert not empty_gpu().instances.exists()


def test_only_the_newest_change_can_be_undone(admin: Client) -> None:
    gpu = Gpu.objects.get(node=factories.make_node())
    old = end(change(gpu, ("1g.5gb", 0)), State.DONE)
    end(change(gpu, ("1g.5gb", 1)), State.DONE)

    assert f"/operations/{old.pk}/undo/" not in page(admin, f"/operations/{old.pk}/")
    response = admin.post(f"/operations/{old.pk}/undo/")
    assert response.status_code == 409
    assert "undo the newest change" in response.content.decode()
    assert not Operation.objects.open().exists()


def test_the_list_filters(admin: Client, people: People) -> None:
    failed = end(
        change(Gpu.objects.get(node=factories.make_node("n1")), ("1g.5gb", 0)), State.ROLLED_BACK
    )
    going = change(
        Gpu.objects.get(node=factories.make_node("n2")), ("2g.10gb", 0), actor=people.grace
    )

    def listed(query: str) -> set[int]:
        text = page(admin, f"/operations/{query}")
        return {row.pk for row in (failed, going) if f'href="/operations/{row.pk}/"' in text}

    assert listed("") == {failed.pk, going.pk}
    assert listed("?state=under_way") == {going.pk}
    assert listed("?state=failed") == {failed.pk}
    assert listed("?node=n2") == {going.pk}
    assert listed("?by=grace") == {going.pk}
    assert listed("?state=nonsense") == {failed.pk, going.pk}
    assert "No operation matches these filters." in page(admin, "/operations/?node=n3")


def test_an_empty_list_says_what_would_be_here(admin: Client) -> None:
    assert "No GPU has been changed yet" in page(admin, "/operations/")


@pytest.mark.parametrize(
    ("who", "read", "undo"),
    [("alice", 403, 403), ("bob", 403, 403), ("charlie", 200, 403), ("grace", 200, 200)],
)
def test_who_may_read_and_who_may_undo(people: People, who: str, read: int, undo: int) -> None:
    gpu = Gpu.objects.get(node=factories.make_node())
    operation = end(change(gpu, ("1g.5gb", 0)), State.DONE)
    client = signed_in(getattr(people, who))

    assert client.get("/operations/").status_code == read
    response = client.get(f"/operations/{operation.pk}/")
    assert response.status_code == read
    assert (f"/operations/{operation.pk}/undo/" in response.content.decode()) == (undo == 200)
    assert client.get(f"/operations/{operation.pk}/undo/").status_code == undo
    assert client.get("/operations/4711/").status_code == (404 if read == 200 else 403)


@pytest.mark.parametrize("rows", [1, 25])
def test_the_list_costs_as_many_queries_for_a_full_page_as_for_one(
    admin: Client, rows: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    gpu = Gpu.objects.get(node=factories.make_node())
    for _number in range(rows):
        end(change(gpu, ("1g.5gb", 0)), State.DONE)
    with django_assert_max_num_queries(8):
        admin.get("/operations/")


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(("path", "budget"), [("", 22), ("undo/", 30)])
def test_a_story_costs_as_many_queries_for_eight_gpus_as_for_one(
    admin: Client,
    gpus: int,
    path: str,
    budget: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    gpu = factories.make_node(gpus=gpus).gpus.get(index=0)
    operation = end(change(gpu, ("1g.5gb", 0)), State.DONE)
    with django_assert_max_num_queries(budget):
        admin.get(f"/operations/{operation.pk}/{path}")
