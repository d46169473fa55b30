"""The watcher: what it hears becomes rows, breaks heal, and what has gone is forgotten."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.models import GpuPod, Node
from gpu.objects import NodeObject, PodObject
from gpu.ports import (
    EVERYTHING,
    NODE,
    POD,
    EventType,
    Listing,
    Manifest,
    WatchEvent,
)
from gpu.reconcilers.watching import Quiet, Watcher, take_over
from gpu.services import inventory
from tests import factories

NAME = "gpu-a30-01"


@pytest.fixture
def lab(tmp_path: Path) -> SimulatedCluster:
    found = SimulatedCluster(tmp_path / "lab.sqlite3", pace=0.0)
    build_lab(found)
    return found


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
    from django.db import connection  # noqa: PLC0415  # the thread's own

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

    watcher._write([(POD, Quiet())])
    assert not Node.objects.filter(observed_at__gt=long_ago).exists()
    watcher._write([(NODE, Quiet())])

    assert set(Node.objects.filter(observed_at=long_ago)) == {gone}
