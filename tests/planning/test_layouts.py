"""Layouts: what may lie together, what is left, and all that can be."""

import json
from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.catalogue import find_table
from gpu.planning.geometry import Instance, InvalidLayoutError, Layout
from gpu.planning.layouts import (
    check_layout,
    free_slices,
    free_starts,
    maximal_layouts,
    presets,
    room,
    unreachable_slices,
)
from gpu.planning.placements import occupied
from gpu.planning.tables import GpuTable, UnknownProfileError, UnpublishedTableError
from tests.planning.builders import A30, A100, A100_80, H200, RTX_PRO, fixture, layout, only, shown
from tests.planning.strategies import PUBLISHED, layouts, tables

COUNTS = json.loads(fixture("mig_facts.json"))["layouts"]
SEVEN = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (only(A100, *SEVEN), "seven_slice_base"),
        (only(A100, *SEVEN, "1g.10gb"), "seven_slice_with_double_memory"),
        (A100, "seven_slice_with_double_memory_and_me"),
        (only(A30, "1g.6gb", "2g.12gb", "4g.24gb"), "a30_base"),
        (A30, "a30_with_me"),
        (only(RTX_PRO, "1g.24gb", "2g.48gb", "4g.96gb"), "rtx_pro_6000_base"),
        (RTX_PRO, "rtx_pro_6000_all"),
    ],
)
def test_number_of_maximal_layouts_is_the_published_one(table: GpuTable, facts: str) -> None:
    assert len(maximal_layouts(table)) == COUNTS[facts]["positional_maximal"]


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (only(A30, "1g.6gb", "2g.12gb", "4g.24gb"), "a30_base"),
        (only(RTX_PRO, "1g.24gb", "2g.48gb", "4g.96gb"), "rtx_pro_6000_base"),
    ],
)
def test_maximal_layouts_are_the_published_ones(table: GpuTable, facts: str) -> None:
    def place(item: Instance) -> str:
        return f"{item}:{table.profile(item.profile).memory_slices}"

    found = {"; ".join(map(place, found)) for found in maximal_layouts(table)}
    assert found == set(COUNTS[facts]["positional"])


@pytest.mark.parametrize("table", PUBLISHED, ids=lambda table: str(table.id))
def test_every_model_of_a_family_has_its_familys_layouts(table: GpuTable) -> None:
    expected = {4: 17, 8: 239, 12: 302}[table.memory_slices or 0]
    assert len(maximal_layouts(table)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "3g.20gb@0,3g.20gb@4",
        "4g.20gb@0,3g.20gb@4",
        "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@4,1g.5gb@5,1g.5gb@6",
        "1g.10gb@0,1g.10gb@2,1g.10gb@4,1g.10gb@6",
        "2g.10gb@0,2g.10gb@2,2g.10gb@4,1g.10gb@6",
        "7g.40gb@0",
        "",
    ],
)
def test_known_layouts_of_an_a100_are_valid(text: str) -> None:
    assert shown(check_layout(A100, reversed(layout(text)))) == shown(layout(text))


@pytest.mark.parametrize(
    ("table", "text", "reason"),
    [
        (A100, "3g.20gb@0,2g.10gb@2", r"3g\.20gb@0 and 2g\.10gb@2 overlap"),
        (A100, "4g.20gb@4", r"4g\.20gb cannot start at memory slice 4, only at 0\."),
        (A100, "1g.10gb@1", r"1g\.10gb cannot start at memory slice 1, only at 0, 2, 4 or 6"),
        (A100, "1g.5gb@7", "only at 0, 1, 2, 3, 4, 5 or 6"),
        (A100, "1g.5gb+me@0,1g.5gb+me@1", r"has no 1g\.5gb\+me left beside"),
        (A30, "1g.6gb+me@0,2g.12gb+me@2", r"has no 2g\.12gb\+me left"),
        (RTX_PRO, "1g.24gb+me.all@0,1g.24gb@3", r"has no 1g\.24gb left"),
        (RTX_PRO, "1g.24gb@1", "only at 0, 3, 6 or 9"),
    ],
)
def test_impossible_layout_is_refused_with_the_reason(
    table: GpuTable, text: str, reason: str
) -> None:
    with pytest.raises(InvalidLayoutError, match=reason):
        check_layout(table, layout(text))


def test_media_engines_allow_all_of_them_beside_none_of_them() -> None:
    assert check_layout(RTX_PRO, layout("1g.24gb+me.all@0,1g.24gb-me@3,2g.48gb-me@6"))
    assert free_starts(RTX_PRO, layout("1g.24gb+me.all@0"), "1g.24gb") == ()
    assert free_starts(RTX_PRO, layout("1g.24gb+me.all@0"), "1g.24gb-me") == (3, 6, 9)
    assert free_starts(A30, layout("1g.6gb+me@0"), "2g.12gb+me") == ()


def test_unknown_profile_in_a_layout_is_refused() -> None:
    with pytest.raises(UnknownProfileError):
        check_layout(A100, layout("1g.18gb@0"))
    with pytest.raises(InvalidLayoutError, match=r"There is no profile 1g\.18gb here"):
        room(A100, layout("1g.18gb@0"))
    with pytest.raises(UnpublishedTableError):
        check_layout(find_table("thor-igpu"), ())


def test_alias_is_read_and_given_its_own_name() -> None:
    assert shown(check_layout(A100_80, layout("3g.39gb@4"))) == "3g.40gb@4"
    assert free_starts(A100_80, layout("3g.39gb@4"), "4g.39gb") == (0,)


