"""Packing: the fewest GPUs for a multiset of instances, in legal layouts."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.layouts import check_layout
from gpu.planning.packing import (
    Column,
    UnpackableError,
    _fewest,
    _relaxed,
    columns_of,
    fewest_gpus,
    pack,
)
from gpu.planning.tables import GpuTable, UnpublishedTableError
from tests.planning.builders import A30, A100, RTX_PRO, shown
from tests.planning.strategies import small_tables, tables, wants

FIVE = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


def counts_of(layouts: tuple[tuple[object, ...], ...]) -> Counter[str]:
    return Counter(str(item).partition("@")[0] for layout in layouts for item in layout)


@cache
def by_trying_all(table: GpuTable, names: tuple[str, ...], want: Column) -> float:
    """Return the fewest GPUs by trying every column for the next GPU."""
    if not any(want):
        return 0
    best = inf
    for column in columns_of(table, names):
        left = tuple(max(0, w - c) for w, c in zip(want, column, strict=True))
        if left != want:
            best = min(best, 1 + by_trying_all(table, names, left))
    return best


def test_pack_lays_what_is_wanted_on_as_few_gpus_as_can_be() -> None:
    packed = pack(A100, {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2, "7g.40gb": 1})
    assert [shown(layout) for layout in packed] == [
        "7g.40gb@0",
        "1g.5gb@0 1g.5gb@1 2g.10gb@2 3g.20gb@4",
    ]


def test_pack_needs_no_gpu_for_nothing() -> None:
    assert pack(A100, {}) == ()
    assert pack(A100, {"1g.5gb": 0}) == ()
    assert fewest_gpus(A100, {}) == 0


def test_pack_knows_profiles_by_any_case() -> None:
    assert fewest_gpus(A100, {"7G.40GB": 3}) == 3


def test_pack_refuses_a_count_below_zero() -> None:
    with pytest.raises(UnpackableError, match=r"-1 instances of 2g.10gb cannot be packed"):
        pack(A100, {"2g.10gb": -1})


def test_pack_refuses_a_model_whose_placements_nobody_published() -> None:
    with pytest.raises(UnpublishedTableError):
        fewest_gpus(replace(A100, profiles=()), {"1g.5gb": 1})


def test_columns_of_the_a100_are_the_twelve_that_cannot_be_added_to() -> None:
    columns = columns_of(A100, FIVE)
    assert len(columns) == 12
    assert columns[0] == (0, 0, 0, 0, 1)
    assert (7, 0, 0, 0, 0) in columns
    assert (2, 1, 1, 0, 0) in columns


def test_relaxed_is_without_bound_where_columns_lack_a_profile() -> None:
    assert _relaxed(((1, 0),), (1, 1))[0] == inf


def test_relaxed_takes_parts_of_columns() -> None:
    bound, parts = _relaxed(((1, 1), (3, 0)), (4, 1))
    assert bound == pytest.approx(2)
    assert parts == pytest.approx([1, 1])


@pytest.mark.parametrize("table", [A100, A30, RTX_PRO], ids=lambda table: table.id)
def test_fewest_gpus_equals_trying_all(table: GpuTable) -> None:
    names = tuple(sorted({profile.name for profile in table.profiles}))[-4:]
    for want in product(range(3), repeat=len(names)):
        counts = dict(zip(names, want, strict=True))
        assert fewest_gpus(table, counts) == by_trying_all(table, names, want)


@given(st.data())
def test_pack_is_legal_holds_what_is_wanted_and_is_the_fewest(data: st.DataObject) -> None:
    table = data.draw(small_tables)
    want = data.draw(wants(table, most=7))
    packed = pack(table, want)
    assert counts_of(packed) == want
    for layout in packed:
        assert check_layout(table, layout) == layout
    names = tuple(sorted(want))
    assert len(packed) == by_trying_all(table, names, tuple(want[name] for name in names))


@given(st.data())
def test_fewest_gpus_never_falls_when_more_is_wanted(data: st.DataObject) -> None:
    table = data.draw(tables)
    want, more = data.draw(wants(table)), data.draw(wants(table, most=3))
    assert fewest_gpus(table, want) <= fewest_gpus(table, want + more)
    assert fewest_gpus(table, want + more) <= fewest_gpus(table, want) + fewest_gpus(table, more)


def test_pack_answers_the_same_whatever_the_order() -> None:
    want = {"1g.5gb": 5, "3g.20gb": 2, "4g.20gb": 3}
    assert pack(A100, want) == pack(A100, dict(reversed(want.items())))


def test_pack_is_exact_for_many_instances() -> None:
    want = {"1g.5gb": 120, "2g.10gb": 61, "3g.20gb": 47, "4g.20gb": 33, "7g.40gb": 20}
    packed = pack(A100, want)
    assert counts_of(packed) == want
    # 20 whole GPUs, 33 with 4g and 3g, 14 with 3g beside 28 of 2g; then 33 of 2g and 120 of 1g,
    # at best 11 GPUs with 3 of 2g and 1 of 1g, and 16 with 7 of 1g.
    assert len(packed) == fewest_gpus(A100, want) == 94


def test_fewest_is_exact_where_the_relaxation_is_one_too_low() -> None:
    # The complements of the lines of the Fano plane: 7/4 of them cover all points, two never do.
    lines = [{0, 1, 2}, {0, 3, 4}, {0, 5, 6}, {1, 3, 5}, {1, 4, 6}, {2, 3, 6}, {2, 4, 5}]
    columns = tuple(tuple(int(point not in line) for point in range(7)) for line in lines)
    assert sum(_fewest(columns, (1,) * 7)) == 3
