"""Layouts and wishes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.errors import PlanningError
from gpu.planning.notation import (
    InvalidNotationError,
    parse_current,
    parse_instances,
    parse_want,
)
from gpu.planning.plans import CurrentGpu
from gpu.planning.profiles import InvalidProfileError
from tests.planning.builders import shown
from tests.planning.strategies import currents, tables


def test_current_has_starts_and_marks_what_is_in_use() -> None:
    current = parse_current(" 1g.10gb@0, 2G.20gb@2! ")
    assert (shown(current.free), shown(current.in_use)) == ("1g.10gb@0", "2g.20gb@2")
    assert current.is_mig_enabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", CurrentGpu.off()),
        ("OFF", CurrentGpu.off()),
        ("off!", CurrentGpu.off(in_use=True)),
        ("", CurrentGpu.on()),
        ("  ", CurrentGpu.on()),
    ],
)
def test_off_and_nothing_are_two_things(text: str, expected: CurrentGpu) -> None:
    assert parse_current(text) == expected


@given(st.data())
def test_written_layout_reads_back_the_same(data: st.DataObject) -> None:
    current = data.draw(currents(data.draw(tables)))
    words = [*map(str, current.free), *(f"{item}!" for item in current.in_use)]
    assert parse_current(",".join(words) if current.is_mig_enabled else "off") == current


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1g.10gb", "has no start: write it as 1g.10gb@0"),
        ("1g.10gb@", "cannot be read: write 1g.10gb@0"),
        ("1g.10gb@x", "cannot be read"),
        ("1g.10gb@0!!", "cannot be read"),
        ("1g.10gb@-1", "cannot be read"),
        ("1g.10gb@0,,1g.10gb@1", "empty member"),
        ("off,1g.10gb@0", "'off' stands alone"),
    ],
)
def test_unreadable_layout_is_refused_with_the_way_out(text: str, reason: str) -> None:
    with pytest.raises(InvalidNotationError, match=reason):
        parse_current(text)


def test_profile_names_in_a_layout_are_checked() -> None:
    with pytest.raises(InvalidProfileError):
        parse_current("large@0")


def test_instances_need_mig() -> None:
    assert shown(parse_instances("1g.5gb@0!,2g.10gb@2")) == "2g.10gb@2 1g.5gb@0"
    with pytest.raises(InvalidNotationError, match="'off' is no instance"):
        parse_instances("off")


def test_want_is_a_multiset() -> None:
    assert parse_want("3g.40gb, 1g.10gb,1G.10gb") == ("3g.40gb", "1g.10gb", "1g.10gb")
    assert parse_want("") == ()


@pytest.mark.parametrize("text", ["3g.40gb@4", "3g.40gb!", "1g.10gb,3g.40gb@0"])
def test_want_with_a_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidNotationError, match="write the profile alone"):
        parse_want(text)


@given(st.text(max_size=5000))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    for reader in (parse_current, parse_want, parse_instances):
        try:
            reader(text)
        except PlanningError as error:
            problem = str(error)
        else:
            continue
        assert problem.endswith(".")
        assert len(problem) < 1000
