"""The catalogue against the published facts, and how products are found."""

import json
import re
from typing import Any

import pytest

from gpu.planning.catalogue import (
    AmbiguousGpuError,
    NotMigCapableError,
    UnknownGpuError,
    all_tables,
    find_table,
    gpu_memory_mib,
)
from gpu.planning.products import find_whole_gpu
from tests.planning.builders import fixture

FACTS: list[dict[str, Any]] = json.loads(fixture("mig_facts.json"))["gpus"]
IDS = [facts["id"] for facts in FACTS]


def _starts(placements: str | None) -> tuple[list[int], int | None]:
    if placements is None:
        return [], None
    starts, size = re.fullmatch(r"\{([\d,]+)\}:(\d+)", placements).groups()  # type: ignore[union-attr]  # facts
    return [int(start) for start in starts.split(",")], int(size)


def test_catalogue_has_every_model_of_the_facts() -> None:
    assert sorted(IDS) == [table.id for table in all_tables()]
    assert len(IDS) == 28


@pytest.mark.parametrize("facts", FACTS, ids=IDS)
def test_table_agrees_with_the_facts(facts: dict[str, Any]) -> None:
    table = find_table(facts["id"])
    assert (
        table.marketing,
        table.architecture,
        table.family,
        table.memory_slices,
        table.compute_slices,
        table.memory_mib,
        table.max_instances,
        table.min_driver,
        table.mode_change_needs_reset,
        table.mode_survives_reboot,
    ) == (
        facts["marketing"],
        facts["architecture"],
        facts["family"],
        facts["memory_slices"],
        facts["compute_slices"],
        facts["memory_mib"],
        facts["max_instances"],
        facts["min_driver"],
        facts["needs_reset"],
        facts["survives_reboot"],
    )


@pytest.mark.parametrize("facts", FACTS, ids=IDS)
def test_profiles_agree_with_the_facts(facts: dict[str, Any]) -> None:
    table = find_table(facts["id"])
    found = [
        [
            item.name,
            item.gi_profile_id,
            item.compute_slices,
            item.memory_slices,
            None if item.memory_mib is None else round(item.memory_mib / 1024, 2),
            item.max_instances,
            ([place.start for place in item.placements], item.memory_slices),
            list(item.engines),
            item.multiprocessors,
            item.resource_name,
            list(item.aliases),
        ]
        for item in table.profiles
    ]
    expected = [[*p[:6], _starts(p[6]), *p[7:]] for p in facts["profiles"]]
    assert found == expected


@pytest.mark.parametrize("facts", FACTS, ids=IDS)
def test_every_name_and_label_finds_its_model(facts: dict[str, Any]) -> None:
    for name in [*facts["names"], *facts["labels"]]:
        if name.replace(" ", "-") != "NVIDIA-GB300":
            for text in (name, name.upper(), name.lower().replace(" ", "-"), f"  {name} "):
                table = find_table(text)
                assert (table.id, table.product.lower().removeprefix("nvidia-")) == (
                    facts["id"],
                    name.lower().replace(" ", "-").removeprefix("nvidia-"),
                )


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-40gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "a100-40gb"),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "a100-80gb"),
        ("NVIDIA-H200-MIG-INVALID", "h200-141gb-sxm"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-141gb-sxm"),
        ("nvidia_a30", "a30-24gb"),
        ("H200", "h200-141gb-sxm"),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Works-MIG-1g.24gb.me.all",
            "rtx-pro-6000-blackwell-96gb",
        ),
    ],
)
def test_suffixes_case_and_cut_labels_do_not_matter(product: str, expected: str) -> None:
    assert find_table(product).id == expected


def test_cut_label_that_fits_two_models_is_not_guessed() -> None:
    with pytest.raises(UnknownGpuError):
        find_table("NVIDIA-RTX-PRO-MIG-1g.24gb")
    assert gpu_memory_mib("NVIDIA-RTX-PRO-6000-Blackw-MIG-1g.24gb") == 97887


def test_unknown_product_names_near_ones() -> None:
    with pytest.raises(UnknownGpuError, match=r"near it: .*NVIDIA-A100-SXM4-40GB"):
        find_table("A100")
    with pytest.raises(UnknownGpuError, match=r"near it: .*NVIDIA-H200"):
        find_table("NVIDIA-H20O")


@pytest.mark.parametrize("garbage", ["", "   ", "\x00", "'; DROP TABLE", "ß" * 500, "-", "MIG"])
def test_garbage_is_refused_in_one_sentence(garbage: str) -> None:
    with pytest.raises(UnknownGpuError) as error:
        find_table(garbage)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA L40S",
        "NVIDIA-L4",
        "l40",
        "NVIDIA GeForce RTX 4090",
        "RTX 4090",
        "NVIDIA-GeForce-RTX-5070-Ti",
        "Tesla V100-SXM2-16GB",
        "V100",
        "Tesla T4",
        "NVIDIA-Tesla-T4-SHARED",
        "NVIDIA A10",
        "NVIDIA A40",
        "NVIDIA RTX A6000",
        "NVIDIA RTX 6000 Ada Generation",
        "Quadro P4000",
        "NVIDIA TITAN Xp",
    ],
)
def test_gpus_without_mig_are_told_from_unknown_ones(product: str) -> None:
    with pytest.raises(NotMigCapableError, match="cannot do MIG: it can be given whole, or shared"):
        find_table(product)


def test_one_name_for_two_models_says_how_to_tell_them_apart() -> None:
    with pytest.raises(AmbiguousGpuError) as error:
        find_table("NVIDIA GB300")
    for hint in ("gb300-278gb", "1g.35gb", "gb300-dgx-station-251gb", "1g.31gb", "-lgip"):
        assert hint in str(error.value)


@pytest.mark.parametrize(
    ("memory_mib", "expected"), [(284208, "gb300-278gb"), (257000, "gb300-dgx-station-251gb")]
)
def test_memory_tells_models_of_one_name_apart(memory_mib: int, expected: str) -> None:
    assert find_table("NVIDIA-GB300", memory_mib=memory_mib).id == expected


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA-A100-SXM4-40GB", 40960),
        ("NVIDIA-L40S-SHARED", 46068),
        ("NVIDIA GeForce RTX 4090", 24564),
        ("Tesla-T4", 15360),
        ("V100", None),
        ("NVIDIA GB300", None),
        ("NVIDIA H800", None),
        ("no such thing", None),
    ],
)
def test_memory_is_known_with_and_without_mig(product: str, expected: int | None) -> None:
    assert gpu_memory_mib(product) == expected


def test_a_model_with_mig_is_no_whole_gpu() -> None:
    assert find_whole_gpu("NVIDIA-H200") is None
    assert find_whole_gpu("NVIDIA A30") is None


def test_same_name_is_different_hardware_on_other_models() -> None:
    small, large = find_table("a100-40gb"), find_table("a100-80gb")
    assert [
        (p.gi_profile_id, p.memory_slices, p.max_instances)
        for p in (small.profile("1g.10gb"), large.profile("1g.10gb"))
    ] == [(15, 2, 4), (19, 1, 7)]
