"""The requests' pages: who sees what, what stands there in each state, and giving back."""

from datetime import timedelta

import pytest
import yaml
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.models import Allocation, NamespaceQuota, Operation, OperationStep, SliceRequest
from gpu.services import allocations, placing, requests
from gpu.services.allocations import Grant
from tests import factories
from tests.gpu.people import People, make_people, signed_in

RESOURCE = "nvidia.com/mig-1g.10gb"
State = SliceRequest.State


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def ready(people: People, *, count: int = 1) -> SliceRequest:
    """Take a request of bob's all the way, by the services."""
    row = factories.submit(people.vision, people.bob, count=count)
    requests.approve_request(row.pk, actor=people.alice, reason="Go ahead")
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=10)
    return grant(row, factories.grant_of(pool))


def grant(row: SliceRequest, what: Grant) -> SliceRequest:
    row.refresh_from_db()
    with transaction.atomic():
        allocations.grant_now(row, what, now=timezone.now())
        requests.set_state(row, State.BEING_MADE)
    placing.mark_ready(row.pk)
    row.refresh_from_db()
    return row


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_another_researcher_of_the_tenant_does_not_see_a_colleagues_request(
    people: People,
) -> None:
    row = factories.submit(people.vision, people.bob)
    dora = signed_in(factories.join(people.vision, factories.make_user("dora")))

    assert f"/requests/{row.pk}/" not in page(dora, "/requests/")
    assert dora.get(f"/requests/{row.pk}/").status_code == 404


@pytest.mark.parametrize("path", ["", "pod.yaml", "withdraw/", "release/"])
def test_a_stranger_gets_404_for_everything_of_a_request(people: People, path: str) -> None:
    row = ready(people)
    assert signed_in(people.mallory).get(f"/requests/{row.pk}/{path}").status_code == 404


def test_a_request_that_waits_for_approval_names_who_decides(people: People) -> None:
    row = factories.submit(people.vision, people.bob)

    text = page(signed_in(people.bob), f"/requests/{row.pk}/")

    assert "waiting for approval" in text
    assert "alice or an admin decides." in text
    assert f"/requests/{row.pk}/withdraw/" in text
    assert "step-running" in text


def test_a_request_that_waits_for_room_says_place_reason_and_what_to_do(people: People) -> None:
    factories.make_node()
    first = factories.submit(people.other, people.mallory)
    own = factories.submit(people.vision, people.bob)
    for row in (first, own):
        requests.approve_request(row.pk, actor=people.grace)
    placing.keep_waiting(own.pk, "full", reasons=[["full", factories.A100, 3]])

    text = page(signed_in(people.bob), f"/requests/{own.pk}/")

    assert "Place 2 in the queue; ahead are 0 of your tenant and 1 of other tenants." in text
    assert "3 A100 40GB GPUs are in use." in text
    assert "Nothing to do for you" in text
    assert "mallory" not in text


def test_a_waiting_request_tells_when_and_what_could_be_had_sooner(people: People) -> None:
    node = factories.make_node(gpus=1)
    gpu = node.gpus.get()
    factories.cut(gpu, "3g.20gb", 0)
    factories.cut(gpu, "3g.20gb", 4)
    pool = factories.make_pool(gpu.model, "nvidia.com/mig-3g.20gb", capacity=2)
    holder = factories.submit(people.other, people.mallory)
    requests.approve_request(holder.pk, actor=people.grace)
    what = Grant(
        model=gpu.model,
        resource_name=pool.resource_name,
        profile="3g.20gb",
        memory_mib=19968,
        compute=3000,
        cpu_milli=10_000,
        ram_mib=100_000,
        storage_mib=100_000,
        placements=[{"gpu": gpu.uuid, "profile": "3g.20gb", "start": 0}],
    )
    grant(holder, what)
    own = factories.submit(people.vision, people.bob, memory_mib=30 * 1024)
    requests.approve_request(own.pk, actor=people.grace)

    text = page(signed_in(people.bob), f"/requests/{own.pk}/")

    assert "Expected at about" in text
    assert "high confidence" in text
    assert f"again={own.pk}&amp;isolation=isolated&amp;memory=19.5" in text


