"""From layouts to mig-parted configurations: names, what counts can make, what stays of others."""

from collections.abc import Iterable

import pytest
import yaml

from gpu.executors import mig_manager as executor
from gpu.executors.mig_manager import Config, ConfigMapError
from gpu.executors.nvidia_smi import Target, UnreachableLayoutError
from gpu.manifests import DEPLOY_PREFIX, MIG_PAUSED
from gpu.planning.geometry import InvalidLayoutError
from gpu.planning.observed import ObservedGpu, ObservedInstance, ObservedNode
from gpu.planning.tables import GpuTable, UnknownProfileError
from tests.planning.builders import A100

type Pair = tuple[str, int]
OFF = [{"devices": "all", "mig-enabled": False, "mig-devices": {}}]


def gpu(index: int, *pairs: Pair, mig: bool = True) -> ObservedGpu:
    """Return an A100; MIG devices are named by GPU, profile and start."""
    instances = []
    for gi_id, (name, start) in enumerate(pairs):
        profile = A100.profile(name)
        place = profile.placement_at(start)
        assert place is not None
        assert profile.gi_profile_id is not None
        uuid = f"MIG-{index}-{name}-{start}"
        instances.append(ObservedInstance(gi_id, name, profile.gi_profile_id, place, (0,), uuid))
    return ObservedGpu(
        index=index,
        uuid=f"GPU-{index}",
        name="A100",
        memory_mib=40960,
        driver_version="580.1",
        is_mig_enabled=mig,
        is_mig_pending=mig,
        instances=tuple(instances),
        table=A100,
    )


def tables(node: ObservedNode) -> dict[str, GpuTable | None]:
    return {item.uuid: item.table for item in node.gpus}


def on(*pairs: Pair) -> Target:
    return Target(is_mig_enabled=True, instances=frozenset(pairs))


def config(*gpus: ObservedGpu, **wanted: Target) -> Config:
    node = ObservedNode(gpus)
    return executor.config_for(
        node, tables(node), {f"GPU-{name[1:]}": target for name, target in wanted.items()}
    )


def test_changed_gpu_gets_what_is_wanted_and_the_others_what_they_have() -> None:
    busy = gpu(0, ("1g.5gb", 3), ("3g.20gb", 4))
    found = config(busy, gpu(1), gpu(2, mig=False), _1=on(("7g.40gb", 0)))
    assert found.entries == [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 1, "3g.20gb": 1}},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}},
    ]


