"""The layout editor's pages: who may open them, what they say, and what they refuse."""

import re
from urllib.parse import quote

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from gpu.models import Gpu, GpuPod, Node, Operation
from tests import factories
from tests.gpu.people import People, make_people, signed_in

PAGES = ("layout/", "layout/preview/", "layout/confirm/?layout=2g.10gb@0")


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def gpu(people: People) -> Gpu:
    return Gpu.objects.get(node=factories.make_node())


def use(gpu: Gpu, profile: str, start: int, *, pod: str = "train", **changes: str) -> GpuPod:
    held = factories.cut(gpu, profile, start)
    row = factories.make_pod(gpu.node, pod, resource=held.resource_name, devices=[held.mig_uuid])
    GpuPod.objects.filter(pk=row.pk).update(**changes)
    return row


def page(client: Client, gpu: Gpu, path: str = "layout/", layout: str | None = None) -> str:
    query = "" if layout is None else f"?layout={quote(layout)}&unlock=1"
    response = client.get(f"/gpus/{gpu.pk}/{path}{query}")
    assert response.status_code == 200
    return response.content.decode()


def hidden(text: str, name: str) -> str:
    """Return the value of a hidden field."""
    found = re.search(rf'<input type="hidden" name="{name}"(?: value="([^"]*)")?', text)
    assert found is not None, name
    return found[1] or ""


def confirm(client: Client, gpu: Gpu, layout: str, **answers: str) -> HttpResponse:
    """Answer the confirmation as the page gave it out, with changes."""
    text = page(client, gpu, "layout/confirm/", layout)
    given = {name: hidden(text, name) for name in ("layout", "seen_layout", "seen_pods")}
    return send(client, gpu, {**given, "reason": "the queue wants it", **answers})


def send(client: Client, gpu: Gpu, given: dict[str, str]) -> HttpResponse:
    response = client.post(f"/gpus/{gpu.pk}/layout/apply/", given)
    assert isinstance(response, HttpResponse)
    return response


def test_each_place_is_a_link_to_the_layout_after_the_click(admin: Client, gpu: Gpu) -> None:
    factories.cut(gpu, "3g.20gb", 4)

    text = page(admin, gpu)

    both = quote("2g.10gb@0,3g.20gb@4", safe="")
    assert f'href="/gpus/{gpu.pk}/layout/?layout={both}"' in text
    assert "Add 2g.10gb@0" in text
    assert "Take 3g.20gb@4 away" in text
    assert 'id="place-3g.20gb-4"' in text


def test_a_refused_place_is_no_link_and_says_why(admin: Client, gpu: Gpu) -> None:
    factories.cut(gpu, "3g.20gb", 4)

    text = page(admin, gpu)

    found = re.search(r'<a id="place-2g.10gb-4"[^>]*>', text)
    assert found is not None
    assert 'aria-disabled="true"' in found[0]
    assert "href" not in found[0]
    assert "2g.10gb@4: overlaps 3g.20gb@4" in text


def test_an_instance_in_use_is_kept_until_it_is_unlocked(admin: Client, gpu: Gpu) -> None:
    use(gpu, "3g.20gb", 4)

    kept = page(admin, gpu)
    unlocked = page(admin, gpu, layout="3g.20gb@4")

    assert "3g.20gb@4: in use by team-nlp/train" in kept
    assert "3g.20gb@4 is in use and stays where it is." in kept
    assert "Take 3g.20gb@4 away" in unlocked
    assert "unlock=1" in unlocked


def test_the_preview_names_pods_steps_commands_and_counts(admin: Client, gpu: Gpu) -> None:
    use(gpu, "3g.20gb", 4, pod="train")
    use(gpu, "1g.5gb", 0, pod="alone", owner_kind="", owner_name="")

    text = page(admin, gpu, "layout/preview/", "2g.10gb@2")

    assert "<html" not in text
    assert "2 Pods are in the way." in text
    assert "team-nlp/train" in text
    assert "started again by Job train" in text
    assert "lost for ever" in text
    assert "Remove 3g.20gb@4" in text
    assert "nvidia-smi mig -i 0 -cgi 14:2 -C" in text
    assert "<code>nvidia.com/mig-2g.10gb</code>" in text
    assert "n1 is cordoned" in text


def test_a_pod_that_would_lose_its_local_data_is_marked(admin: Client, gpu: Gpu) -> None:
    use(gpu, "3g.20gb", 4)
    assert "loses what it keeps on the node" not in page(admin, gpu, "layout/preview/", "")
    GpuPod.objects.update(has_local_data=True)
    assert "loses what it keeps on the node" in page(admin, gpu, "layout/preview/", "")


def test_the_wanted_bar_shows_what_would_be(admin: Client, gpu: Gpu) -> None:
    use(gpu, "3g.20gb", 4)

    text = page(admin, gpu, layout="3g.20gb@4,2g.10gb@0")
    off = page(admin, gpu, layout="off")

    assert "2g.10gb at slices 0 to 1 free" in text
    assert "whole GPU free" in off


