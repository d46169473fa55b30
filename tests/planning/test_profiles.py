"""Names of profiles, resources and placements."""

import pytest
from hypothesis import given

from gpu.planning.placements import (
    InvalidPlacementError,
    Placement,
    free_placements,
    occupied,
)
from gpu.planning.profiles import InvalidProfileError, ProfileName, profile_from_resource_name
from tests.planning.builders import A30, A100, RTX_PRO
from tests.planning.strategies import profile_names


@given(profile_names)
def test_format_then_parse_gives_the_same_name(name: ProfileName) -> None:
    assert ProfileName.parse(str(name)) == name


@given(profile_names)
def test_resource_name_leads_back_to_the_profile(name: ProfileName) -> None:
    assert profile_from_resource_name(name.resource_name) == str(name)
    assert profile_from_resource_name(f"{name.resource_name}.shared") == str(name)


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.5gb+me", "nvidia.com/mig-1g.5gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("4g.96gb+gfx", "nvidia.com/mig-4g.96gb.gfx"),
    ],
)
def test_resource_name_follows_the_device_plugin(profile: str, resource: str) -> None:
    assert ProfileName.parse(profile).resource_name == resource


def test_name_is_read_in_any_case_and_with_blanks_around() -> None:
    assert str(ProfileName.parse(" 1G.10GB+ME ")) == "1g.10gb+me"


@pytest.mark.parametrize(
    "text",
    ["", "1g", "g.10gb", "1g.10", "10gb", "0g.5gb", "1g.10gb+", "1g.10gb me", "1g.5gb@0", "x"],
)
def test_garbage_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidProfileError, match=r"not a MIG profile; one looks like 1g\.10gb"):
        ProfileName.parse(text)


def test_compute_instance_is_refused_with_the_gpu_instance_to_write() -> None:
    with pytest.raises(InvalidProfileError, match=r"compute instance.*write 3g\.20gb\."):
        ProfileName.parse("1c.3g.20gb")


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "mig-1g.5gb", "nvidia.com/mig-", "nvidia.com/mig-1g.5gb+me", ""]
)
def test_other_resources_are_no_profiles(resource: str) -> None:
    with pytest.raises(InvalidProfileError, match="not a MIG resource"):
        profile_from_resource_name(resource)


def test_profile_knows_its_resource_its_attribute_and_its_places() -> None:
    profile = RTX_PRO.profile("1g.24gb+me.all")
    assert (profile.resource_name, profile.attribute) == (
        "nvidia.com/mig-1g.24gb.me.all",
        "+me.all",
    )
    assert A100.profile("3g.20gb").placement_at(4) == Placement(4, 4)
    assert A30.profile("2g.12gb").placement_at(1) is None


def test_placement_covers_its_slices() -> None:
    place = Placement(2, 3)
    assert (place.end, place.mask, str(place)) == (5, 0b11100, "2:3")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Placement(0, 2), False),
        (Placement(0, 3), True),
        (Placement(4, 1), True),
        (Placement(5, 1), False),
    ],
)
def test_overlap_is_a_shared_slice(other: Placement, *, expected: bool) -> None:
    place = Placement(2, 3)
    assert place.overlaps(other) is expected
    assert bool(place.mask & other.mask) is expected


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 0), (3, -2)])
def test_placement_without_slices_is_refused(start: int, size: int) -> None:
    with pytest.raises(InvalidPlacementError, match="starts at 0 or later"):
        Placement(start, size)


def test_free_placements_touch_nothing_taken() -> None:
    places = A100.profile("1g.10gb").placements
    taken = occupied([Placement(0, 1), Placement(4, 4)])
    assert [place.start for place in free_placements(places, taken)] == [2]