def test_name_is_the_contents_and_fits_a_label() -> None:
    one, other = config(gpu(0), _0=on(("7g.40gb", 0))), config(gpu(0), _0=on(("3g.20gb", 0)))
    assert one.name == config(gpu(0, ("7g.40gb", 0))).name
    assert one.name != other.name
    assert len(one.name) <= 63
    assert one.name.startswith("slicedesk-")


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ([("1g.5gb", 5)], UnreachableLayoutError, "1g.5gb@0; ask for that"),
        ([("1g.7gb", 0)], UnknownProfileError, "has no profile 1g.7gb"),
        ([("7g.40gb", 0), ("1g.5gb", 0)], InvalidLayoutError, "overlap"),
    ],
)
def test_what_counts_or_the_driver_cannot_make_is_refused(
    wanted: Iterable[Pair], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        config(gpu(0), _0=on(*wanted))


def test_switching_mode_is_refused_where_others_would_move() -> None:
    node = ObservedNode((gpu(0, mig=False), gpu(1, ("1g.5gb", 3))))
    with pytest.raises(UnreachableLayoutError, match="GPU 1"):
        executor.require_others_kept(node, tables(node), "GPU-0", on(("7g.40gb", 0)))
    stuck = ObservedNode((gpu(0, mig=False), gpu(1, ("7g.40gb", 0))))
    [cleared] = executor.require_others_kept(stuck, tables(stuck), "GPU-0", on(("7g.40gb", 0)))
    assert cleared.index == 1
    calm = ObservedNode((gpu(0), gpu(1, ("1g.5gb", 3))))
    assert executor.require_others_kept(calm, tables(calm), "GPU-0", on(("7g.40gb", 0))) == ()


def test_any_change_touches_every_device_of_its_gpu() -> None:
    cut = gpu(0, ("1g.5gb", 0), ("3g.20gb", 4))
    more = on(("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4))
    assert executor.touched_devices(cut, more) == {
        "GPU-0",
        "MIG-0-1g.5gb-0",
        "MIG-0-3g.20gb-4",
    }
    assert executor.touched_resources(cut, more) == {
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-3g.20gb",
    }
    assert executor.touched_devices(cut, Target.of(cut)) == frozenset()


def test_configurations_of_others_stay_and_none_is_ever_alone() -> None:
    wanted = Config("slicedesk-1", [{"devices": [0], "mig-enabled": True, "mig-devices": {}}])
    assert executor.with_config({}, wanted, in_use=()).keys() == {"all-disabled", "slicedesk-1"}
    theirs = {"theirs": OFF}
    found = executor.with_config(theirs, wanted, in_use=())
    assert found["theirs"] == OFF
    with pytest.raises(ConfigMapError, match="edited it in place"):
        executor.with_config({"slicedesk-1": OFF}, wanted, in_use=())


def test_old_configurations_of_ours_go_unless_a_node_names_them() -> None:
    many = {f"slicedesk-{number:03}": OFF for number in range(150)}
    wanted = Config("slicedesk-new", OFF)
    found = executor.with_config(many, wanted, in_use={"slicedesk-000"})
    assert {"slicedesk-000", "slicedesk-new", "slicedesk-149"} <= found.keys()
    assert "slicedesk-001" not in found
    assert len(found) < 110


def test_config_map_is_read_back_and_refused_when_it_is_none() -> None:
    body = executor.config_map("ours", "gpu-operator", {"all-disabled": OFF})
    assert executor.read_configs(body) == {"all-disabled": OFF}
    assert yaml.safe_load(body["data"]["config.yaml"])["version"] == "v1"
    assert executor.read_configs(None) == {}
    for text in ("a: [", "mig-configs: [1]", "just words"):
        with pytest.raises(ConfigMapError):
            executor.read_configs({"data": {"config.yaml": text}})


def test_labels_agree_with_devices_by_counts() -> None:
    node = ObservedNode((gpu(0, ("1g.5gb", 5)), gpu(1, mig=False)))
    one = [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 1, "2g.10gb": 0}}]
    assert executor.agrees(one, node)
    assert not executor.agrees(OFF, node)
    assert executor.agrees([{**OFF[0], "devices": [1]}], node)
    assert executor.can_be_judged(one)
    assert not executor.can_be_judged([{**one[0], "device-filter": ["0x20B010DE"]}])


def test_paused_components_are_found_by_their_labels() -> None:
    labels = {f"{DEPLOY_PREFIX}dcgm": MIG_PAUSED, f"{DEPLOY_PREFIX}nvsm": "true", "x": MIG_PAUSED}
    assert executor.paused_labels(labels) == (f"{DEPLOY_PREFIX}dcgm",)


@pytest.mark.parametrize(
    ("volumes", "found"),
    [
        ([], None),
        ([{"name": "a", "configMap": {"name": "only"}}, {"name": "b", "hostPath": {}}], "only"),
        (
            [{"name": "a", "configMap": {"name": "x"}}, {"name": "b", "configMap": {"name": "y"}}],
            None,
        ),
        (
            [
                {"name": "a", "configMap": {"name": "x"}},
                {"name": "mig-parted-config", "configMap": {"name": "y"}},
            ],
            "y",
        ),
    ],
)
def test_file_that_a_manager_reads_is_known_by_its_volume(
    volumes: list[dict[str, object]], found: str | None
) -> None:
    assert executor.mounted_config_map({"spec": {"volumes": volumes}}) == found
