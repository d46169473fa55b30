"""Database addresses become Django's settings."""

import pytest

from portal.database import database_settings
from portal.env import EnvError


def test_every_part_of_an_address_is_read_and_decoded() -> None:
    found = database_settings("postgres://me%40lab:p%2Fw@db.example:6543/por%20tal?sslmode=require")

    assert found["USER"] == "me@lab"
    assert found["PASSWORD"] == "p/w"
    assert found["HOST"] == "db.example"
    assert found["PORT"] == "6543"
    assert found["NAME"] == "por tal"
    assert found["OPTIONS"] == {"connect_timeout": 3, "sslmode": "require"}
    assert found["CONN_MAX_AGE"] == 60


def test_a_socket_folder_may_stand_in_the_query() -> None:
    found = database_settings("postgresql:///portal?host=/run/postgresql")

    assert (found["HOST"], found["PORT"]) == ("/run/postgresql", "")


def test_a_pool_is_for_processes_with_threads_and_keeps_no_connection_of_its_own() -> None:
    found = database_settings("postgres://db/portal", pool_size=16)

    assert found["OPTIONS"]["pool"] == {
        "min_size": 1,
        "max_size": 16,
        "timeout": 4,
        "reconnect_timeout": 3,
    }
    assert found["CONN_MAX_AGE"] == 0


def test_an_address_without_a_database_is_refused() -> None:
    with pytest.raises(EnvError, match="DATABASE_URL names no database: end it with one"):
        database_settings("postgres://db:5432/")
