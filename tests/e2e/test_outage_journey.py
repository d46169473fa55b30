"""A request on its way while PostgreSQL or Valkey stands still or is emptied: nothing is lost.

Every process of the demo runs. The servers are frozen, not ended, since the demo would start an
ended one again at once; frozen is also the harder case, as connections hang instead of failing.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect
from redis import Redis

from portal.embedded.postgres import Postgres
from portal.embedded.state import State
from portal.embedded.valkey import Valkey
from tests.e2e.guards import Guard
from tests.e2e.lab import served_from, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

_STOPPED_S = 10
_SOON_MS = 15_000
_MADE_MS = 120_000


@dataclass(frozen=True, slots=True)
class Lab:
    """A served portal and the state directory of its servers."""

    url: str
    state: State


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder: Path = tmp_path_factory.mktemp("outage-lab")
    with served_from(str(folder), pace=0.5) as url:
        yield Lab(url, State.open(folder))


@contextlib.contextmanager
def standing_still(process: psutil.Process | None) -> Iterator[None]:
    """Freeze a server for ten seconds, during which the block runs."""
    assert process is not None
    family = [process, *process.children(recursive=True)]
    end = time.monotonic() + _STOPPED_S
    for one in family:
        one.suspend()
    try:
        yield
        time.sleep(max(0, end - time.monotonic()))
    finally:
        for one in family:
            one.resume()


def ask(page: Page, url: str) -> None:
    """Ask for a slice that has to be cut first."""
    page.goto(f"{url}/requests/new/")
    page.get_by_label("GPU model", exact=True).select_option(label="A100-SXM4-80GB")
    page.get_by_label("GPU memory for each slice (GiB)").fill("19.5")
    page.get_by_label("What for", exact=True).fill("Training while servers fail")
    page.get_by_role("button", name="Submit request").last.click()


def approve(page: Page, url: str, number: str) -> None:
    page.goto(f"{url}/inbox/")
    page.locator(f"#request-{number}").get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("1 request approved.")


@pytest.fixture
def people(guard: Guard, lab: Lab) -> Iterator[tuple[Page, Page]]:
    """The pages of a researcher and of an admin."""
    guard.allow("503")
    guard.allow("ERR_")
    sign_in(guard.page, lab.url, "ada")
    browser = guard.page.context.browser
    assert browser is not None
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        graces = context.new_page()
        sign_in(graces, lab.url, "grace")
        yield guard.page, graces


def number_of(page: Page) -> str:
    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    return page.url.rstrip("/").rpartition("/")[2]


def test_a_frozen_database_in_the_middle_of_a_change(lab: Lab, people: tuple[Page, Page]) -> None:
    page, graces = people
    ask(page, lab.url)
    number = number_of(page)
    story = page.locator("#request-story")
    approve(graces, lab.url, number)
    expect(story.locator(".state").first).to_have_text("being made", timeout=_SOON_MS)

    with standing_still(Postgres(lab.state).process()):
        graces.goto(f"{lab.url}/requests/{number}/")
        expect(graces.get_by_role("heading", level=1)).to_have_text("The database does not answer")

    expect(story.locator(".state").first).to_have_text("ready", timeout=_MADE_MS)
    expect(story).to_contain_text("A Pod above the quota was refused, as it should be.")


def test_a_frozen_broker_from_the_form_to_the_approval(lab: Lab, people: tuple[Page, Page]) -> None:
    page, graces = people
    with standing_still(Valkey(lab.state).process()):
        ask(page, lab.url)
        number = number_of(page)
        approve(graces, lab.url, number)
        expect(graces.locator("#broker-banner")).to_be_visible(timeout=_SOON_MS)
        expect(graces.locator("#broker-banner")).to_contain_text("Nothing is lost")

    expect(page.locator("#request-story .state").first).to_have_text("ready", timeout=_MADE_MS)
    page.reload()
    expect(page.locator("#broker-banner")).to_be_hidden()


def test_an_emptied_broker_in_the_middle_of_a_change(lab: Lab, people: tuple[Page, Page]) -> None:
    page, graces = people
    ask(page, lab.url)
    number = number_of(page)
    approve(graces, lab.url, number)
    story = page.locator("#request-story")
    expect(story.locator(".state").first).to_have_text("being made", timeout=_SOON_MS)

    broker = Redis(
        port=int(lab.state.values["valkey_port"]), password=lab.state.values["valkey_password"]
    )
    with broker:
        broker.flushall()

    expect(story.locator(".state").first).to_have_text("ready", timeout=_MADE_MS)
    page.goto(f"{lab.url}/requests/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Requests")  # still signed in