def test_while_it_is_made_the_steps_of_the_operation_stand_there(people: People) -> None:
    node = factories.make_node("gpu-a")
    row = factories.submit(people.vision, people.bob)
    requests.approve_request(row.pk, actor=people.alice)
    row.refresh_from_db()
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=0)
    with transaction.atomic():
        allocations.reserve(row, factories.grant_of(pool))
        requests.set_state(row, State.BEING_MADE)
    operation = Operation.objects.create(
        node=node,
        gpu=node.gpus.get(),
        state=Operation.State.APPLYING,
        slice_request=row,
        desired={"mig": True, "instances": [["1g.10gb", 0]]},
        previous={"mig": True, "instances": []},
        deadline_at=timezone.now() + timedelta(minutes=9),
    )
    for state, outcome in (("cordoning", "done"), ("applying", "running")):
        OperationStep.objects.create(
            operation=operation,
            state=state,
            outcome=outcome,
            finished_at=timezone.now() if outcome == "done" else None,
        )

    researcher = page(signed_in(people.bob), f"/requests/{row.pk}/")
    manager = page(signed_in(people.charlie), f"/requests/{row.pk}/")

    assert "being made" in researcher
    assert "GPU changed: gpu-a · 0" in researcher
    for step in ("cordoning", "applying", "verifying", "done"):
        assert step in researcher
    assert f"/operations/{operation.pk}/" not in researcher
    assert f"/operations/{operation.pk}/" in manager


def test_a_ready_slice_hands_out_a_pod_spec_that_names_slice_product_and_one_device(
    people: People,
) -> None:
    row = ready(people, count=2)
    allocation = row.allocation

    client = signed_in(people.bob)
    text = page(client, f"/requests/{row.pk}/")
    answer = client.get(f"/requests/{row.pk}/pod.yaml")

    assert "ready" in text
    assert f"kubectl -n team-vision get pod slice-bob-{row.pk}" in text
    assert answer.headers["Content-Disposition"] == (
        f'attachment; filename="slice-bob-{row.pk}.yaml"'
    )
    pod = yaml.safe_load(answer.content)
    assert pod["metadata"]["namespace"] == "team-vision"
    assert pod["metadata"]["labels"] == {"slicedesk.io/allocation": str(allocation.pk)}
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": factories.A100}
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {
        "cpu": "4000m",
        "memory": "16384Mi",
        "ephemeral-storage": "51200Mi",
        RESOURCE: "1",
    }


