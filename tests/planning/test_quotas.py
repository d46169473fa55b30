"""Quota arithmetic and the keys of a namespace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.quotas import (
    Amounts,
    InvalidAmountError,
    QuotaLimit,
    exceeded,
    headroom,
    most_within,
    quota_keys,
    total,
)

amounts = st.builds(Amounts, st.integers(0, 10**6), st.integers(0, 10**6))


def test_what_is_left_stops_at_zero_and_the_rest_is_an_overdraft() -> None:
    found = headroom(Amounts(100, 1000), Amounts(60, 900), Amounts(50, 50))
    assert (found.remaining, found.overdraft) == (Amounts(0, 50), Amounts(10, 0))


@given(amounts, amounts, amounts)
def test_remaining_and_overdraft_make_up_the_difference(
    hard: Amounts, used: Amounts, requested: Amounts
) -> None:
    found = headroom(hard, used, requested)
    assert found.remaining + used + requested == hard + found.overdraft


@given(amounts, amounts)
def test_releasing_undoes_allocating(hard: Amounts, each: Amounts) -> None:
    after = headroom(hard, each)
    assert headroom(hard, Amounts()).remaining + after.overdraft == after.remaining + each


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Amounts(40, 100), ()),
        (Amounts(41, 100), (QuotaLimit.MEMORY,)),
        (Amounts(40, 101), (QuotaLimit.COMPUTE,)),
        (Amounts(41, 101), (QuotaLimit.MEMORY, QuotaLimit.COMPUTE)),
        (Amounts(0, 0), ()),
    ],
)
def test_limit_that_does_not_hold_is_named(
    asked: Amounts, expected: tuple[QuotaLimit, ...]
) -> None:
    assert exceeded(Amounts(100, 1000), Amounts(60, 900), asked) == expected


def test_asking_for_nothing_is_held_even_by_an_overdrawn_quota() -> None:
    assert exceeded(Amounts(0, 0), Amounts(5, 5), Amounts()) == ()


@given(amounts, amounts, amounts)
def test_as_many_as_fit_are_held_and_one_more_is_not(
    hard: Amounts, used: Amounts, each: Amounts
) -> None:
    most = most_within(hard, used, each)
    if most is None:
        assert each == Amounts()
        return
    assert not (most and exceeded(hard, used, each.times(most)))
    assert exceeded(hard, used, each.times(most + 1))


def test_total_counts_each_as_often_as_it_is_there() -> None:
    assert total([(Amounts(10, 1), 2), (Amounts(5, 7), 1), (Amounts(9, 9), 0)]) == Amounts(25, 9)
    assert total([]) == Amounts()


@pytest.mark.parametrize("bad", [(-1, 0), (0, -1)])
def test_amounts_below_zero_are_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(InvalidAmountError, match="0 or more"):
        Amounts(*bad)


def test_every_gpu_key_of_the_cluster_is_limited() -> None:
    keys = ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb.me", "cpu", "nvidia.com/mig-2g.10gb"]
    assert quota_keys(keys, {"nvidia.com/mig-2g.10gb": 3, "nvidia.com/mig-gone": 1}) == {
        "requests.nvidia.com/gpu": 0,
        "requests.nvidia.com/mig-1g.5gb.me": 0,
        "requests.nvidia.com/mig-2g.10gb": 3,
        "requests.nvidia.com/mig-gone": 1,
    }


def test_grant_below_zero_is_refused() -> None:
    with pytest.raises(InvalidAmountError, match="is 0 or more, not -1"):
        quota_keys([], {"nvidia.com/gpu": -1})
