"""The watcher: what it hears becomes rows, breaks heal, and what has gone is forgotten."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.models import GpuPod, Node
from gpu.objects import NodeObject, PodObject
from gpu.ports import (
    EVERYTHING,
    NODE,
    POD,
    EventType,
    Kind,
    Listing,
    Manifest,
    WatchEvent,
)
from gpu.reconcilers import following
from gpu.reconcilers.following import Heard, Quiet
from gpu.reconcilers.watching import Watcher
from gpu.services import inventory
from tests import factories

NAME = "gpu-a30-01"


@pytest.fixture
def lab(tmp_path: Path) -> SimulatedCluster:
    found = SimulatedCluster(tmp_path / "lab.sqlite3", pace=0.0)
    build_lab(found)
    return found


def take_over(kind: Kind, news: Sequence[Heard]) -> None:
    """Write what was heard, as the watcher's loop does."""
    Watcher(None, on_beat=lambda: None).write(  # type: ignore[arg-type]  # it is not asked
        [(kind, item) for item in news]
    )


def _node(lab: SimulatedCluster) -> Manifest:
    return lab.read(NODE, NAME)


@pytest.mark.django_db
def test_listing_makes_rows_and_marks_what_has_gone(lab: SimulatedCluster) -> None:
    factories.make_node("old")
    take_over(NODE, [lab.list(NODE)])
    assert Node.objects.filter(is_present=True).count() == 8
    assert not Node.objects.get(name="old").is_present


@pytest.mark.django_db
def test_pods_know_node_tenant_devices_and_owner(lab: SimulatedCluster) -> None:
    tenant = factories.make_tenant("audio")
    take_over(NODE, [lab.list(NODE)])
    take_over(POD, [lab.list(POD)])
    pod = GpuPod.objects.select_related("node", "tenant").get(name="denoise-train-9")
    assert (pod.node and pod.node.name, pod.tenant) == (NAME, tenant)
    assert (pod.owner_kind, pod.has_local_data) == ("Job", True)
    [device] = (pod.devices or {})["nvidia.com/mig-2g.12gb"]
    assert device.startswith("MIG-")


@pytest.mark.django_db
def test_later_news_of_an_object_replace_earlier_ones(lab: SimulatedCluster) -> None:
    first = _node(lab)
    lab.patch(NODE, NAME, {"spec": {"unschedulable": True}})
    take_over(
        NODE,
        [
            Listing((first,), "1"),
            WatchEvent(EventType.MODIFIED, _node(lab)),
        ],
    )
    assert not Node.objects.get(name=NAME).is_schedulable


