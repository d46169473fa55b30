from gpu.planning.resources import GpuSetup, differences, node_resources


def test_node_offers_whole_gpus_and_instances_side_by_side() -> None:
    gpus = [
        GpuSetup(is_mig_enabled=False),
        GpuSetup(is_mig_enabled=True, resource_names=("nvidia.com/mig-1g.5gb",) * 3),
        GpuSetup(is_mig_enabled=True),
    ]
    assert node_resources(gpus) == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 3}


def test_replicas_multiply_what_a_gpu_offers() -> None:
    assert node_resources([GpuSetup(is_mig_enabled=False, replicas=4)]) == {"nvidia.com/gpu": 4}


def test_differences_name_missing_and_left_over_resources() -> None:
    expected = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 2}
    offered = {"nvidia.com/gpu": 2, "nvidia.com/mig-7g.40gb": 0}
    assert differences(expected, offered) == {
        "nvidia.com/gpu": (1, 2),
        "nvidia.com/mig-1g.5gb": (2, 0),
    }
