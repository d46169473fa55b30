"""GPUs that another program divides: seen on the node, shown, refused, given to nobody."""

from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster
from gpu.models import Gpu, Node, Operation, SliceRequest
from gpu.objects import NodeObject
from gpu.planning.owners import owner_of
from gpu.ports import NODE
from gpu.services import inventory, operations, requests
from gpu.services.operations import Change
from gpu.services.owners import OwnedError
from tests import factories
from tests.gpu.lab import make_lab, take_over, work
from tests.gpu.people import People, make_people, signed_in

H200 = "gpu-h200-01"
MARKS = [
    ({}, ["hami.io/node-nvidia-register"], [], "HAMi"),
    ({}, ["hami.io/node-handshake"], [], "HAMi"),
    ({}, ["HAMi.io/node-handshake-nvidia"], [], "HAMi"),
    ({"nos.nebuly.com/gpu-partitioning": "mig"}, [], [], "nos"),
    ({}, [], ["cpu", "instaslice.redhat.com/accelerator-memory-quota"], "InstaSlice"),
    ({"nvidia.com/gpu.present": "true"}, ["slicedesk.io/x"], ["nvidia.com/gpu"], ""),
]


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


@pytest.fixture
def cluster(people: People, tmp_path: Path) -> SimulatedCluster:
    return make_lab(tmp_path, nodes=[H200])


def mark(cluster: SimulatedCluster, value: str | None) -> None:
    """Have nos take the node over, or leave it, and let the watcher see it."""
    labels = {"nos.nebuly.com/gpu-partitioning": value}
    cluster.patch(NODE, H200, {"metadata": {"labels": labels}})
    found = NodeObject.from_manifest(cluster.read(NODE, H200))
    inventory.record_nodes([found], now=timezone.now(), is_complete=False)


@pytest.mark.parametrize(("labels", "annotations", "resources", "owner"), MARKS)
def test_an_owner_is_told_by_what_it_leaves_on_the_node(
    labels: dict[str, str], annotations: list[str], resources: list[str], owner: str
) -> None:
    assert owner_of(labels, annotations, resources) == owner


def test_a_change_is_refused_by_the_owner_s_name_until_it_has_gone(
    cluster: SimulatedCluster, people: People, admin: Client
) -> None:
    mark(cluster, "mig")
    gpu = Gpu.objects.select_related("node").get(node__name=H200, index=1)
    change = Change(gpu=gpu, desired={"mig": True, "instances": []})

    with pytest.raises(OwnedError, match=f"nos divides the GPUs of {H200}"):
        operations.start_operation(change, actor=people.grace)

    assert not Operation.objects.exists()
    assert "nos divides the GPUs" in admin.get(f"/nodes/{H200}/").content.decode()
    mark(cluster, None)
    assert Node.objects.get(name=H200).gpu_owner == ""
    assert operations.start_operation(change, actor=people.grace).state == "approved"


def test_nobody_is_given_a_gpu_that_another_divides(
    cluster: SimulatedCluster, people: People
) -> None:
    mark(cluster, "mps")
    row = factories.submit(people.vision, people.bob, memory_mib=16_000)
    requests.approve_request(row.pk, actor=people.alice)
    assert work(row, cluster).state == SliceRequest.State.WAITING_FOR_ROOM

    mark(cluster, None)
    take_over(cluster)
    assert work(row, cluster).state == SliceRequest.State.READY
