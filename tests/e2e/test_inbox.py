"""The pages of deciders and admins besides the editor: keys of the inbox, and every look."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_ITEM = "[data-inbox-item]"
_REASON = "[data-inbox-reason]"


@pytest.fixture
def grace(guard: Guard, lab_url: str) -> Page:
    """The page of an admin who has just signed in."""
    sign_in(guard.page, lab_url, "grace")
    return guard.page


def items_of(page: Page, url: str) -> Locator:
    page.goto(f"{url}/inbox/")
    expect(page.locator(":root")).to_have_class(re.compile("has-js"))
    return page.locator(_ITEM)


def test_the_inbox_is_worked_from_the_keyboard(guard: Guard, grace: Page, lab_url: str) -> None:
    page, items = grace, items_of(grace, lab_url)
    for key, position in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
        page.keyboard.press(key)
        expect(items.nth(position)).to_be_focused()
    page.keyboard.press("x")
    expect(items.first.get_by_role("checkbox")).to_be_checked()

    reason = items.first.locator(_REASON)
    reason.click()
    page.keyboard.type("jad")
    page.keyboard.press("Enter")
    expect(reason).to_have_value("jad")
    expect(page).to_have_url(f"{lab_url}/inbox/")

    reason.fill("")
    items.first.focus()
    guard.allow("422")
    page.keyboard.press("d")
    expect(reason).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Say why")
    guard.look()


def test_d_and_a_reason_decline(grace: Page, lab_url: str) -> None:
    page, items = grace, items_of(grace, lab_url)
    before = items.count()
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.type("Please take a share")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("1 request declined.")
    expect(items).to_have_count(before - 1)


def test_the_map_follows_its_filters_without_a_new_page(grace: Page, lab_url: str) -> None:
    page = grace
    page.goto(f"{lab_url}/gpus/")
    page.get_by_label("Model").select_option(label="A30")
    expect(page).to_have_url(re.compile("model="))
    expect(page.locator(".gpu-map-row")).to_have_count(1)
    page.get_by_role("link", name="As a table").click()
    expect(page.locator("#gpu-map tbody tr")).to_have_count(4)


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_page_in_every_look(guard: Guard, grace: Page, lab_url: str, look: Look) -> None:
    page = grace
    page.goto(f"{lab_url}/gpus/?node=gpu-rtx-01")
    gpu = page.locator("main a.glyph").first.get_attribute("href")
    look.apply(page, lab_url)
    nodes = ("/nodes/", "/nodes/gpu-rtx-01/", "/nodes/?name=none")
    for path in ("/inbox/", "/gpus/", "/gpus/?view=table", f"{gpu}", *nodes, "/audit/"):
        page.goto(lab_url + path)
        guard.look()
