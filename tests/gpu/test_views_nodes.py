"""Nodes: the list, and one whose figures agree or are explained."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpu.models import Gpu, Node
from portal import health
from tests import factories
from tests.gpu.people import People, make_people, signed_in

SMALL = "nvidia.com/mig-1g.5gb"
H100 = "NVIDIA-H100-80GB-HBM3"


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watcher be alive."""
    monkeypatch.setattr(health, "broken_parts", lambda: ())


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_the_list_filters(admin: Client) -> None:
    factories.make_node("n1", gpus=2)
    factories.make_node("n2", product=H100)

    def listed(query: str) -> set[str]:
        text = page(admin, f"/nodes/?{query}")
        return {name for name in ("n1", "n2") if f'href="/nodes/{name}/"' in text}

    assert listed("") == {"n1", "n2"}
    assert listed("name=N1") == {"n1"}
    assert listed(f"model={H100}") == {"n2"}
    assert listed("model=nonsense") == {"n1", "n2"}
    assert "No node matches these filters." in page(admin, "/nodes/?name=n9")


def test_an_empty_list_says_what_would_be_here(admin: Client) -> None:
    assert "No node with GPUs has been seen yet" in page(admin, "/nodes/")


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "state-good"),
        ({"is_schedulable": False}, "cordoned"),
        ({"is_ready": False}, "not ready"),
        ({"observed_at": timezone.now() - timedelta(days=2)}, "stale"),
    ],
)
def test_each_state_has_its_word(admin: Client, changes: dict[str, object], words: str) -> None:
    factories.make_node()
    Node.objects.update(**changes)
    for path in ("/nodes/", "/nodes/n1/"):
        assert words in page(admin, path)


def test_what_nobody_watches_is_stale(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "broken_parts", lambda: ("watcher",))
    factories.make_node()
    assert "stale" in page(admin, "/nodes/")


@pytest.mark.usefixtures("watched")
def test_figures_that_agree_need_no_words(admin: Client) -> None:
    node = factories.make_node()
    factories.cut(Gpu.objects.get(), "1g.5gb", 0)
    Node.objects.update(capacity={SMALL: 1}, allocatable={SMALL: 1})

    text = page(admin, f"/nodes/{node.name}/")

    assert SMALL in text
    assert 'class="is-warn"' not in text
    assert "kubectl describe node n1" in text
    assert "nvidia.com/gpu.product" in text


@pytest.mark.usefixtures("watched")
def test_figures_that_disagree_are_explained(admin: Client) -> None:
    node = factories.make_node()
    held = factories.cut(Gpu.objects.get(), "1g.5gb", 0)
    factories.make_pod(node, "burn", resource=SMALL, devices=[held.mig_uuid])
    Node.objects.update(capacity={SMALL: 2}, allocatable={SMALL: 0})

    text = page(admin, f"/nodes/{node.name}/")

    assert 'class="is-warn"' in text
    assert "The device plugin offers fewer devices than the driver shows" in text
    assert "Capacity is larger than allocatable" in text
    assert "Held by Pods in namespaces that belong to no tenant: team-nlp/burn" in text


def test_a_node_that_could_not_be_read_says_so(admin: Client) -> None:
    factories.make_node(gpus=0)
    Node.objects.update(probed_at=None, probe_error="The Job ended with 9.", capacity={SMALL: 1})
    text = page(admin, "/nodes/n1/")
    assert "The Job ended with 9." in text
    assert "unknown" in text
    assert "have not been read yet, so nothing is expected" in text
    assert "The Job ended with 9." in page(admin, "/nodes/")


def test_an_unknown_node_is_not_found(admin: Client) -> None:
    assert admin.get("/nodes/n9/").status_code == 404


@pytest.mark.parametrize("target", ["node-facts", "node-gpus"])
def test_htmx_gets_each_part_alone(admin: Client, target: str) -> None:
    factories.make_node()
    answer = admin.get("/nodes/n1/", headers={"HX-Request": "true", "HX-Target": target})
    text = answer.content.decode()
    assert text.strip().startswith(f'<div id="{target}"')
    assert "<html" not in text


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("alice", 403), ("charlie", 200)])
def test_who_may_look(people: People, who: str, status: int) -> None:
    factories.make_node()
    client = signed_in(getattr(people, who))
    assert client.get("/nodes/").status_code == status
    assert client.get("/nodes/n1/").status_code == status


def test_fifty_nodes_ask_as_much_as_one(admin: Client) -> None:
    factories.make_node("n0")
    page(admin, "/nodes/")
    with CaptureQueriesContext(connection) as one:
        page(admin, "/nodes/")
    for number in range(1, 50):
        factories.make_node(f"n{number}", gpus=2)
    with CaptureQueriesContext(connection) as many:
        text = page(admin, "/nodes/")
    assert "1 to 25 of 50" in text
    assert len(many) == len(one)
    assert len(one) <= 10


def test_sixteen_gpus_of_one_node_ask_as_much_as_one(admin: Client) -> None:
    factories.make_node("n1")
    factories.make_node("n2", gpus=16)
    for gpu in Gpu.objects.filter(node__name="n2"):
        factories.cut(gpu, "1g.5gb", 0)
    page(admin, "/nodes/n1/")
    with CaptureQueriesContext(connection) as one:
        page(admin, "/nodes/n1/")
    with CaptureQueriesContext(connection) as many:
        page(admin, "/nodes/n2/")
    assert len(many) == len(one)
    assert len(one) <= 22
