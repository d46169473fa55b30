"""Which Pods of the cluster count as holders of GPUs."""

from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu import dispatch
from gpu.models import GpuPod, NamespaceQuota, ResourcePool
from gpu.objects import NodeObject, PodObject, asks_for_gpu
from gpu.services import bulk, inventory, pools
from tests import factories

SMALL = "nvidia.com/mig-1g.10gb"


def pod(name: str, namespace: str, *, node: str = "n1") -> PodObject:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": {SMALL: "1"}}}],
        },
        "status": {"phase": "Running"},
    }
    return PodObject.from_manifest(body)


@pytest.mark.django_db
def test_a_verification_pod_takes_nothing_from_who_the_device_was_cut_for() -> None:
    node = factories.make_node("n1")
    factories.cut(node.gpus.get(), "1g.10gb", 0)

    inventory.record_pods([pod("verify", "slicedesk-system")], is_complete=True)
    pools.refresh_pools_now()

    assert GpuPod.objects.count() == 0
    assert ResourcePool.objects.get().free == 1


@pytest.mark.django_db
def test_a_foreign_pod_takes_a_device_away() -> None:
    node = factories.make_node("n1")
    factories.cut(node.gpus.get(), "1g.10gb", 0)

    inventory.record_pods([pod("theirs", "default")], is_complete=True)
    pools.refresh_pools_now()

    pool = ResourcePool.objects.get()
    assert (pool.foreign, pool.free) == (1, 0)


def containers(*, init: list[dict[str, Any]], main: list[str]) -> PodObject:
    def container(count: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"limits": {SMALL: count}}}

    spec = {
        "initContainers": [{**container(item["count"]), **item} for item in init],
        "containers": [container(count) for count in main],
    }
    meta = {"name": "p", "namespace": "default", "uid": "u"}
    return PodObject.from_manifest({"metadata": meta, "spec": spec})


@pytest.mark.parametrize(
    ("init", "main", "held"),
    [
        ([], ["1", "2"], 3),
        ([{"count": "4"}], ["1"], 4),
        ([{"count": "1"}], ["2"], 2),
        ([{"count": "1", "restartPolicy": "Always"}], ["2"], 3),
        ([{"count": "1", "restartPolicy": "Always"}, {"count": "4"}], ["2"], 5),
    ],
    ids=["side by side", "more before", "less before", "sidecar", "sidecar and more before"],
)
def test_pod_holds_what_the_scheduler_counts(
    init: list[dict[str, Any]], main: list[str], held: int
) -> None:
    assert containers(init=init, main=main).resources == {SMALL: held}


@pytest.mark.parametrize(
    ("part", "asks"),
    [("containers", True), ("initContainers", True), ("volumes", False)],
    ids=["container", "init container", "neither"],
)
def test_pod_that_asks_for_a_gpu_is_known_without_reading_it(part: str, asks: bool) -> None:  # noqa: FBT001
    spec = {"containers": [{"name": "c"}], part: [{"resources": {"limits": {SMALL: "1"}}}]}
    assert asks_for_gpu({"spec": spec}) is asks


@pytest.mark.django_db
def test_many_rows_are_written_and_changed_in_one_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    node = factories.make_node("n1")
    rows = [row_of(f"uid-{number}", node.pk) for number in range(50)]
    with django_assert_num_queries(1):
        bulk.upsert(GpuPod, rows, key="uid", update=["phase", "devices"])
    rows[0] |= {"phase": "Failed", "devices": {SMALL: ["MIG-1"]}, "name": "not updated"}
    bulk.upsert(GpuPod, rows[:1], key="uid", update=["phase", "devices"])
    found = GpuPod.objects.get(uid="uid-0")
    assert (found.phase, found.devices, found.name) == ("Failed", {SMALL: ["MIG-1"]}, "p")
    assert found.started_at == timezone.make_aware(datetime(2026, 12, 1))  # noqa: DTZ001
    assert GpuPod.objects.filter(devices__isnull=True, node=node).count() == 49


@pytest.mark.django_db
def test_nothing_to_write_asks_nothing(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        bulk.upsert(GpuPod, [], key="uid", update=["phase"])


def row_of(uid: str, node_id: int) -> dict[str, Any]:
    return {
        "uid": uid,
        "namespace": "team",
        "name": "p",
        "node_id": node_id,
        "tenant_id": None,
        "phase": "Running",
        "resources": {SMALL: 1},
        "devices": None,
        "owner_kind": "",
        "owner_name": 'odd "name", \\ with \' marks %s',
        "has_local_data": False,
        "allocation_label": "",
        "message": "",
        "started_at": timezone.make_aware(datetime(2026, 12, 1)),  # noqa: DTZ001
    }


@pytest.mark.django_db
def test_new_key_of_a_node_has_every_quota_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[tuple[str, int]] = []
    monkeypatch.setattr(dispatch, "wake", lambda task, *args, **_kw: woken.append((task, *args)))
    knows, lacks = factories.make_tenant("knows"), factories.make_tenant("lacks")
    NamespaceQuota.objects.create(tenant=knows, hard={f"requests.{SMALL}": "0"})
    NamespaceQuota.objects.create(tenant=lacks, hard={"requests.nvidia.com/gpu": "0"})
    node = {
        "metadata": {"name": "n9", "uid": "u9"},
        "spec": {},
        "status": {"capacity": {SMALL: "7"}, "allocatable": {SMALL: "7"}},
    }
    seen = [NodeObject.from_manifest(node)]
    inventory.record_nodes(seen, now=timezone.now(), is_complete=False)
    assert woken == [(dispatch.RECONCILE_NAMESPACE, lacks.pk)]
    inventory.record_nodes(seen, now=timezone.now(), is_complete=False)
    assert len(woken) == 1
