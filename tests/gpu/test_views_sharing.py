"""The pages of a change of sharing: who may open them, what they say, and what they refuse."""

import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.models import Gpu, GpuPod, Node, Operation, ResourcePool
from gpu.services.operations import Change, start_operation
from gpu.views.wording import TIMES
from tests import factories
from tests.gpu.people import People, make_people, signed_in

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.5gb"
FOUR = {"strategy": "time-slicing", "gpu": "4"}


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def node(people: People) -> Node:
    """A node with two GPUs: one whole, one with MIG on and an instance."""
    node = factories.make_node(gpus=2)
    Gpu.objects.filter(node=node, index=0).update(is_mig_enabled=False)
    factories.cut(Gpu.objects.get(node=node, index=1), "1g.5gb", 0)
    return node


def text_of(response: HttpResponse, status: int = 200) -> str:
    assert response.status_code == status
    return response.content.decode()


def get(client: Client, path: str, **query: str) -> HttpResponse:
    response = client.get(f"/nodes/n1/sharing/{path}", query)
    assert isinstance(response, HttpResponse)
    return response


def hidden(text: str, name: str) -> str:
    """Return the value of a hidden field."""
    found = re.search(rf'<input type="hidden" name="{name}"(?: value="([^"]*)")?', text)
    assert found is not None, name
    return (found[1] or "").replace("&quot;", '"')


def confirm(client: Client, wish: dict[str, str], **answers: str) -> HttpResponse:
    """Answer the confirmation as the page gave it out, with changes."""
    text = text_of(get(client, "confirm/", **wish))
    seen = {name: hidden(text, name) for name in ("seen_sharing", "seen_pods")}
    return send(client, {**wish, **seen, "trusts": "on", "reason": "a class", **answers})


def send(client: Client, given: dict[str, str]) -> HttpResponse:
    response = client.post("/nodes/n1/sharing/apply/", given)
    assert isinstance(response, HttpResponse)
    return response


def test_the_node_says_how_it_is_shared_and_leads_to_the_form(admin: Client, node: Node) -> None:
    text = text_of(admin.get("/nodes/n1/"))  # type: ignore[arg-type]  # a response
    assert 'href="/nodes/n1/sharing/"' in text
    assert "not shared" in text
    Node.objects.update(
        labels={
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
            "nvidia.com/gpu.product": "A100-SHARED",
        }
    )
    again = text_of(admin.get("/nodes/n1/"))  # type: ignore[arg-type]  # a response
    assert f"time-slicing: nvidia.com/gpu {TIMES} 4" in again.replace("\N{NO-BREAK SPACE}", " ")


def test_the_form_offers_every_resource_of_the_node(admin: Client, node: Node) -> None:
    text = text_of(get(admin, ""))
    assert 'name="gpu" value="1"' in text
    assert 'name="mig-1g.5gb" value="1"' in text
    assert re.search(r'value="none"\s+checked', text)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"strategy": "time-slicing", "gpu": "1"}, "Give at least one resource 2 shares or more"),
        ({"strategy": "time-slicing"}, "Give at least one resource 2 shares or more"),
        ({"strategy": "time-slicing", "gpu": "0"}, "A device has 1 share"),
        ({"strategy": "time-slicing", "gpu": "-3"}, "A device has 1 share"),
        ({"strategy": "time-slicing", "gpu": "four"}, "Give a whole number of shares."),
        ({"strategy": "time-slicing", "gpu": "2.5"}, "Give a whole number of shares."),
        ({"strategy": "time-slicing", "gpu": "101"}, "More than 100 shares"),
        ({"strategy": "mps", "gpu": "49"}, "MPS serves 48 Pods on one GPU at most."),
        ({"strategy": "mps", "mig-1g.5gb": "2"}, "MPS shares whole GPUs only"),
        ({"strategy": "none", "gpu": "8"}, "“Not shared” makes no shares"),
        ({"strategy": "magic", "gpu": "2"}, "Choose one of the three strategies."),
        ({"gpu": "2"}, "Choose a strategy."),
    ],
)
def test_what_cannot_be_is_one_sentence_and_nothing_else(
    admin: Client, node: Node, wish: dict[str, str], said: str
) -> None:
    text = text_of(get(admin, "confirm/", **wish), 422)
    assert said in text
    assert text.count('class="errorlist"') == 1
    assert send(admin, {**wish, "trusts": "on", "reason": "x"}).status_code == 422
    assert not Operation.objects.exists()


def test_nothing_to_change_is_said(admin: Client, node: Node) -> None:
    text = text_of(get(admin, "confirm/", strategy="none", gpu="1"))
    assert "Nothing changes: the node is shared like this already." in text


