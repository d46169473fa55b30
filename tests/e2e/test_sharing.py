"""An admin shares a node's whole GPUs by four, watches the proof, and puts them back.

Aspects: bad input in one sentence; the preview is honest; the tick is asked for; every share is
proved; undo; without scripts; looks.
"""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NODE = "gpu-rtx-01"
KEY = "nvidia.com/gpu"
_MADE_MS = 150_000
_QUIET_S = 150


@pytest.fixture
def grace(guard: Guard, lab_url: str) -> Page:
    """The page of an admin who has just signed in."""
    sign_in(guard.page, lab_url, "grace")
    return guard.page


def wait_for_quiet(page: Page, url: str) -> None:
    """Wait until no change of the tests before is under way."""
    end = time.monotonic() + _QUIET_S
    while time.monotonic() < end:
        page.goto(f"{url}/operations/?state=under_way")
        if page.get_by_text("No operation matches these filters.").is_visible():
            return
        page.wait_for_timeout(1000)
    pytest.fail("a change is still under way")


def choose(page: Page, strategy: str, shares: str) -> None:
    """Fill the form that is open and go on to the review."""
    page.get_by_role("radio", name=re.compile(f"^{strategy}")).check()
    page.get_by_label(KEY).fill(shares)
    page.get_by_role("button", name="Review change").click()


def start(page: Page) -> None:
    """Confirm the review that is open, and arrive at the operation's page."""
    page.get_by_role("checkbox").check()
    page.get_by_label("Reason").fill("A class needs many small GPUs")
    page.get_by_role("button", name="Change the sharing").click()
    page.wait_for_url(re.compile(r"/operations/\d+/$"))


def see_it_done(guard: Guard) -> None:
    """Watch the open page of an operation until its end, without loading it anew."""
    page = guard.page
    page.evaluate("window.isTheSamePage = true")
    story = page.locator("#operation-story")
    expect(story.locator(".standing-state .state")).to_have_text("done", timeout=_MADE_MS)
    assert page.evaluate("window.isTheSamePage"), "the page was loaded anew"
    expect(story).to_contain_text("each device was seen by as many Pods as it has shares")
    expect(story).to_contain_text("A Pod that asked for no GPU saw none.")
    guard.look()


def test_whole_gpus_are_shared_by_four_proved_and_put_back(
    guard: Guard, grace: Page, lab_url: str
) -> None:
    page = grace
    wait_for_quiet(page, lab_url)
    page.goto(f"{lab_url}/nodes/{NODE}/")
    guard.look()
    page.get_by_role("link", name="Change sharing").click()
    guard.look()

    guard.allow("422")
    choose(page, "Time-slicing", "1")
    expect(page.locator(".errorlist")).to_contain_text("Give at least one resource 2 shares")
    guard.look()
    choose(page, "Time-slicing", "4")
    main = page.locator("main")
    expect(main).to_contain_text("4 Pods on one device, about 23.9 GiB for each.")
    expect(main).to_contain_text("Not for people who do not trust each other.")
    guard.look()

    page.get_by_label("Reason").fill("A class needs many small GPUs")
    page.get_by_role("button", name="Change the sharing").click()
    expect(page.locator(".errorlist")).to_contain_text("Tick this")
    guard.look()
    start(page)
    see_it_done(guard)
    story = page.locator("#operation-story")
    seen = story.locator(".step").filter(has_text="Verification Pod").last
    expect(seen.get_by_text(re.compile("^GPU-"))).to_have_count(8)

    page.goto(f"{lab_url}/nodes/{NODE}/")
    expect(page.locator("main")).to_contain_text("time-slicing: nvidia.com/gpu")
    page.locator(".history a").first.click()
    page.get_by_role("link", name="Undo").click()
    expect(page.locator("main")).to_contain_text("are shared again as they were before")
    guard.look()
    page.get_by_role("button", name="Undo the change").click()
    page.wait_for_url(re.compile(r"/operations/\d+/$"))
    see_it_done(guard)
    page.goto(f"{lab_url}/nodes/{NODE}/")
    row = page.locator("tr").filter(has_text=KEY).first
    expect(row.locator("td").nth(2)).to_have_text("2")


def test_the_form_works_without_scripts(lab_url: str, page: Page) -> None:
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as plain:
        quiet = plain.new_page()
        sign_in(quiet, lab_url, "grace")
        quiet.goto(f"{lab_url}/nodes/{NODE}/sharing/")
        choose(quiet, "MPS", "49")
        expect(quiet.locator(".errorlist")).to_contain_text("MPS serves 48 Pods")
        choose(quiet, "MPS", "8")
        expect(quiet.locator("main")).to_contain_text("limited, not protected")


@pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], ids=str)
def test_every_page_in_two_looks(guard: Guard, grace: Page, lab_url: str, look: Look) -> None:
    page = grace
    address = f"{lab_url}/nodes/{NODE}/sharing/"
    look.apply(page, lab_url)
    guard.allow("422")
    for path in ("", "confirm/?strategy=mps&gpu=8", "confirm/?strategy=mps&gpu=99"):
        page.goto(address + path)
        guard.look()