@pytest.mark.django_db
def test_deleted_objects_are_forgotten(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    take_over(POD, [lab.list(POD)])
    pod = lab.read(POD, "denoise-train-9", "team-audio")
    take_over(POD, [WatchEvent(EventType.DELETED, pod)])
    take_over(NODE, [WatchEvent(EventType.DELETED, _node(lab))])
    assert not GpuPod.objects.filter(name="denoise-train-9").exists()
    assert not Node.objects.get(name=NAME).is_present


@pytest.mark.django_db
def test_finished_pod_holds_nothing_and_goes(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    pod = lab.read(POD, "denoise-train-9", "team-audio")
    inventory.record_pods([PodObject.from_manifest(pod)], is_complete=False)
    pod["status"]["phase"] = "Succeeded"
    inventory.record_pods([PodObject.from_manifest(pod)], is_complete=False)
    assert not GpuPod.objects.exists()


@pytest.mark.django_db
def test_node_without_gpus_is_of_no_interest() -> None:
    plain = {"metadata": {"name": "cpu-1"}, "status": {"allocatable": {"cpu": "4"}}, "spec": {}}
    inventory.record_nodes([NodeObject.from_manifest(plain)], now=timezone.now(), is_complete=True)
    assert not Node.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_watcher_follows_heals_and_stops(lab: SimulatedCluster) -> None:
    beats: list[float] = []
    watcher = Watcher(lab, on_beat=lambda: beats.append(time.monotonic()))
    thread = threading.Thread(target=_run, args=(watcher,))
    thread.start()
    try:
        _wait(lambda: Node.objects.count() == 8)
        lab.patch(NODE, NAME, {"spec": {"unschedulable": True}})
        _wait(lambda: not Node.objects.get(name=NAME).is_schedulable)
        lab.set_fault("*", "api_unreachable", on=True)
        time.sleep(0.5)
        lab.set_fault("*", "api_unreachable", on=False)
        lab.patch(NODE, NAME, {"spec": {"unschedulable": None}})
        _wait(lambda: Node.objects.get(name=NAME).is_schedulable)
        assert beats
        assert lab.list(NODE, EVERYTHING).items
    finally:
        watcher.stopping.set()
        thread.join(20)
    assert not thread.is_alive()


def _run(watcher: Watcher) -> None:
    try:
        watcher.run()
    finally:
        connection.close()


def _wait(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.django_db
def test_a_watch_that_ends_quietly_says_that_what_is_known_is_fresh(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    long_ago = timezone.now() - timedelta(hours=1)
    Node.objects.update(observed_at=long_ago)
    gone = factories.make_node("gone")
    Node.objects.filter(pk=gone.pk).update(is_present=False, observed_at=long_ago)
    watcher = Watcher(lab, on_beat=lambda: None)

    watcher.write([(POD, Quiet())])
    assert not Node.objects.filter(observed_at__gt=long_ago).exists()
    watcher.write([(NODE, Quiet())])

    assert set(Node.objects.filter(observed_at=long_ago)) == {gone}


@pytest.mark.django_db
def test_pods_that_are_heard_of_before_their_node_find_it(lab: SimulatedCluster) -> None:
    watcher = Watcher(lab, on_beat=lambda: None)
    watcher.write([(POD, lab.list(POD))])
    assert not GpuPod.objects.exclude(node=None).exists()
    watcher.write([(NODE, lab.list(NODE))])
    assert GpuPod.objects.get(name="denoise-train-9").node == Node.objects.get(name=NAME)
    waiting = [pod for pod in lab.list(POD).items if not pod["spec"].get("nodeName")]
    assert GpuPod.objects.filter(node=None).count() == len(waiting)


@pytest.mark.django_db
def test_pod_that_went_before_its_node_came_stays_away(lab: SimulatedCluster) -> None:
    watcher = Watcher(lab, on_beat=lambda: None)
    watcher.write([(POD, lab.list(POD))])
    pod = lab.read(POD, "denoise-train-9", "team-audio")
    watcher.write([(POD, WatchEvent(EventType.DELETED, pod))])
    watcher.write([(NODE, lab.list(NODE))])
    assert not GpuPod.objects.filter(name="denoise-train-9").exists()


@pytest.mark.django_db
def test_pod_of_a_tenant_that_was_made_later_gets_it(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    take_over(POD, [lab.list(POD)])
    tenant = factories.make_tenant("audio")
    take_over(NODE, [Quiet()])
    assert GpuPod.objects.get(name="denoise-train-9").tenant == tenant


@pytest.mark.django_db
def test_taints_are_kept(lab: SimulatedCluster) -> None:
    body = _node(lab)
    body["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "timeAdded": None}]
    take_over(NODE, [WatchEvent(EventType.ADDED, body)])
    assert Node.objects.get(name=NAME).taints == [
        {"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}
    ]
    del body["spec"]["taints"]
    take_over(NODE, [WatchEvent(EventType.MODIFIED, body)])
    assert Node.objects.get(name=NAME).taints == []


@pytest.mark.django_db
def test_node_that_joins_again_under_its_name_is_read_anew(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    Node.objects.update(probed_at=timezone.now(), probed_boot_id=F("boot_id"))
    assert inventory.nodes_to_probe() == []
    old = _node(lab)
    again = {**old, "metadata": {**old["metadata"], "uid": "another"}}
    take_over(NODE, [WatchEvent(EventType.DELETED, old), WatchEvent(EventType.ADDED, again)])
    row = Node.objects.get(name=NAME)
    assert (row.is_present, row.uid) == (True, "another")
    assert inventory.nodes_to_probe() == [row]


@pytest.mark.django_db
def test_known_node_that_loses_its_gpus_is_shown_without(lab: SimulatedCluster) -> None:
    take_over(NODE, [lab.list(NODE)])
    body = _node(lab)
    body["metadata"]["labels"] = {"kubernetes.io/hostname": NAME}
    body["status"]["capacity"] = body["status"]["allocatable"] = {"cpu": "4"}
    take_over(NODE, [WatchEvent(EventType.MODIFIED, body)])
    row = Node.objects.get(name=NAME)
    assert (row.is_present, row.capacity, row.allocatable) == (True, {}, {})


@pytest.mark.django_db
def test_a_list_that_tells_nothing_new_writes_no_pod(
    lab: SimulatedCluster, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    watcher = Watcher(lab, on_beat=lambda: None)
    both = [(NODE, lab.list(NODE)), (POD, lab.list(POD))]
    watcher.write(both)
    with CaptureQueriesContext(connection) as queries:
        watcher.write(both)
    written = [q["sql"] for q in queries if q["sql"].startswith(("INSERT", "DELETE"))]
    assert written == []
    with django_assert_max_num_queries(40):
        watcher.write(both)


@pytest.mark.django_db
def test_object_that_cannot_be_read_keeps_back_no_other(lab: SimulatedCluster) -> None:
    odd = _node(lab)
    odd["status"]["allocatable"] = {"cpu": "many"}
    odd["metadata"] |= {"uid": "odd", "name": "odd"}
    take_over(NODE, [WatchEvent(EventType.ADDED, odd), lab.list(NODE)])
    take_over(NODE, [WatchEvent(EventType.ADDED, odd), WatchEvent(EventType.ADDED, _node(lab))])
    assert Node.objects.filter(name=NAME).exists()
    assert not Node.objects.filter(name="odd").exists()


@pytest.mark.django_db(transaction=True)
def test_what_was_heard_while_the_database_was_away_is_written_after(
    lab: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = threading.Event()
    tried: list[int] = []
    record = inventory.record_nodes

    def record_nodes(nodes: list[NodeObject], **kwargs: Any) -> set[str]:  # noqa: ANN401
        tried.append(len(nodes))
        if away.is_set():
            msg = "the server closed the connection"
            raise OperationalError(msg)
        return record(nodes, **kwargs)

    monkeypatch.setattr(inventory, "record_nodes", record_nodes)
    away.set()
    watcher = Watcher(lab, on_beat=lambda: None)
    thread = threading.Thread(target=_run, args=(watcher,))
    thread.start()
    try:
        _wait(lambda: len(tried) >= 2)
        away.clear()
        _wait(lambda: Node.objects.count() == 8)
    finally:
        watcher.stopping.set()
        thread.join(20)


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_written_is_listed_again(
    lab: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = inventory.record_nodes
    failed: list[bool] = []

    def record_nodes(nodes: list[NodeObject], **kwargs: Any) -> set[str]:  # noqa: ANN401
        if not failed:
            failed.append(True)
            msg = "a bug"
            raise RuntimeError(msg)
        return record(nodes, **kwargs)

    monkeypatch.setattr(inventory, "record_nodes", record_nodes)
    monkeypatch.setattr(following, "_WATCH_S", 0.5)
    watcher = Watcher(lab, on_beat=lambda: None)
    thread = threading.Thread(target=_run, args=(watcher,))
    thread.start()
    try:
        _wait(lambda: Node.objects.count() == 8)
    finally:
        watcher.stopping.set()
        thread.join(20)
    assert failed
