"""Shares and instances in quota units, and what the device plugin would refuse."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.catalogue import find_table
from gpu.planning.layouts import maximal_layouts
from gpu.planning.sharing import (
    InvalidSharingError,
    SharingStrategy,
    Units,
    UnknownMemoryError,
    check_sharing,
    instance_units,
    most_replicas,
    mps_thread_percentage,
    share_units,
    whole_units,
)
from gpu.planning.tables import GpuTable
from tests.planning.builders import A30, A100, RTX_PRO
from tests.planning.strategies import tables

NONE, TIME_SLICING, MPS = SharingStrategy


def test_whole_gpu_of_any_model_counts_seven() -> None:
    assert whole_units(24576) == Units(24576, Fraction(7))
    assert whole_units(143771).millisevenths == 7000


@pytest.mark.parametrize(
    ("table", "profile", "memory", "compute", "stored"),
    [
        (A30, "1g.6gb", 5952, Fraction(7, 4), 1750),
        (A30, "4g.24gb", 24000, Fraction(7), 7000),
        (A100, "1g.5gb", 4864, Fraction(1), 1000),
        (A100, "1g.10gb", 9856, Fraction(1), 1000),
        (A100, "3g.20gb", 19968, Fraction(3), 3000),
        (RTX_PRO, "2g.48gb-me", 48512, Fraction(7, 2), 3500),
    ],
)
def test_instance_counts_its_real_memory_and_its_part_of_seven(
    table: GpuTable, profile: str, memory: int, compute: Fraction, stored: int
) -> None:
    units = instance_units(table, profile)
    assert (units.memory_mib, units.compute, units.millisevenths) == (memory, compute, stored)


def test_memory_that_nobody_published_is_not_guessed() -> None:
    with pytest.raises(UnknownMemoryError, match="once the table is read from a node"):
        instance_units(find_table("h20-96gb"), "1g.12gb")


@pytest.mark.parametrize(
    ("replicas", "memory", "stored"), [(1, 46068, 7000), (4, 11517, 1750), (3, 15356, 2333)]
)
def test_share_is_its_part_of_both(replicas: int, memory: int, stored: int) -> None:
    units = share_units(whole_units(46068), replicas)
    assert (units.memory_mib, units.millisevenths) == (memory, stored)


def test_no_share_among_none() -> None:
    with pytest.raises(InvalidSharingError, match="no share among 0"):
        share_units(whole_units(1), 0)


@given(st.integers(0, 300_000), st.integers(1, 200))
def test_all_shares_together_are_never_more_than_the_gpu(memory: int, replicas: int) -> None:
    whole = whole_units(memory)
    units = share_units(whole, replicas)
    assert units.memory_mib * replicas <= whole.memory_mib
    assert units.compute * replicas == whole.compute
    assert units.millisevenths * replicas <= whole.millisevenths


@given(tables)
def test_instances_of_a_layout_are_never_more_than_the_gpu(table: GpuTable) -> None:
    if table.memory_mib is None or any(item.memory_mib is None for item in table.profiles):
        return
    whole = whole_units(table.memory_mib)
    for layout in maximal_layouts(table)[::20]:
        units = [instance_units(table, item.profile) for item in layout]
        assert sum(unit.memory_mib for unit in units) <= whole.memory_mib
        assert sum(unit.compute for unit in units) <= whole.compute


@pytest.mark.parametrize(
    ("strategy", "replicas", "resource"),
    [
        (NONE, 1, "nvidia.com/gpu"),
        (TIME_SLICING, 2, "nvidia.com/gpu"),
        (TIME_SLICING, 100, "nvidia.com/mig-1g.10gb"),
        (MPS, 48, "nvidia.com/gpu"),
    ],
)
def test_what_the_plugin_takes_is_allowed(
    strategy: SharingStrategy, replicas: int, resource: str
) -> None:
    check_sharing(strategy, replicas, resource=resource)


@pytest.mark.parametrize(
    ("strategy", "replicas", "resource", "reason"),
    [
        (NONE, 2, "nvidia.com/gpu", "has one replica, not 2"),
        (TIME_SLICING, 1, "nvidia.com/gpu", "2 replicas or more, not 1; for one, do not share"),
        (TIME_SLICING, 0, "nvidia.com/gpu", "2 replicas or more"),
        (TIME_SLICING, 2, "amd.com/gpu", "amd.com/gpu cannot be shared"),
        (MPS, 2, "nvidia.com/mig-1g.10gb", "MPS shares whole GPUs only"),
        (MPS, 49, "nvidia.com/gpu", "48 clients at most on this GPU, not 49"),
    ],
)
def test_what_the_plugin_refuses_is_refused(
    strategy: SharingStrategy, replicas: int, resource: str, reason: str
) -> None:
    with pytest.raises(InvalidSharingError, match=reason):
        check_sharing(strategy, replicas, resource=resource)


def test_old_gpus_serve_fewer_mps_clients() -> None:
    with pytest.raises(InvalidSharingError, match="16 clients at most"):
        check_sharing(MPS, 17, most_clients=16)


@pytest.mark.parametrize(
    ("memory", "at_least", "expected"),
    [(46068, 10000, 4), (46068, 23034, 2), (46068, 23035, None), (46068, 0, 46068)],
)
def test_gpu_is_cut_into_as_many_shares_as_hold_enough(
    memory: int, at_least: int, expected: int | None
) -> None:
    assert most_replicas(memory, at_least) == expected


def test_mps_threads_are_a_whole_percentage() -> None:
    assert mps_thread_percentage(3) == 33
