"""Health: what answers, what does not, and what that means for readiness."""

import time
from unittest.mock import Mock

import pytest
import time_machine
from django.db import OperationalError, connection
from django.test import Client

from portal import health
from portal.tasks import pulse


def test_healthz_looks_at_nothing(client: Client) -> None:
    answer = client.get("/healthz")

    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.django_db
def test_readyz_is_ok_when_every_part_is_alive(client: Client, valkey: str) -> None:
    pulse()
    health.beat("watcher")

    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["state"] == "ok"
    assert answer.json()["worker"]["detail"] == "alive"
    assert answer.json()["watcher"]["age_seconds"] < 5


@pytest.mark.django_db
def test_readyz_names_a_process_that_has_gone_silent(client: Client, valkey: str) -> None:
    with time_machine.travel(time.time() - 300, tick=True):
        health.beat("watcher")
    health.beat("worker")

    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["state"] == "degraded"
    assert answer.json()["watcher"]["detail"] == "silent"
    assert 295 < answer.json()["watcher"]["age_seconds"] < 310
    assert answer.json()["worker"]["ok"] is True


@pytest.mark.django_db
def test_pages_are_served_without_a_broker(client: Client) -> None:
    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["state"] == "degraded"
    assert answer.json()["broker"] == {"ok": False, "detail": "does not answer"}
    assert answer.json()["worker"]["detail"] == "unknown: the broker does not answer"


@pytest.mark.django_db
def test_readyz_is_down_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        message = "connection refused\nIs the server running?"
        raise OperationalError(message)

    monkeypatch.setattr(connection, "cursor", refuse)

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["state"] == "down"
    assert answer.json()["database"]["detail"] == "connection refused"


def test_a_heartbeat_without_a_broker_raises_nothing() -> None:
    health.beat("worker")


def test_pages_learn_what_is_broken_with_one_look_in_two_seconds(
    valkey: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Mock(side_effect=health._heartbeats)
    monkeypatch.setattr(health, "_heartbeats", looks)
    health.beat("worker")
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)

    assert [health.broken_parts() for _ in range(50)] == [("watcher",)] * 50
    assert looks.call_count == 1

    health.beat("watcher")
    monkeypatch.setattr(time, "monotonic", lambda: 1002.5)
    assert health.broken_parts() == ()


def test_pages_learn_that_the_broker_is_away() -> None:
    assert health.broken_parts() == ("broker", "worker", "watcher")
