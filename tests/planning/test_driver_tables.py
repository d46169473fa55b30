"""Tables read from a driver: what they know of themselves, and what the catalogue adds."""

import pytest

from gpu.planning.driver_tables import read_tables
from gpu.planning.layouts import maximal_layouts
from gpu.planning.profiles import Engines
from tests.planning.builders import A30, A100, A100_80, H200, RTX_PRO, fixture
from tests.planning.smi_text import lgip, lgipp

MIG = fixture("h200/smi_mig.txt")
LISTING = fixture("h200/smi_L.txt")
QUERY = fixture("h200/smi_query.csv")


def test_product_is_known_when_the_text_names_it() -> None:
    table = read_tables(LISTING + MIG + QUERY)[0]
    assert (table.id, table.product, table.memory_mib) == ("h200-141gb-sxm", "NVIDIA-H200", 143771)
    assert (table.min_driver, table.mode_change_needs_reset) == ("550.90.07", False)
    listed = read_tables(LISTING + MIG)[0]
    assert (listed.product, listed.memory_mib) == ("NVIDIA-H200", 143771)


def test_product_is_not_guessed_but_its_family_is_recognised() -> None:
    table = read_tables(MIG)[0]
    assert (table.id, table.product, table.memory_mib) == ("", "", None)
    assert (table.family, table.mode_change_needs_reset) == ("hopper", False)


def test_slices_and_totals_come_from_the_driver() -> None:
    table = read_tables(MIG)[0]
    assert (table.memory_slices, table.compute_slices, table.max_instances) == (8, 7, 7)
    assert table.engine_totals == Engines(None, 7, 0, 7, 1)


@pytest.mark.parametrize(
    "model", [A30, A100, A100_80, H200, RTX_PRO], ids=lambda model: str(model.id)
)
def test_driver_and_catalogue_allow_the_same_layouts(model: object) -> None:
    table = next(t for t in (A30, A100, A100_80, H200, RTX_PRO) if t is model)
    read = read_tables(lgip(table) + lgipp(table))[0]
    assert maximal_layouts(read) == maximal_layouts(table)
    assert read.mode_change_needs_reset is table.mode_change_needs_reset


def test_profiles_of_two_families_tell_nothing_of_the_mode() -> None:
    text = lgip(A100_80).replace(" 9.50 ", " 9.51 ") + lgipp(A100_80)
    table = read_tables(text)[0]
    assert (table.family, table.mode_change_needs_reset) == ("", None)


def test_product_newer_than_the_catalogue_speaks_for_itself() -> None:
    table = read_tables(LISTING.replace("H200", "Z900") + MIG)[0]
    assert (table.id, table.product, table.marketing) == ("", "NVIDIA-Z900", "NVIDIA-Z900")
    assert table.is_published