def test_slice_seven_is_reached_only_by_large_instances() -> None:
    full = layout(",".join(f"1g.5gb@{start}" for start in range(7)))
    assert free_slices(A100, full) == unreachable_slices(A100, full) == (7,)
    assert unreachable_slices(A100, ()) == ()
    assert unreachable_slices(only(A100, "1g.5gb"), ()) == (7,)
    assert unreachable_slices(A100, layout("1g.5gb@6")) == (7,)
    used_up = only(A30, "1g.6gb+me", "2g.12gb+me")
    assert unreachable_slices(used_up, layout("1g.6gb+me@0")) == (1, 2, 3)


def test_room_adds_slices_of_free_places() -> None:
    assert room(A30, layout("2g.12gb@0")) == 2 * 1 + 2 * 1 + 1 * 2 + 1 * 2
    assert room(A30, layout("2g.12gb+me@0")) == 2 * 1 + 1 * 2
    assert room(A100, layout("7g.40gb@0")) == 0
    assert room(A100, layout("3g.20gb@4")) > room(A100, layout("3g.20gb@0"))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            A100,
            {
                "all-1g.5gb": 7,
                "all-1g.5gb+me": 1,
                "all-1g.10gb": 4,
                "all-2g.10gb": 3,
                "all-3g.20gb": 2,
                "all-4g.20gb": 1,
                "all-7g.40gb": 1,
                "all-balanced": 4,
            },
        ),
        (
            A30,
            {
                "all-1g.6gb": 4,
                "all-1g.6gb+me": 1,
                "all-2g.12gb": 2,
                "all-2g.12gb+me": 1,
                "all-4g.24gb": 1,
                "all-balanced": 3,
            },
        ),
    ],
)
def test_presets_hold_as_many_as_fit(table: GpuTable, expected: dict[str, int]) -> None:
    assert {preset.name: len(preset.layout) for preset in presets(table)} == expected


def test_balanced_layouts_are_those_of_mig_parted() -> None:
    balanced = {table.id: presets(table)[-1].layout for table in (A100, A30, RTX_PRO)}
    assert Counter(item.profile for item in balanced["a100-40gb"]) == {
        "1g.5gb": 2,
        "2g.10gb": 1,
        "3g.20gb": 1,
    }
    assert shown(balanced["a100-40gb"]).endswith("3g.20gb@4")
    assert Counter(item.profile for item in balanced["a30-24gb"]) == {"1g.6gb": 2, "2g.12gb": 1}
    assert len(balanced["rtx-pro-6000-blackwell-96gb"]) == 3
    assert "all-balanced" not in {p.name for p in presets(only(A100, "1g.5gb", "7g.40gb"))}


def _brute_force_layouts(table: GpuTable) -> set[Layout]:
    """Return all valid layouts by trying every set of places, from the table's words alone."""
    places = [Instance(p.name, place.start) for p in table.profiles for place in p.placements]
    found = set()
    for count in range(5):
        for chosen in combinations(places, count):
            profiles = [table.profile(item.profile) for item in chosen]
            spots = [
                spot
                for profile, item in zip(profiles, chosen, strict=True)
                if (spot := profile.placement_at(item.start))
            ]
            disjoint = all(not a.overlaps(b) for a, b in combinations(spots, 2))
            counts = Counter(item.profile for item in chosen)
            few = all(counts[p.name] <= (p.max_instances or 0) for p in profiles)
            media = sum(p.engines.jpeg or 0 for p in profiles) <= 1
            if disjoint and few and media:
                found.add(check_layout(table, chosen))
    return found


def test_a30_has_just_the_layouts_that_brute_force_finds() -> None:
    valid = _brute_force_layouts(A30)
    within = {
        tuple(item for item, taken in zip(maximal, mask, strict=True) if taken)
        for maximal in maximal_layouts(A30)
        for mask in product([0, 1], repeat=len(maximal))
    }
    assert within == valid


@given(st.data())
def test_valid_layouts_are_legal_and_disjoint(data: st.DataObject) -> None:
    table = data.draw(tables)
    items = data.draw(layouts(table))
    places = [table.profile(item.profile).placement_at(item.start) for item in items]
    spots = [place for place in places if place is not None]
    assert len(spots) == len(items)
    assert all(not a.overlaps(b) for a, b in combinations(spots, 2))
    assert sum(place.size for place in spots) == occupied(spots).bit_count()
    assert sum(table.profile(i.profile).compute_slices for i in items) <= (
        table.compute_slices or 0
    )
    assert (
        len(free_slices(table, items)) == (table.memory_slices or 0) - occupied(spots).bit_count()
    )
    assert set(unreachable_slices(table, items)) <= set(free_slices(table, items))


@given(st.data())
def test_an_instance_more_never_leaves_more_room(data: st.DataObject) -> None:
    table = data.draw(tables)
    items = data.draw(layouts(table))
    for item in items:
        less = tuple(other for other in items if other != item)
        assert room(table, less) >= room(table, items)


@given(st.data())
def test_every_layout_can_be_filled_up_to_a_maximal_one(data: st.DataObject) -> None:
    table = data.draw(tables)
    items = data.draw(layouts(table))
    assert any(set(items) <= set(maximal) for maximal in maximal_layouts(table))


def test_h200_maximal_layouts_have_nothing_free() -> None:
    for maximal in maximal_layouts(H200):
        assert room(H200, maximal) == 0
