"""The plan for one GPU: known cases, refusals, and the laws that every plan keeps."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.catalogue import find_table
from gpu.planning.geometry import Instance, Layout, layout_of
from gpu.planning.layouts import check_layout, maximal_layouts, room
from gpu.planning.notation import parse_current, parse_want
from gpu.planning.placements import Placement
from gpu.planning.plans import ContradictionError, CurrentGpu, GpuPlan, plan_gpu
from gpu.planning.refusals import NoPlan, NoPlanReason, in_the_way, largest_part
from gpu.planning.steps import Create, Destroy, DisableMig, EnableMig, ResetGpu, Step
from gpu.planning.tables import GpuTable, UnknownProfileError, UnpublishedTableError
from tests.planning.builders import (
    A30,
    A100,
    A100_80,
    H200,
    RTX_PRO,
    layout,
    planned,
    refused,
    shown,
)
from tests.planning.strategies import PUBLISHED, currents, small_tables, tables, wants


def plan(table: GpuTable, current: str, want: str) -> GpuPlan | NoPlan:
    return plan_gpu(table, parse_current(current), parse_want(want))


@pytest.mark.parametrize(
    ("table", "current", "want", "expected"),
    [
        (A100, "", "3g.20gb", "3g.20gb@4"),
        (A100, "", "3g.20gb,3g.20gb", "3g.20gb@0 3g.20gb@4"),
        (A100, "", "4g.20gb,3g.20gb", "4g.20gb@0 3g.20gb@4"),
        (A100, "3g.20gb@0!", "3g.20gb", "3g.20gb@0 3g.20gb@4"),
        (A100, "3g.20gb@4!", "4g.20gb", "4g.20gb@0 3g.20gb@4"),
        (A100, "", "1g.5gb", "1g.5gb@6"),
        (A100, "", "1g.10gb", "1g.10gb@6"),
        (A100, "", "7g.40gb", "7g.40gb@0"),
        (A100, "3g.20gb@0", "3g.20gb", "3g.20gb@0"),
        (A100, "1g.5gb@0,1g.5gb@6", "1g.5gb", "1g.5gb@6"),
        (A100, "2g.10gb@0,2g.10gb@2!", "3g.20gb", "2g.10gb@2 3g.20gb@4"),
        (A100_80, "", "1g.10gb," * 6 + "1g.10gb", " ".join(f"1g.10gb@{i}" for i in range(7))),
        (A100_80, "", "3g.39gb", "3g.40gb@4"),
        # Either one goes so that the 3g has room: the smaller.
        (A100, "1g.5gb@0,2g.10gb@4", "1g.5gb,2g.10gb,3g.20gb", "3g.20gb@0 2g.10gb@4 1g.5gb@6"),
        (A30, "1g.6gb+me@3!", "2g.12gb,1g.6gb", "2g.12gb@0 1g.6gb@2 1g.6gb+me@3"),
        (RTX_PRO, "1g.24gb+me.all@0!", "2g.48gb-me", "1g.24gb+me.all@0 2g.48gb-me@6"),
        (RTX_PRO, "", "4g.96gb+gfx", "4g.96gb+gfx@0"),
    ],
)
def test_result_is_the_known_one(table: GpuTable, current: str, want: str, expected: str) -> None:
    assert shown(planned(plan(table, current, want)).layout) == expected


@pytest.mark.parametrize(
    ("table", "current", "want", "steps"),
    [
        (A100, "off", "3g.20gb", [EnableMig(), ResetGpu(), Create("3g.20gb", 4)]),
        (A30, "off", "4g.24gb", [EnableMig(), ResetGpu(), Create("4g.24gb", 0)]),
        (H200, "off", "3g.71gb", [EnableMig(), Create("3g.71gb", 4)]),
        (RTX_PRO, "off", "4g.96gb", [EnableMig(), Create("4g.96gb", 0)]),
        (A100, "off", "", []),
        (A100, "off!", "", []),
        (A100, "", "", []),
        (A100, "1g.5gb@0", "", [Destroy("1g.5gb", 0)]),
        (A100, "1g.5gb@0!", "", []),
        (A100, "3g.20gb@4", "4g.20gb", [Destroy("3g.20gb", 4), Create("4g.20gb", 0)]),
    ],
)
def test_steps_are_the_known_ones(
    table: GpuTable, current: str, want: str, steps: list[Step]
) -> None:
    assert list(planned(plan(table, current, want)).steps) == steps


def test_plan_tells_what_comes_what_goes_and_what_stays() -> None:
    found = planned(plan(A100, "1g.5gb@0!,1g.5gb@1,2g.10gb@2", "2g.10gb,3g.20gb"))
    assert shown(found.destroyed) == "1g.5gb@1"
    assert shown(found.created) == "3g.20gb@4"
    assert [item.is_kept for item in found.result] == [True, True, False]
    assert (found.is_empty, found.switches_mode) == (False, False)
    assert planned(plan(H200, "off", "1g.18gb")).switches_mode


def test_mode_that_waits_for_a_reset_is_not_switched_again() -> None:
    pending = CurrentGpu.off(is_mode_pending=True)
    found = planned(plan_gpu(A100, pending, ["7g.40gb"]))
    assert list(found.steps) == [ResetGpu(), Create("7g.40gb", 0)]
    assert list(planned(plan_gpu(A100, pending, [], disable=True)).steps) == [
        DisableMig(),
        ResetGpu(),
    ]
    assert planned(plan_gpu(A100, CurrentGpu.off(), [], disable=True)).is_empty


@pytest.mark.parametrize(
    ("table", "steps"),
    [
        (A100, [Destroy("3g.20gb", 4), DisableMig(), ResetGpu()]),
        (H200, [Destroy("3g.71gb", 4), DisableMig()]),
    ],
)
def test_mig_is_switched_off_on_demand(table: GpuTable, steps: list[Step]) -> None:
    name = table.profiles[4].name
    current = CurrentGpu.on(free=[Instance(name, 4)])
    assert list(planned(plan_gpu(table, current, (), disable=True)).steps) == steps
    held = CurrentGpu.on(in_use=[Instance(name, 4)])
    no = refused(plan_gpu(table, held, (), disable=True))
    assert no.reasons == (NoPlanReason.INSTANCES_IN_USE,)
    assert shown(no.blockers) == f"{name}@4"
    evicted = planned(plan_gpu(table, held, (), disable=True, evict=held.in_use))
    assert list(evicted.steps) == steps


def test_switching_off_and_wanting_instances_contradict_each_other() -> None:
    with pytest.raises(ContradictionError, match="the one or the other"):
        plan_gpu(A100, CurrentGpu.on(), ["1g.5gb"], disable=True)


def test_evicted_instances_count_as_free() -> None:
    current = parse_current("3g.20gb@0!,1g.5gb@4!")
    assert isinstance(plan_gpu(A100, current, ["4g.20gb"]), NoPlan)
    found = planned(plan_gpu(A100, current, ["4g.20gb"], evict=layout("3g.20gb@0")))
    assert list(found.steps) == [Destroy("3g.20gb", 0), Create("4g.20gb", 0)]
    assert shown(found.layout) == "4g.20gb@0 1g.5gb@4"


def test_want_may_be_counts() -> None:
    found = planned(plan_gpu(A100, CurrentGpu.on(), {"3g.20gb": 2, "1g.5gb": 0}))
    assert shown(found.layout) == "3g.20gb@0 3g.20gb@4"


@pytest.mark.parametrize(
    ("table", "current", "want", "code", "sentence"),
    [
        (A100, "", "1g.10gb," * 6 + "1g.10gb", "too_many_of_profile", "at most 4 x 1g.10gb, not 7"),
        (
            A100,
            "",
            "7g.40gb,1g.5gb",
            "not_enough_memory_slices",
            "need 9 memory slices; A100 40GB has 8",
        ),
        (
            A100,
            "",
            "2g.10gb,2g.10gb,2g.10gb,1g.5gb,1g.5gb",
            "not_enough_compute_slices",
            "need 8 compute slices",
        ),
        (
            A30,
            "",
            "1g.6gb+me,2g.12gb+me",
            "not_enough_engines",
            "need 2 JPEG engines; A30 24GB has 1",
        ),
        (RTX_PRO, "", "1g.24gb+me.all,1g.24gb", "not_enough_engines", "5 NVDEC engines"),
        (A30, "", "1g.6gb," * 4 + "1g.6gb", "too_many_of_profile", "at most 4 x 1g.6gb"),
        (
            RTX_PRO,
            "",
            "1g.24gb,1g.24gb,1g.24gb-me,1g.24gb-me,1g.24gb-me",
            "too_many_instances",
            "at most 4 instances",
        ),
        (A100, "3g.20gb@4!", "1g.5gb," * 4 + "1g.5gb", "instances_in_use", "in the way: 3g.20gb@4"),
        (
            A100,
            "1g.5gb@0!,1g.5gb@5!",
            "3g.20gb,3g.20gb",
            "instances_in_use",
            "in the way: 1g.5gb@0, 1g.5gb@5",
        ),
        (A100, "1g.5gb@0!", "7g.40gb", "instances_in_use", "7g.40gb does not fit"),
        (A100, "off!", "1g.5gb", "gpu_in_use", "cannot be switched on"),
        (A100, "off", "7g.40gb,7g.40gb", "too_many_of_profile", "at most 1 x 7g.40gb"),
    ],
)
def test_refusal_names_its_reason(
    table: GpuTable, current: str, want: str, code: str, sentence: str
) -> None:
    no = refused(plan(table, current, want))
    assert no.reasons[0] == code
    assert sentence in no.sentence


def test_places_that_do_not_line_up_are_a_reason_of_their_own() -> None:
    awkward = replace(
        A30,
        id="awkward",
        profiles=(
            replace(A30.profile("2g.12gb"), placements=(Placement(1, 2),)),
            A30.profile("1g.6gb"),
        ),
    )
    no = refused(plan(awkward, "", "2g.12gb,2g.12gb"))
    assert no.reasons == (NoPlanReason.NO_PLACEMENT,)
    assert no.sentence == (
        "The places of 2 x 2g.12gb do not fit together on A30 24GB. The nearest that fits: 2g.12gb."
    )


@pytest.mark.parametrize(
    ("current", "want", "nearest", "blockers"),
    [
        ("3g.20gb@4!", "4g.20gb,1g.5gb", "4g.20gb", "3g.20gb@4"),
        ("3g.20gb@4!", "1g.5gb," * 4 + "1g.5gb", "1g.5gb " * 3 + "1g.5gb", "3g.20gb@4"),
        ("7g.40gb@0!", "1g.5gb", "", "7g.40gb@0"),
        ("", "3g.20gb,3g.20gb,3g.20gb", "3g.20gb 3g.20gb", ""),
    ],
)
def test_refusal_says_what_comes_nearest(
    current: str, want: str, nearest: str, blockers: str
) -> None:
    no = refused(plan(A100, current, want))
    assert " ".join(no.nearest) == nearest
    assert shown(no.blockers) == blockers
    assert ("Nothing of it fits." in no.sentence) is not bool(nearest)


def test_wrong_input_is_an_error_and_no_refusal() -> None:
    with pytest.raises(UnknownProfileError):
        plan(A100, "", "1g.18gb")
    with pytest.raises(UnpublishedTableError):
        plan(find_table("thor-igpu"), "", "")


def test_largest_part_may_have_to_leave_room() -> None:
    many = Counter({"1g.5gb": 7})
    assert largest_part(A100, (), many, Counter({"4g.20gb": 1})) == Counter({"1g.5gb": 3})
    assert largest_part(A100, layout("1g.5gb@0"), many, Counter({"7g.40gb": 1})) is None


def test_nobody_is_in_the_way_of_what_fits_nowhere() -> None:
    assert in_the_way(A100, layout("1g.5gb@0"), Counter({"7g.40gb": 2})) == ()


# --- laws


@given(st.data())
def test_plan_holds_what_is_wanted_beside_what_is_in_use(data: st.DataObject) -> None:
    table = data.draw(tables)
    current, want = data.draw(currents(table)), data.draw(wants(table))
    found = plan_gpu(table, current, want)
    if isinstance(found, NoPlan):
        assert found.reasons
        assert found.sentence.endswith(".")
        return
    assert check_layout(table, found.layout) == found.layout
    rest = Counter(i.profile for i in found.layout) - Counter(i.profile for i in current.in_use)
    assert rest == +want
    assert set(current.in_use) <= {item.instance for item in found.result if item.is_kept}


@given(st.data())
def test_applying_the_steps_reaches_the_result(data: st.DataObject) -> None:
    table = data.draw(tables)
    current, want = data.draw(currents(table)), data.draw(wants(table))
    found = plan_gpu(table, current, want)
    if isinstance(found, NoPlan):
        return
    is_on, present = current.is_mig_enabled, {*current.free, *current.in_use}
    for step in found.steps:
        match step:
            case EnableMig():
                assert not is_on
                is_on = True
            case Destroy(profile, start):
                present.remove(Instance(profile, start))
            case Create(profile, start):
                assert is_on
                check_layout(table, [*present, Instance(profile, start)])
                present.add(Instance(profile, start))
            case ResetGpu():
                assert not present
            case DisableMig():
                pytest.fail("nobody asked to switch MIG off")
    assert layout_of(present) == found.layout
    assert is_on or not want


@given(st.data())
def test_plan_for_what_is_there_is_empty(data: st.DataObject) -> None:
    table = data.draw(tables)
    current = data.draw(currents(table))
    found = planned(plan_gpu(table, current, Counter(i.profile for i in current.free)))
    assert found.is_empty
    again = CurrentGpu.on(free=found.layout)
    assert planned(plan_gpu(table, again, Counter(i.profile for i in found.layout))).is_empty


@given(st.data())
def test_order_of_what_is_wanted_does_not_matter(data: st.DataObject) -> None:
    table = data.draw(tables)
    current = data.draw(currents(table))
    names = list(data.draw(wants(table)).elements())
    shuffled = data.draw(st.permutations(names))
    found, other = plan_gpu(table, current, names), plan_gpu(table, current, shuffled)
    if isinstance(found, NoPlan) or isinstance(other, NoPlan):
        assert type(found) is type(other)
    else:
        assert found == other


@given(st.data())
def test_less_in_use_never_makes_a_plan_impossible(data: st.DataObject) -> None:
    table = data.draw(tables)
    current, want = data.draw(currents(table)), data.draw(wants(table))
    if isinstance(plan_gpu(table, current, want), NoPlan):
        return
    for item in current.in_use:
        rest = [other for other in current.in_use if other != item]
        planned(plan_gpu(table, CurrentGpu.on(free=[item, *current.free], in_use=rest), want))


@given(st.data())
def test_nearest_can_be_had_and_without_the_blockers_all(data: st.DataObject) -> None:
    table = data.draw(tables)
    current, want = data.draw(currents(table)), data.draw(wants(table, most=8))
    no = plan_gpu(table, current, want)
    if isinstance(no, GpuPlan):
        return
    assert Counter(no.nearest) < want
    planned(plan_gpu(table, current, no.nearest))
    if no.blockers:
        assert set(no.blockers) <= set(current.in_use)
        planned(plan_gpu(table, current, want, evict=no.blockers))


def _all_layouts(table: GpuTable) -> set[Layout]:
    return {
        tuple(item for item, taken in zip(maximal, mask, strict=True) if taken)
        for maximal in maximal_layouts(table)
        for mask in product([0, 1], repeat=len(maximal))
    }


LAYOUTS = {
    table.id: _all_layouts(table) for table in PUBLISHED if table.id.startswith(("a30", "a100-4"))
}


@given(st.data())
def test_no_other_layout_destroys_less_or_leaves_more_room(data: st.DataObject) -> None:
    """Compare with every valid layout of the GPU."""
    table = data.draw(small_tables)
    current, want = data.draw(currents(table)), data.draw(wants(table))
    if not current.is_mig_enabled:
        current = CurrentGpu.on()
    found = plan_gpu(table, current, want)

    def cost(result: Layout) -> tuple[int, int, int]:
        gone = [item for item in current.free if item not in result]
        slices = sum(table.profile(item.profile).memory_slices or 0 for item in gone)
        return len(gone), slices, -room(table, result)

    wanted = Counter(i.profile for i in current.in_use) + want
    possible = [
        result
        for result in LAYOUTS[table.id]
        if set(current.in_use) <= set(result) and Counter(i.profile for i in result) == wanted
    ]
    if isinstance(found, NoPlan):
        assert not possible
    else:
        assert cost(found.layout) == min(map(cost, possible))


@pytest.mark.parametrize("table", [A100, H200, RTX_PRO, A30], ids=lambda table: str(table.id))
def test_plans_are_quick(table: GpuTable) -> None:
    small = table.profiles[0].name
    full = list(maximal_layouts(table)[0])
    hard = [
        Counter({small: 9}),
        Counter({small: 10**6}),
        Counter({p.name: 1 for p in table.profiles}),
        Counter({small: 3}),
    ]
    slowest = 0.0
    for want, (first, second) in product(hard, combinations([(), full[:2], full], 2)):
        current = CurrentGpu.on(free=[i for i in second if i not in first], in_use=first)
        start = perf_counter()
        plan_gpu(table, current, want)
        slowest = max(slowest, perf_counter() - start)
    assert slowest < 1.0  # 3 ms on a quiet machine; this only catches an explosion
