"""Placing: laws of the index, and how fitting picks a GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning import placing
from gpu.planning.demands import FitWhen
from gpu.planning.fitting import fit
from gpu.planning.gathering import Candidate
from gpu.planning.geometry import Instance, Layout, layout_of
from gpu.planning.layouts import check_layout, free_starts
from gpu.planning.placing import (
    Leaving,
    PlacementIndex,
    Worth,
    chooser,
    patience_with,
    weights_of,
)
from gpu.planning.plans import GpuPlan
from gpu.planning.supply import Cut
from gpu.planning.tables import GpuTable
from tests.planning.builders import (
    A30,
    A100,
    RTX_PRO,
    cluster,
    isolated,
    layout,
    mig_gpu,
    node,
    only,
    option_of,
    whole_gpu,
)
from tests.planning.strategies import small_tables

PLAIN = only(A100, "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
type Step = tuple[bool, int, str]


def index_of(*texts: str, table: GpuTable = PLAIN) -> PlacementIndex:
    return PlacementIndex(Worth(table), [layout_of(layout(text)) for text in texts])


def steps(table: GpuTable) -> st.SearchStrategy[list[Step]]:
    """Draw placements, and departures by number of the live instance."""
    names = st.sampled_from([profile.name for profile in table.profiles])
    return st.lists(st.tuples(st.booleans(), st.integers(0, 99), names), max_size=40)


def play(index: PlacementIndex, drawn: list[Step]) -> list[tuple[int, Instance] | None]:
    live: list[tuple[int, Instance]] = []
    answers = []
    for is_leaving, number, profile in drawn:
        if is_leaving and live:
            index.release(*live.pop(number % len(live)))
            continue
        placed = index.place(profile)
        answers.append(placed)
        if placed is not None:
            live.append(placed)
    return answers


@given(st.data())
def test_place_is_legal_and_never_refuses_what_fits_anywhere(data: st.DataObject) -> None:
    table = data.draw(small_tables)
    index = PlacementIndex(Worth(table), [()] * 3)
    live: list[tuple[int, Instance]] = []
    for is_leaving, number, profile in data.draw(steps(table)):
        if is_leaving and live:
            index.release(*live.pop(number % len(live)))
            continue
        before = [index.layout(gpu) for gpu in range(3)]
        fits = any(free_starts(table, layout, profile) for layout in before)
        placed = index.place(profile)
        assert (placed is not None) == fits
        if placed is not None:
            gpu, instance = placed
            live.append(placed)
            assert instance.profile == profile
            assert index.layout(gpu) == layout_of((*before[gpu], instance))
            assert check_layout(table, index.layout(gpu)) == index.layout(gpu)
        for gpu in range(3):
            held = layout_of(item for at, item in live if at == gpu)
            assert index.layout(gpu) == held


@given(st.data())
def test_place_agrees_with_a_scan_of_all_gpus(data: st.DataObject) -> None:
    index = PlacementIndex(Worth(PLAIN), [()] * 4)
    play(index, data.draw(steps(PLAIN)))
    profile = data.draw(st.sampled_from([item.name for item in PLAIN.profiles]))
    worth = Worth(PLAIN)
    before = [index.layout(gpu) for gpu in range(4)]
    moves = [move for layout in before for move in worth.moves(layout, profile)]
    placed = index.place(profile)
    if placed is None:
        assert not moves
        return
    gpu, instance = placed
    assert instance in {move.instance for move in worth.moves(before[gpu], profile)}
    after = layout_of((*before[gpu], instance))
    lost = worth.of(before[gpu]) - worth.of(after)
    assert lost == pytest.approx(min(move.cost for move in moves))


@given(st.data())
def test_place_answers_the_same_every_time(data: st.DataObject) -> None:
    table = data.draw(small_tables)
    drawn = data.draw(steps(table))
    first, second = (PlacementIndex(Worth(table), [()] * 3) for _ in range(2))
    assert play(first, drawn) == play(second, drawn)


@given(st.data())
def test_release_undoes_place(data: st.DataObject) -> None:
    index = PlacementIndex(Worth(A30), [()] * 3)
    play(index, data.draw(steps(A30)))
    before = [index.layout(gpu) for gpu in range(3)]
    placed = index.place(data.draw(st.sampled_from([item.name for item in A30.profiles])))
    if placed is not None:
        index.release(*placed)
    assert [index.layout(gpu) for gpu in range(3)] == before


def test_place_leaves_empty_gpus_alone() -> None:
    index = index_of("", "1g.5gb@6", "")
    assert index.place("1g.5gb") == (1, Instance("1g.5gb", 4))


def test_place_puts_halves_side_by_side() -> None:
    index = index_of("", "3g.20gb@4", "2g.10gb@0")
    assert index.place("4g.20gb") == (1, Instance("4g.20gb", 0))


def test_place_returns_none_when_nothing_fits() -> None:
    index = index_of("1g.5gb@0")
    assert index.place("7g.40gb") is None


def test_release_reaches_layouts_that_nobody_had_before() -> None:
    index = index_of("1g.5gb@0, 2g.10gb@2")
    index.release(0, Instance("1g.5gb", 0))
    assert index.layout(0) == (Instance("2g.10gb", 2),)


def test_one_move_makes_room_for_a_larger_instance() -> None:
    index = index_of("1g.5gb@0", "3g.20gb@4, 2g.10gb@0")
    made = index.place_with_one_move("7g.40gb")
    assert made is not None
    gpu, instance, shift = made
    assert (gpu, instance) == (0, Instance("7g.40gb", 0))
    assert (shift.from_gpu, shift.from_instance) == (0, Instance("1g.5gb", 0))
    assert shift.to_gpu == 1
    assert index.layout(0) == (instance,)
    assert shift.to_instance in index.layout(1)


@pytest.mark.parametrize(
    "texts",
    [
        ("1g.5gb@0", "7g.40gb@0"),  # the one in the way has nowhere to go
        ("1g.5gb@0, 1g.5gb@6", "1g.5gb@0, 1g.5gb@6"),  # two are in the way
        ("7g.40gb@0", "7g.40gb@0"),  # none is smaller
    ],
    ids=["nowhere to go", "two in the way", "none is smaller"],
)
def test_one_move_is_not_always_enough(texts: tuple[str, ...]) -> None:
    index = index_of(*texts)
    before = [index.layout(gpu) for gpu in range(len(texts))]
    assert index.place_with_one_move("7g.40gb") is None
    assert [index.layout(gpu) for gpu in range(len(texts))] == before


def test_one_move_needs_a_free_place_for_the_one_that_moves() -> None:
    index = index_of("4g.20gb@0, 2g.10gb@4")
    assert index.place_with_one_move("3g.20gb") is None


def test_one_move_heeds_what_all_instances_share() -> None:
    # All video engines are taken: moving the instance without any makes room, but not engines.
    index = index_of("1g.24gb+me.all@0, 1g.24gb-me@6", table=RTX_PRO)
    assert index.place_with_one_move("2g.48gb") is None


@given(st.data())
def test_one_move_keeps_everything_but_one_where_it_was(data: st.DataObject) -> None:
    index = PlacementIndex(Worth(PLAIN), [()] * 3)
    play(index, data.draw(steps(PLAIN)))
    profile = data.draw(st.sampled_from([item.name for item in PLAIN.profiles]))
    if index.place(profile) is not None:
        return
    before = [set(index.layout(gpu)) for gpu in range(3)]
    made = index.place_with_one_move(profile)
    if made is not None:
        gpu, instance, shift = made
        before[shift.from_gpu].remove(shift.from_instance)
        before[shift.to_gpu].add(shift.to_instance)
        before[gpu].add(instance)
        assert shift.from_instance.profile == shift.to_instance.profile
    for gpu in range(3):
        assert set(index.layout(gpu)) == before[gpu]
        check_layout(PLAIN, index.layout(gpu))


def test_worth_counts_room_by_size_and_waits_a_little() -> None:
    table = only(A100, "3g.20gb")
    assert Worth(table, patience=0.5).of(()) == 8
    assert Worth(table, patience=0.5).of(layout("3g.20gb@0")) == 4 + 4 * 0.5
    assert Worth(table, {"3g.20gb": 0.5}, patience=0.0).of(layout("3g.20gb@0")) == 2


def test_worth_waits_longer_for_what_ends_soon() -> None:
    worth = Worth(PLAIN)
    busy = layout_of(layout("3g.20gb@4"))
    [move] = worth.moves(busy, "4g.20gb")
    assert worth.cost(move, (1.0,), 0.0) > worth.cost(move, (0.0,), 0.0)
    assert worth.cost(move, (0.0,), 1.0) == 0


def test_worth_forgets_when_it_remembers_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "_REMEMBERED", 1)
    worth = Worth(A30)
    first: Layout = layout("1g.6gb@0")
    assert worth.of(first) == Worth(A30).of(first)
    assert worth.of(()) > worth.of(first)


def test_worth_leaves_profiles_with_an_attribute_out() -> None:
    table = only(A100, "1g.5gb", "1g.5gb+me")
    assert Worth(table).of(()) == 7
    assert Worth(table, {"1g.5gb+me": 1.0}).of(()) == 14


def test_patience_falls_with_the_time_that_is_left() -> None:
    assert patience_with(0, 10) == 1
    assert patience_with(-3, 10) == 1
    assert patience_with(5, 10) == 0.4
    assert patience_with(100, 10) == 0
    assert patience_with(5, 0) == 1


def test_weights_are_near_one_and_less_for_what_nobody_asks() -> None:
    weights = weights_of({"1g.5gb": 99, "7g.40gb": 9, "3g.20gb": 0})
    assert weights["1g.5gb"] == 1
    assert weights["7g.40gb"] == pytest.approx(0.794, abs=0.001)
    assert weights["3g.20gb"] == pytest.approx(0.631, abs=0.001)
    assert weights_of({}) == {}


def test_leaving_has_no_patience_with_what_has_no_end() -> None:
    held = layout_of(layout("1g.5gb@0, 2g.10gb@2"))
    leaving = Leaving({("GPU-a", Instance("2g.10gb", 2)): 60.0})
    assert leaving.patiences("GPU-a", held) == (0.0, 0.2)
    assert Leaving({}).patiences("GPU-a", held) == (0.0, 0.0)


def test_fit_cuts_the_gpu_where_the_least_room_is_lost() -> None:
    seen = cluster(node("n1", mig_gpu("GPU-a"), mig_gpu("GPU-b", "3g.20gb@4!")))
    option = option_of(fit(seen, isolated(19), choose=chooser()).option)
    assert option.when is FitWhen.AFTER_CHANGE
    assert [change.gpu_uuid for change in option.changes] == ["GPU-b"]


def test_fit_keeps_away_from_gpus_that_become_free_soon() -> None:
    gpus = mig_gpu("GPU-a", "1g.5gb@6!"), mig_gpu("GPU-b", "1g.5gb@6!")
    soon, late = ("GPU-a", Instance("1g.5gb", 6)), ("GPU-b", Instance("1g.5gb", 6))
    choose = chooser({}, Leaving({soon: 1.0, late: 1000.0}))
    option = option_of(fit(cluster(node("n1", *gpus)), isolated(4), choose=choose).option)
    assert [change.gpu_uuid for change in option.changes] == ["GPU-b"]
    swapped = chooser({}, Leaving({soon: 1000.0, late: 1.0}))
    option = option_of(fit(cluster(node("n1", *gpus)), isolated(4), choose=swapped).option)
    assert [change.gpu_uuid for change in option.changes] == ["GPU-a"]


def test_chooser_takes_a_gpu_without_a_table_as_it_is() -> None:
    cut = Cut(GpuPlan((), ()), room_lost=0)
    bare = Candidate("n1", whole_gpu("GPU-a", table=None), cut, 1)
    assert chooser()([bare]) is bare
