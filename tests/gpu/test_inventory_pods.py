"""Which Pods of the cluster count as holders of GPUs."""

from typing import Any

import pytest

from gpu.models import GpuPod, ResourcePool
from gpu.objects import PodObject
from gpu.services import inventory, pools
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
