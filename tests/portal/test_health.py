"""Health: what answers, what does not, and what that means for readiness."""

import pytest
from django.test import Client

from portal import health


@pytest.mark.django_db
def test_readyz_is_ok_when_every_part_is_alive(client: Client, valkey: str) -> None:
    health.beat("worker")
    health.beat("watcher")

    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["state"] == "ok"
    assert answer.json()["worker"]["detail"] == "alive"