def test_the_preview_is_honest_about_shares(admin: Client, node: Node) -> None:
    text = text_of(get(admin, "confirm/", **FOUR))
    assert "4 Pods on one device, about 10.0 GiB for each." in text
    assert "Memory is not isolated and not limited" in text
    assert "A Pod may ask for one share and not for two" in text
    assert "Not for people who do not trust each other." in text
    assert re.search(rf"{GPU}</code></td><td class=\"num\">1</td>.*<strong>4</strong>", text)
    assert "n1 is cordoned" in text
    mps = text_of(get(admin, "confirm/", strategy="mps", gpu="4"))
    assert "limited, not protected" in mps
    assert "MPS needs the control daemon" in mps


def test_the_preview_names_pods_and_what_becomes_of_each(admin: Client, node: Node) -> None:
    uuid = Gpu.objects.get(index=0).uuid
    factories.make_pod(node, "train", resource=GPU, devices=[uuid])
    alone = factories.make_pod(node, "alone", resource=GPU, devices=None)
    GpuPod.objects.filter(pk=alone.pk).update(owner_kind="", owner_name="", has_local_data=True)
    factories.make_pod(node, "elsewhere", resource=MIG, devices=None)
    text = text_of(get(admin, "confirm/", **FOUR))
    assert "2 Pods are in the way." in text
    assert "started again by Job train" in text
    assert "lost for ever" in text
    assert "loses what it keeps on the node" in text
    assert "1 other Pod on this node keeps running" in text


def test_grants_that_get_less_or_nothing_are_named(
    people: People, admin: Client, node: Node
) -> None:
    model = Gpu.objects.get(index=0).model
    pool = factories.make_pool(model, GPU, capacity=1)
    ResourcePool.objects.filter(pk=pool.pk).update(granted=1)
    text = text_of(get(admin, "confirm/", **FOUR))
    assert "Grants that may get less than before" in text
    ResourcePool.objects.filter(pk=pool.pk).update(granted=4, capacity=4)
    _prove(node, 4)
    fewer = text_of(get(admin, "confirm/", strategy="none"))
    assert "Grants would lose their device" in fewer
    assert re.search(rf"3\s+granted <code>{GPU}</code>", fewer)


def test_a_confirmed_change_starts_the_operation(people: People, admin: Client, node: Node) -> None:
    response = confirm(admin, {**FOUR, "mig-1g.5gb": "2"})
    operation = Operation.objects.get()
    assert response.status_code == 302
    assert response["Location"] == f"/operations/{operation.pk}/"
    assert operation.desired == {
        "sharing": {"strategy": "time-slicing", "replicas": {GPU: 4, MIG: 2}, "rename": False}
    }
    assert (operation.gpu, operation.executor) == (None, "device-plugin")
    assert (operation.opened_by, operation.reason) == (people.grace, "a class")


def test_without_a_tick_or_a_reason_nothing_starts(admin: Client, node: Node) -> None:
    untrusting = text_of(confirm(admin, FOUR, trusts=""), 422)
    assert "Tick this: shares keep nobody&#x27;s memory apart" in untrusting
    assert "Say why" in text_of(confirm(admin, FOUR, reason=" "), 422)
    assert not Operation.objects.exists()


def test_unsharing_needs_no_tick(admin: Client, node: Node) -> None:
    _prove(node, 4)
    assert confirm(admin, {"strategy": "none", "gpu": "4"}, trusts="").status_code == 302
    assert Operation.objects.get().desired["sharing"]["strategy"] == "none"


def test_evicting_others_needs_the_nodes_name(admin: Client, node: Node) -> None:
    pod = factories.make_pod(node, "train", resource=GPU, devices=None)
    refused = text_of(confirm(admin, FOUR, pods_in_the_way="evict", node_name="n2"), 422)
    assert "Type the node&#x27;s name, n1, to evict Pods of others." in refused
    assert confirm(admin, FOUR, pods_in_the_way="evict", node_name="n1").status_code == 302
    assert Operation.objects.get().named_pods == [f"team-nlp/train/{pod.uid}"]


def test_what_changed_meanwhile_makes_the_admin_read_again(admin: Client, node: Node) -> None:
    text = text_of(get(admin, "confirm/", **FOUR))
    seen = {name: hidden(text, name) for name in ("seen_sharing", "seen_pods")}
    factories.make_pod(node, "late", resource=GPU, devices=None)
    answer = {**FOUR, **seen, "trusts": "on", "reason": "now"}
    again = text_of(send(admin, answer), 409)
    assert "The node or its Pods changed while you looked; read this again." in again
    assert "team-nlp/late" in again
    assert not Operation.objects.exists()
    fresh = {name: hidden(again, name) for name in seen}
    assert send(admin, {**answer, **fresh}).status_code == 302