def test_a_slice_that_is_not_ready_has_no_pod_spec(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    assert signed_in(people.bob).get(f"/requests/{row.pk}/pod.yaml").status_code == 404


def test_a_share_says_how_programs_keep_to_it(people: People) -> None:
    node = factories.make_node()
    node.gpus.update(is_mig_enabled=False, sharing="time-slicing", replicas=4)
    offering = factories.make_offering("shared", needs_approval=False)
    wish = requests.Wish(people.vision, offering, 8 * 1024, 1, 2, "Notebook")
    row = requests.submit_request(wish, actor=people.bob)
    pool = factories.make_pool(factories.make_model(), "nvidia.com/gpu", capacity=4)
    grant(row, Grant(pool.model, "nvidia.com/gpu", "", 10240, 1750, 4000, 1024, 1024))

    text = page(signed_in(people.bob), f"/requests/{row.pk}/")

    assert "share of one A100 40GB, 10 GiB" in text
    assert "torch.cuda.set_per_process_memory_fraction(0.25)" in text
    assert "memory_limit=10240" in text


def test_the_quotas_test_is_told_as_it_was_found(people: People) -> None:
    row = ready(people)
    quota = NamespaceQuota.objects.create(tenant=people.vision, tested_at=timezone.now())
    client = signed_in(people.bob)
    assert "A Pod above the quota was refused" in page(client, f"/requests/{row.pk}/")

    quota.problem = "nvidia.com/gpu: a Pod that asks for 1 would be admitted"
    quota.save()
    text = page(client, f"/requests/{row.pk}/")
    assert "a Pod that asks for 1 would be admitted" in text
    assert "step-failed" in text


def test_what_runs_on_a_slice_is_told_and_a_pod_without_label_makes_it_unknown(
    people: People,
) -> None:
    node = factories.make_node()
    row = ready(people, count=2)
    client = signed_in(people.bob)
    assert "<dd>no Pod</dd>" in page(client, f"/requests/{row.pk}/")

    pod = factories.make_pod(node, "train", resource=RESOURCE, devices=["MIG-1"])
    pod.namespace = "team-vision"
    pod.save()
    assert "Pods that do not name their slice run" in page(client, f"/requests/{row.pk}/")

    pod.allocation_label = str(row.allocation.pk)
    pod.save()
    assert "<dd>1 of 2<br><code>train</code> Running</dd>" in page(client, f"/requests/{row.pk}/")


def test_a_slice_near_its_end_says_so_on_page_and_list(people: People) -> None:
    row = ready(people)
    Allocation.objects.update(ends_at=timezone.now() + timedelta(hours=5))
    client = signed_in(people.bob)

    assert "ending soon" in page(client, f"/requests/{row.pk}/")
    assert f"/requests/{row.pk}/" in page(client, "/requests/?state=ending_soon")
    Allocation.objects.update(ends_at=timezone.now() + timedelta(hours=50))
    assert f"/requests/{row.pk}/" not in page(client, "/requests/?state=ending_soon")


def test_a_declined_request_gives_reason_and_a_filled_form(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    requests.decline_request(row.pk, actor=people.alice, reason="Use a share for notebooks")
    client = signed_in(people.bob)

    text = page(client, f"/requests/{row.pk}/")

    assert "alice: Use a share for notebooks" in text
    assert f"/requests/new/?again={row.pk}" in text


def test_only_the_requester_withdraws_and_is_asked_first(people: People) -> None:
    row = factories.submit(people.vision, people.bob)
    path = f"/requests/{row.pk}/withdraw/"
    assert signed_in(people.alice).get(path).status_code == 403
    assert signed_in(people.charlie).post(path).status_code == 403
    client = signed_in(people.bob)
    assert "Withdraw this request?" in page(client, path)
    row.refresh_from_db()
    assert row.state == State.WAITING_FOR_APPROVAL

    answer = client.post(path)

    row.refresh_from_db()
    assert answer.headers["Location"] == f"/requests/{row.pk}/"
    assert row.state == State.WITHDRAWN


def test_withdrawing_what_is_made_already_changes_nothing_and_says_why(people: People) -> None:
    row = ready(people)

    answer = signed_in(people.bob).post(f"/requests/{row.pk}/withdraw/")

    assert answer.status_code == 409
    assert "cannot be withdrawn; give the slice back" in answer.content.decode()
    row.refresh_from_db()
    assert row.state == State.READY


@pytest.mark.parametrize("who", ["bob", "alice", "grace"])
def test_holder_lead_and_admin_may_give_a_slice_back(people: People, who: str) -> None:
    row = ready(people)
    client = signed_in(getattr(people, who))
    assert "Give this slice back?" in page(client, f"/requests/{row.pk}/release/")

    client.post(f"/requests/{row.pk}/release/", {"reason": "done"})

    row.refresh_from_db()
    assert row.state == State.ENDED
    assert client.post(f"/requests/{row.pk}/release/").status_code == 409


def test_a_manager_may_look_at_a_slice_and_not_give_it_back(people: People) -> None:
    row = ready(people)
    client = signed_in(people.charlie)
    assert f"/requests/{row.pk}/release/" not in page(client, f"/requests/{row.pk}/")
    assert client.post(f"/requests/{row.pk}/release/").status_code == 403


def test_giving_back_names_the_pods_that_lose_it(people: People) -> None:
    row = ready(people)
    pod = factories.make_pod(factories.make_node(), "train", resource=RESOURCE, devices=["MIG-1"])
    pod.namespace, pod.allocation_label = "team-vision", str(row.allocation.pk)
    pod.save()

    text = page(signed_in(people.bob), f"/requests/{row.pk}/release/")

    assert "Pod train runs on it now" in text


def test_one_request_costs_few_queries(
    people: People, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    row = ready(people)
    client = signed_in(people.bob)
    with django_assert_max_num_queries(10):
        client.get(f"/requests/{row.pk}/")
