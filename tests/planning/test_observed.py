"""What a look at a node found, as plans and inventory need it."""

from gpu.planning.observed import ObservedGpu, ObservedInstance, ObservedNode
from gpu.planning.placements import Placement
from gpu.planning.resources import GpuSetup

GPU = ObservedGpu(
    index=0,
    uuid="GPU-a",
    name="NVIDIA A100-SXM4-40GB",
    memory_mib=40960,
    driver_version="580.159.04",
    is_mig_enabled=True,
    is_mig_pending=True,
    instances=(
        ObservedInstance(2, "3g.20gb", 9, Placement(4, 4), (0,), "MIG-b"),
        ObservedInstance(7, "1g.5gb+me", 20, Placement(0, 1)),
    ),
)


def test_layout_is_by_start() -> None:
    assert GPU.layout == (("1g.5gb+me", 0), ("3g.20gb", 4))


def test_setup_names_the_resources_that_the_plugin_advertises() -> None:
    names = ("nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me")
    assert GPU.setup() == GpuSetup(is_mig_enabled=True, resource_names=names, replicas=1)
    assert GPU.setup(replicas=4).replicas == 4


def test_node_finds_its_gpus_by_uuid() -> None:
    node = ObservedNode((GPU,))
    assert node.gpu("GPU-a") is GPU
    assert node.gpu("GPU-b") is None