def test_a_node_that_is_being_changed_is_said_and_refused(admin: Client, node: Node) -> None:
    confirm(admin, FOUR)
    assert "This node is being changed." in text_of(get(admin, ""))
    second = text_of(confirm(admin, {"strategy": "time-slicing", "gpu": "2"}), 409)
    assert "n1 is being changed already" in second


def test_the_undo_page_says_what_going_back_means(
    people: People, admin: Client, node: Node
) -> None:
    operation = _done(people, node)
    page = text_of(admin.get(f"/operations/{operation.pk}/"))  # type: ignore[arg-type]
    assert f"/operations/{operation.pk}/undo/" in page
    assert "each device was seen by as many Pods as it has shares" in page
    factories.make_pod(node, "train", resource=GPU, devices=None)
    undo = text_of(admin.get(f"/operations/{operation.pk}/undo/"))  # type: ignore[arg-type]
    assert "The GPUs of n1 are shared again as they were before." in undo
    assert "1 Pod is in the way." in undo
    assert "waited for" in undo


@pytest.mark.parametrize("before", ["", "time-slicing-2"])
def test_a_failed_change_tells_the_steps_back(
    people: People, admin: Client, node: Node, before: str
) -> None:
    operation = _done(people, node)
    label = "nvidia.com/device-plugin.config"
    Node.objects.update(labels={label: "slicedesk-4"}, is_schedulable=False)
    Operation.objects.update(
        state="needs_operator", was_schedulable=True, memory={"previous_label": before}
    )
    page = text_of(admin.get(f"/operations/{operation.pk}/"))  # type: ignore[arg-type]
    change = f"{label}={before} --overwrite" if before else f"{label}-"
    assert f"kubectl label node n1 {change}" in page
    assert "kubectl uncordon n1" in page
    assert "Configuration of the device plugin" in page
    assert "slicedesk-4, before: " in page


@pytest.mark.parametrize(
    ("who", "status"), [("alice", 403), ("bob", 403), ("charlie", 403), ("grace", 200)]
)
def test_only_admins_change_sharing(people: People, node: Node, who: str, status: int) -> None:
    client = signed_in(getattr(people, who))
    assert get(client, "").status_code == status
    assert get(client, "confirm/", **FOUR).status_code == status
    assert send(client, FOUR).status_code == (422 if status == 200 else status)
    assert Client().get("/nodes/n1/sharing/").status_code == 302
    assert signed_in(people.grace).get("/nodes/none/sharing/").status_code == 404


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("", {}, "各 Pod 轮流使用"),
        ("confirm/", FOUR, "不适合互不信任的人共用"),
    ],
)
def test_the_pages_speak_chinese(
    admin: Client, node: Node, path: str, query: dict[str, str], said: str
) -> None:
    admin.cookies["slicedesk_language"] = "zh-hans"
    text = text_of(get(admin, path, **query))
    assert said in text
    assert "Share the GPUs" not in text


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(("path", "query"), [("", {}), ("confirm/", FOUR)])
def test_a_page_costs_as_many_queries_for_eight_gpus_as_for_one(
    admin: Client,
    path: str,
    query: dict[str, str],
    gpus: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    node = factories.make_node("n1", gpus=gpus)
    Gpu.objects.filter(node=node).update(is_mig_enabled=False)
    for number in range(gpus):
        factories.make_pod(node, f"p{number}", resource=GPU, devices=None)
    with django_assert_max_num_queries(16):
        get(admin, path, **query)


def _prove(node: Node, shares: int) -> None:
    sharing: dict[str, Any] = {
        "strategy": "time-slicing",
        "replicas": {GPU: shares},
        "rename": False,
        "config": "",
    }
    Node.objects.filter(pk=node.pk).update(desired_sharing=sharing)


def _done(people: People, node: Node) -> Operation:
    """Return a change to four shares that is done."""
    _prove(node, 4)
    none = {"strategy": "none", "replicas": {}, "rename": False}
    wanted = {"strategy": "time-slicing", "replicas": {GPU: 4}, "rename": False}
    change = Change(
        gpu=None, node=node, executor="device-plugin", desired={"sharing": wanted}, reason="x"
    )
    operation = start_operation(change, actor=people.grace)
    Operation.objects.filter(pk=operation.pk).update(
        state="done", finished_at=timezone.now(), previous={"sharing": none, "config": ""}
    )
    return operation