def test_a_layout_that_cannot_be_is_422_and_shows_the_present(admin: Client, gpu: Gpu) -> None:
    factories.cut(gpu, "3g.20gb", 4)
    for layout in ("3g.20gb@1", "nonsense", "7g.40gb@0,1g.5gb@0"):
        response = admin.get(f"/gpus/{gpu.pk}/layout/", {"layout": layout})
        assert response.status_code == 422
        assert "That layout cannot be." in response.content.decode()
        assert "Take 3g.20gb@4 away" in response.content.decode()


def test_nothing_to_change_cannot_be_reviewed(admin: Client, gpu: Gpu) -> None:
    text = page(admin, gpu)
    assert "Nothing changes" in text
    assert "layout/confirm/" not in text
    assert admin.get(f"/gpus/{gpu.pk}/layout/confirm/").status_code == 302


def test_a_confirmed_change_starts_the_operation(people: People, admin: Client, gpu: Gpu) -> None:
    response = confirm(admin, gpu, "2g.10gb@0,3g.20gb@4")

    operation = Operation.objects.get()
    assert response.status_code == 302
    assert response["Location"] == f"/operations/{operation.pk}/"
    assert operation.desired == {"mig": True, "instances": [["2g.10gb", 0], ["3g.20gb", 4]]}
    assert (operation.opened_by, operation.reason) == (people.grace, "the queue wants it")
    assert operation.pods_in_the_way == "wait"


def test_a_change_without_a_reason_is_422(admin: Client, gpu: Gpu) -> None:
    response = confirm(admin, gpu, "2g.10gb@0", reason=" ")
    assert response.status_code == 422
    assert "Say why, so that others can tell later." in response.content.decode()
    assert not Operation.objects.exists()


def test_evicting_others_needs_the_nodes_name(admin: Client, gpu: Gpu) -> None:
    pod = use(gpu, "3g.20gb", 4)

    refused = confirm(admin, gpu, "2g.10gb@0", pods_in_the_way="evict", node_name="n2")
    assert refused.status_code == 422
    text = refused.content.decode()
    assert "Type the node&#x27;s name, n1, to evict Pods of others." in text
    assert re.search(r'value="evict"\s+checked', text)
    assert not Operation.objects.exists()

    assert (
        confirm(admin, gpu, "2g.10gb@0", pods_in_the_way="evict", node_name="n1").status_code == 302
    )
    operation = Operation.objects.get()
    assert operation.pods_in_the_way == "evict"
    assert operation.named_pods == [f"team-nlp/train/{pod.uid}"]


def test_a_pod_that_came_since_makes_the_admin_read_again(admin: Client, gpu: Gpu) -> None:
    held = factories.cut(gpu, "3g.20gb", 4)
    text = page(admin, gpu, "layout/confirm/", "2g.10gb@0")
    given = {name: hidden(text, name) for name in ("layout", "seen_layout", "seen_pods")}
    factories.make_pod(gpu.node, "late", resource=held.resource_name, devices=[held.mig_uuid])

    response = send(admin, gpu, {**given, "reason": "now"})

    assert response.status_code == 409
    text = response.content.decode()
    assert "The GPU or its holders changed while you looked; read this again." in text
    assert "team-nlp/late" in text
    assert not Operation.objects.exists()
    again = {name: hidden(text, name) for name in ("layout", "seen_layout", "seen_pods")}
    assert send(admin, gpu, {**again, "reason": "now"}).status_code == 302


def test_a_node_that_is_being_changed_is_said_and_refused(admin: Client, gpu: Gpu) -> None:
    confirm(admin, gpu, "2g.10gb@0")
    first = Operation.objects.get()

    text = page(admin, gpu, layout="1g.5gb@0")
    response = confirm(admin, gpu, "1g.5gb@0")

    assert "This node is being changed." in text
    assert f"/operations/{first.pk}/" in text
    assert response.status_code == 409
    assert "n1 is being changed already" in response.content.decode()


def test_a_gpu_that_cannot_be_cut_has_no_editor(admin: Client, gpu: Gpu) -> None:
    assert admin.get("/gpus/4711/layout/").status_code == 404


@pytest.mark.parametrize(
    ("who", "status"), [("alice", 403), ("bob", 403), ("charlie", 403), ("grace", 200)]
)
def test_only_admins_reshape(people: People, gpu: Gpu, who: str, status: int) -> None:
    client = signed_in(getattr(people, who))
    for path in PAGES:
        assert client.get(f"/gpus/{gpu.pk}/{path}").status_code == status
    posted = client.post(f"/gpus/{gpu.pk}/layout/apply/", {"layout": "2g.10gb@0"})
    assert posted.status_code == (422 if status == 200 else status)
    assert Client().get(f"/gpus/{gpu.pk}/layout/").status_code == 302


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("gpus", [1, 8])
def test_a_page_costs_as_many_queries_for_eight_gpus_as_for_one(
    admin: Client, gpus: int, path: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    node: Node = factories.make_node("n8", gpus=gpus)
    for gpu in node.gpus.all():
        for start in range(4):
            use(gpu, "1g.5gb", start, pod=f"p{gpu.index}-{start}")
    with django_assert_max_num_queries(26):
        admin.get(f"/gpus/{gpu.pk}/{path}")
