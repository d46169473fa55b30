"""The audit trail's page: filters, words for every verb, details, pages, and who may read it."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpu.models import Operation
from gpu.views.audit import VERBS
from portal.audit import services
from tests.gpu.people import People, make_people, signed_in

_RECORDED = re.compile(r"audit\.record\(\s*\"([a-z_.]+)\"")


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def admin(people: People) -> Client:
    return signed_in(people.grace)


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_every_verb_that_is_written_has_words() -> None:
    root = Path(settings.BASE_DIR)
    sources = [
        path for part in ("gpu", "tenants", "portal") for path in (root / part).rglob("*.py")
    ]
    written = {verb for path in sources for verb in _RECORDED.findall(path.read_text())}
    assert {"request.submitted", "request.placed", "operation.opened"} <= written
    final = {f"operation.{state}" for state in Operation.FINAL_STATES}
    assert written | final <= set(VERBS)


def test_the_trail_filters_by_who_what_to_what_and_when(people: People, admin: Client) -> None:
    services.record("request.approved", "request/4711", actor=people.alice, reason="For the class")
    services.record("operation.opened", "node/n1", actor=people.grace, operation=81, profile="x")

    def listed(query: str) -> set[str]:
        text = page(admin, f"/audit/?{query}")
        return {target for target in ("request/4711", "node/n1") if f">{target}<" in text}

    both, today = {"request/4711", "node/n1"}, timezone.localdate()
    assert listed("") == both
    assert listed("actor=ALI") == {"request/4711"}
    assert listed("verb=operation.opened") == {"node/n1"}
    assert listed("verb=nonsense") == both
    assert listed("target=4711") == {"request/4711"}
    assert listed(f"since={today}&until={today}") == both
    assert listed("until=2020-01-01") == set()
    text = page(admin, "/audit/")
    assert "For the class" in text
    assert 'href="/operations/81/"' in text
    assert 'href="/nodes/n1/"' in text
    assert "approved a request" in text
    assert "&quot;profile&quot;: &quot;x&quot;" in text


def test_days_in_the_wrong_order_are_said(admin: Client) -> None:
    text = page(admin, "/audit/?since=2026-02-02&until=2026-02-01")
    assert "The last day lies before the first; swap them." in text


def test_an_empty_trail_and_an_empty_answer_differ(admin: Client) -> None:
    assert "Nothing has been done yet" in page(admin, "/audit/")
    assert "Nothing in the trail matches these filters." in page(admin, "/audit/?actor=nobody")


def test_htmx_gets_the_table_alone(admin: Client) -> None:
    answer = admin.get("/audit/", headers={"HX-Request": "true", "HX-Target": "audit-table"})
    assert answer.content.decode().strip().startswith('<section id="audit-table"')


@pytest.mark.parametrize(
    ("who", "status"), [("bob", 403), ("alice", 403), ("charlie", 403), ("grace", 200)]
)
def test_only_admins_read_it(people: People, who: str, status: int) -> None:
    assert signed_in(getattr(people, who)).get("/audit/").status_code == status


def test_fifty_events_ask_as_much_as_one(people: People, admin: Client) -> None:
    services.record("request.approved", "request/1", actor=people.alice)
    page(admin, "/audit/")
    with CaptureQueriesContext(connection) as one:
        page(admin, "/audit/")
    for number in range(2, 52):
        services.record("request.approved", f"request/{number}", actor=people.alice)
    with CaptureQueriesContext(connection) as many:
        text = page(admin, "/audit/")
    assert "1 to 50 of 51" in text
    assert len(many) == len(one)
    assert len(one) <= 8
