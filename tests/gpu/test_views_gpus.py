"""GPUs: the map with its filters and counts, the same as a table, and one GPU's page."""

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gpu.models import Gpu, GpuPod
from gpu.services import operations
from gpu.services.operations import Change
from gpu.views.wording import TIMES
from tests import factories
from tests.gpu.people import People, make_people, signed_in

H100 = "NVIDIA-H100-80GB-HBM3"


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def first_gpu(node: str = "n1") -> Gpu:
    return Gpu.objects.get(node__name=node, index=0)


def hold(people: People, gpu: Gpu, profile: str) -> str:
    """Let a Pod of vision's hold an instance; return the MIG device's UUID."""
    cut = factories.cut(gpu, profile, 0)
    factories.make_pod(gpu.node, "train-7f", resource=cut.resource_name, devices=[cut.mig_uuid])
    GpuPod.objects.update(tenant=people.vision, namespace="team-vision")
    return cut.mig_uuid


def test_the_map_filters_and_counts(people: People, admin: Client) -> None:
    factories.make_node("n1", gpus=2)
    factories.make_node("n2", product=H100)
    hold(people, first_gpu("n1"), "7g.40gb")
    gpus = list(Gpu.objects.all())
    held, empty, h100 = gpus

    def shown(query: str) -> set[int]:
        text = page(admin, f"/gpus/?{query}")
        return {gpu.pk for gpu in gpus if f'href="/gpus/{gpu.pk}/"' in text}

    assert shown("") == {held.pk, empty.pk, h100.pk}
    assert shown(f"model={H100}") == {h100.pk}
    assert shown("node=N2") == {h100.pk}
    assert shown("tenant=vision") == {held.pk}
    assert shown("state=in_use") == {held.pk}
    assert shown("state=room") == {empty.pk, h100.pk}
    assert shown("fits=7g.40gb") == {empty.pk}
    assert shown("state=nonsense") == {held.pk, empty.pk, h100.pk}
    text = page(admin, "/gpus/?node=n1")
    assert "1 in use" in text
    assert "1 with room" in text
    assert "state=in_use" in text
    assert "No GPU matches these filters." in page(admin, "/gpus/?node=n9")


def test_the_same_as_a_table(people: People, admin: Client) -> None:
    factories.make_node()
    hold(people, first_gpu(), "3g.20gb")
    text = page(admin, "/gpus/?view=table")
    for words in ("n1 · 0", "A100-SXM4-40GB", "40.0 GiB", "3g.20gb", "Vision", "in use"):
        assert words in text
    assert "gpu-map-row" not in text
    assert '<input type="hidden" name="view" value="table"' in text  # a filter keeps the table


def test_shares_and_whole_gpus_are_told_apart_in_the_table(admin: Client) -> None:
    factories.make_node("n1", gpus=2)
    Gpu.objects.update(is_mig_enabled=False)
    Gpu.objects.filter(index=0).update(sharing=Gpu.Sharing.TIME_SLICING, replicas=4)
    text = page(admin, "/gpus/?view=table")
    assert f"time-slicing {TIMES} 4" in text
    assert "whole GPU (MIG off)" in text


def test_a_cluster_without_gpus_says_so(admin: Client) -> None:
    assert "No GPU has been seen yet" in page(admin, "/gpus/")


def test_htmx_gets_the_map_alone(admin: Client) -> None:
    factories.make_node()
    answer = admin.get("/gpus/", headers={"HX-Request": "true", "HX-Target": "gpu-map"})
    text = answer.content.decode()
    assert text.strip().startswith('<section id="gpu-map"')
    assert "data-seen" in text
    assert "<html" not in text


@pytest.mark.parametrize("path", ["/gpus/", "/gpus/?view=table"])
def test_forty_gpus_ask_as_much_as_one(people: People, admin: Client, path: str) -> None:
    factories.make_node("n0")
    hold(people, first_gpu("n0"), "7g.40gb")
    page(admin, path)
    with CaptureQueriesContext(connection) as one:
        page(admin, path)
    for number in range(1, 6):
        factories.make_node(f"n{number}", gpus=8)
        factories.cut(first_gpu(f"n{number}"), "3g.20gb", 0)
    with CaptureQueriesContext(connection) as many:
        text = page(admin, path)

    assert text.count('href="/gpus/') >= 41
    assert len(many) == len(one)
    assert len(one) <= 10


def test_one_gpu_names_instances_with_their_holders_and_the_profiles(
    people: People, admin: Client
) -> None:
    factories.make_node()
    gpu = first_gpu()
    device = hold(people, gpu, "3g.20gb")
    factories.cut(gpu, "1g.5gb", 4)

    text = page(admin, f"/gpus/{gpu.pk}/")

    assert gpu.uuid in text
    assert device in text
    assert "team-vision/train-7f" in text
    assert "free" in text
    assert "nvidia.com/mig-2g.10gb" in text
    assert "Nothing yet: it is as it was found." in text
    assert f'href="/gpus/{gpu.pk}/layout/"' in text


def test_one_gpu_out_of_service_and_under_change_says_why(people: People, admin: Client) -> None:
    factories.make_node()
    gpu = first_gpu()
    desired = {"mig": True, "instances": [["1g.5gb", 0]]}
    with transaction.atomic():
        change = Change(gpu=gpu, desired=desired, reason="A class")
        operation = operations.open_operation(change, actor=people.grace)
    Gpu.objects.update(is_in_service=False, service_note="Xid 79 twice")

    text = page(admin, f"/gpus/{gpu.pk}/")

    assert "This node is being changed." in text
    assert f'href="/operations/{operation.pk}/"' in text
    assert "Out of service: Xid 79 twice" in text


def test_managers_look_and_cannot_reshape(people: People) -> None:
    factories.make_node()
    text = page(signed_in(people.charlie), f"/gpus/{first_gpu().pk}/")
    assert "Reshape GPU" not in text


def test_a_gpu_that_is_gone_is_not_found(admin: Client) -> None:
    factories.make_node()
    Gpu.objects.update(is_present=False)
    assert admin.get(f"/gpus/{first_gpu().pk}/").status_code == 404
    assert admin.get("/gpus/0/").status_code == 404


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("alice", 403), ("charlie", 200)])
def test_who_may_look_at_the_cluster(people: People, who: str, status: int) -> None:
    factories.make_node()
    client = signed_in(getattr(people, who))
    assert client.get("/gpus/").status_code == status
    assert client.get(f"/gpus/{first_gpu().pk}/").status_code == status
