"""The admin's journey: decide a request, reshape a GPU, watch the change, undo it.

Aspects: the preview follows each click; the address keeps the layout; a refused place says why;
the operation's page tells each step live with evidence; without scripts; every look.
"""

import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NODE = "gpu-a30-01"
_SOON_MS = 15_000
_MADE_MS = 120_000
_QUIET_S = 120


@pytest.fixture
def grace(guard: Guard, lab_url: str) -> Page:
    """The page of an admin who has just signed in."""
    sign_in(guard.page, lab_url, "grace")
    return guard.page


def preview_of(page: Page) -> Locator:
    return page.locator("#layout-preview")


def wait_for_quiet(page: Page, url: str) -> None:
    """Wait until no change of the tests before is under way."""
    end = time.monotonic() + _QUIET_S
    while time.monotonic() < end:
        page.goto(f"{url}/operations/?state=under_way")
        if page.get_by_text("No operation matches these filters.").is_visible():
            return
        page.wait_for_timeout(1000)
    pytest.fail("a change is still under way")


def editor_of(page: Page, url: str) -> str:
    """Open the editor of the node's third GPU, on which nothing is cut, and return its address."""
    page.goto(f"{url}/gpus/?node={NODE}")
    glyph = page.locator("main a.glyph").filter(has_text="A30 · 2:").first
    address = f"{url}{glyph.get_attribute('href')}layout/"
    page.goto(address)
    return address


def choose(page: Page) -> str:
    """Choose the first free place and return its name, such as 1g.6gb-0."""
    place = page.locator(".place-free").first
    name = (place.get_attribute("id") or "").removeprefix("place-")
    place.click()
    return name


def start_change(page: Page) -> None:
    """Confirm what the open editor wants, and arrive at the operation's page."""
    preview_of(page).get_by_role("link", name="Review change").click()
    page.get_by_label("Reason").fill("A class needs it on Monday")
    page.get_by_role("button", name="Change the GPU").click()
    page.wait_for_url(re.compile(r"/operations/\d+/$"))


def done_operation(guard: Guard, url: str) -> str:
    """Return the path of a change that is done; the first test to ask for one makes it."""
    page = guard.page
    page.goto(f"{url}/operations/?state=done")
    if page.locator("main td a").count() == 0:
        editor_of(page, url)
        choose(page)
        expect(preview_of(page)).to_contain_text("Cut", timeout=_SOON_MS)
        start_change(page)
        see_it_done(guard)
        return page.url.removeprefix(url)
    return page.locator("main td a").first.get_attribute("href") or ""


def see_it_done(guard: Guard) -> None:
    """Watch the open page of an operation until its end, without loading it anew."""
    page = guard.page
    page.evaluate("window.isTheSamePage = true")
    story = page.locator("#operation-story")
    expect(story.locator(".standing-state .state")).to_have_text("done", timeout=_MADE_MS)
    assert page.evaluate("window.isTheSamePage"), "the page was loaded anew"
    expect(story).to_contain_text("A Pod that asked for no GPU saw none.")
    expect(story.locator(".step-to_come, .step-running, .step-failed")).to_have_count(0)
    guard.look()


def test_a_waiting_request_is_approved(guard: Guard, grace: Page, lab_url: str) -> None:
    page = grace
    page.goto(f"{lab_url}/inbox/")
    guard.look()
    page.locator("#inbox-list").get_by_role("button", name=re.compile("^Approve")).last.click()
    expect(page.locator("main")).to_contain_text("1 request approved.")
    guard.look()


def test_a_gpu_is_reshaped_watched_and_put_back(guard: Guard, grace: Page, lab_url: str) -> None:
    page = grace
    wait_for_quiet(page, lab_url)
    address = editor_of(page, lab_url)
    expect(preview_of(page)).to_contain_text("Nothing changes")
    expect(preview_of(page).get_by_role("link", name="Review change")).to_be_disabled()
    guard.look()

    name = choose(page)
    profile, _dash, start = name.rpartition("-")
    expect(preview_of(page)).to_contain_text(f"Cut {profile}@{start}", timeout=_SOON_MS)
    expect(preview_of(page)).to_contain_text("No Pod is in the way.")
    expect(page).to_have_url(re.compile("layout="))
    assert page.evaluate("document.activeElement.id") == f"place-{name}", "the focus was lost"
    expect(page.locator(f"[id='place-{name}']")).to_have_class(re.compile("place-wanted"))
    guard.look()

    start_change(page)
    see_it_done(guard)
    story = page.locator("#operation-story")
    expect(story).to_contain_text("A class needs it on Monday")
    verified = story.locator(".step").filter(has_text="Verification Pod")
    expect(verified.get_by_text(re.compile("^MIG-")).first).to_be_visible()

    story.get_by_role("link", name="Undo").click()
    guard.look()
    expect(page.locator("main")).to_contain_text(f"Remove {profile}@{start}")
    page.get_by_role("button", name="Undo the change").click()
    page.wait_for_url(re.compile(r"/operations/\d+/$"))
    see_it_done(guard)
    page.goto(address)
    expect(page.locator(f"[id='place-{name}']")).to_have_class(re.compile("place-free"))


def test_a_refused_place_says_why_on_focus(grace: Page, lab_url: str) -> None:
    page = grace
    editor_of(page, lab_url)
    choose(page)
    expect(page.locator(".place-wanted").first).to_be_visible(timeout=_SOON_MS)
    refused = page.locator(".place-refused").first
    page.keyboard.press("Tab")
    refused.focus()
    reason = refused.locator(".place-reason")
    expect(reason).to_contain_text("overlaps")
    box = reason.bounding_box()
    assert box is not None
    assert box["width"] > 1, "the reason is not shown"


def test_the_editor_works_without_scripts(lab_url: str, page: Page) -> None:
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as plain:
        quiet = plain.new_page()
        sign_in(quiet, lab_url, "grace")
        wait_for_quiet(quiet, lab_url)
        editor_of(quiet, lab_url)
        choose(quiet)
        preview_of(quiet).get_by_role("link", name="Review change").click()
        quiet.get_by_label("Reason").fill("   ")
        quiet.get_by_role("button", name="Change the GPU").click()
        expect(quiet.locator(".errorlist")).to_contain_text("Say why")


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_page_in_every_look(guard: Guard, grace: Page, lab_url: str, look: Look) -> None:
    page = grace
    address = editor_of(page, lab_url).removeprefix(lab_url)
    busy = f"{address}?layout=off&unlock=1"
    done = done_operation(guard, lab_url)
    look.apply(page, lab_url)
    confirm = f"{address}confirm/?layout=off"
    for path in (address, busy, confirm, "/operations/", done, f"{done}undo/"):
        page.goto(lab_url + path)
        guard.look()
