"""Tables: lookups, and the form in which they are stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.catalogue import all_tables, find_table
from gpu.planning.profiles import InvalidProfileError
from gpu.planning.tables import (
    GpuTable,
    InvalidTableError,
    UnknownProfileError,
    UnpublishedTableError,
    table_from_json,
    table_to_json,
)
from tests.planning.builders import A100, A100_80, H200


@given(st.sampled_from(all_tables()))
def test_stored_table_reads_back_the_same(table: GpuTable) -> None:
    stored = json.dumps(table_to_json(table))
    assert table_from_json(json.loads(stored)) == table
    assert table_from_json(json.loads(stored)) is table_from_json(json.loads(stored))


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"profiles": None},
        {**table_to_json(A100), "surprise": 1},
        {**table_to_json(A100), "profiles": [{}]},
        {**table_to_json(A100), "profiles": ["1g.5gb"]},
        {**table_to_json(A100), "engine_totals": 3},
    ],
    ids=["empty", "no profiles", "unknown field", "empty profile", "name only", "bad totals"],
)
def test_damaged_table_is_refused_with_the_way_out(damage: dict[str, object]) -> None:
    with pytest.raises(InvalidTableError, match="probe the node again"):
        table_from_json(damage)


def test_profile_is_found_by_name_alias_and_id() -> None:
    assert A100_80.profile("3G.39GB").name == "3g.40gb"
    assert H200.profile("1g.16gb").name == "1g.18gb"
    assert A100.profile_by_id(19).name == "1g.5gb"


def test_unknown_profile_names_near_ones() -> None:
    with pytest.raises(
        UnknownProfileError, match=r"A100 40GB has no profile 3g\.40gb; it has .*3g\.20gb"
    ):
        A100.profile("3g.40gb")
    with pytest.raises(UnknownProfileError, match=r"it has .*7g\.40gb"):
        A100.profile("9g.900gb")
    with pytest.raises(UnknownProfileError, match="no profile with id 47"):
        A100.profile_by_id(47)
    with pytest.raises(InvalidProfileError):
        A100.profile("large")


@pytest.mark.parametrize(
    "table_id",
    [
        "thor-igpu",
        "rtx-pro-5000-blackwell-48gb",
        "rtx-pro-4500-blackwell-32gb",
        "gb300-dgx-station-251gb",
    ],
)
def test_model_without_published_placements_is_refused_with_advice(table_id: str) -> None:
    table = find_table(table_id)
    assert not table.is_published
    with pytest.raises(
        UnpublishedTableError, match=r"from a node .*-lgipp.*--from-nvidia-smi FILE"
    ):
        table.require_published()


def test_all_other_models_are_published() -> None:
    assert sum(table.is_published for table in all_tables()) == 24
    A100.require_published()
