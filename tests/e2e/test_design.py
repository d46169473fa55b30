"""The design system in a real browser.

Aspects: every part accessible in both themes, languages and widths; theme and language are kept;
the menu and the glyph from the keyboard; copying; a live fragment keeps what the visitor does.
"""

import re

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings

from portal import live
from tests.e2e.guards import Guard

pytestmark = pytest.mark.e2e


@pytest.fixture
def design_url(portal_url: str, settings: Settings) -> str:
    settings.ROOT_URLCONF = "tests.e2e.urls"
    return portal_url


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_part_is_accessible(
    guard: Guard, design_url: str, width: int, theme: str, language: str
) -> None:
    page = guard.page
    page.set_viewport_size({"width": width, "height": 900})
    page.context.add_cookies(
        [
            {"name": "slicedesk_theme", "value": theme, "url": design_url},
            {"name": "slicedesk_language", "value": language, "url": design_url},
        ]
    )
    for path in ("/styleguide/", "/sign-in/"):
        page.goto(design_url + path)
        guard.look()
    page.goto(f"{design_url}/styleguide/")
    for details in page.locator("details").all():
        details.locator("summary").click()
    guard.look()


def test_the_theme_is_kept_without_a_flash(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.emulate_media(color_scheme="light")
    page.goto(f"{design_url}/sign-in/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.get_by_role("button", name="Dark").click()

    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    answer = page.reload()
    assert answer is not None
    assert 'data-bs-theme="dark"' in answer.text()
    page.get_by_role("button", name="As the system").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_the_language_is_chosen_before_signing_in(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.goto(f"{design_url}/sign-in/")
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("登录")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")


def test_the_menu_opens_and_closes_from_the_keyboard(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{design_url}/styleguide/")
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_be_hidden()

    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    expect(menu).to_be_visible()
    guard.look()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()


def test_the_keyboard_reaches_the_content_first(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.goto(f"{design_url}/styleguide/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_a_glyph_tells_on_focus_and_opens_its_table_with_t(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.goto(f"{design_url}/styleguide/")
    glyph = page.locator(".glyph-editor .glyph")
    page.locator("#editor-title").evaluate(
        "(heading) => { heading.tabIndex = 0; heading.focus(); }"
    )
    page.keyboard.press("Tab")
    expect(glyph).to_be_focused()
    expect(page.locator(".glyph-tip")).to_contain_text(
        "3g.71gb at slices 0 to 3 in use by Team Vision"
    )

    page.keyboard.press("t")
    expect(page.locator(".glyph-editor table")).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator(".glyph-editor table")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator(".glyph-tip")).to_be_hidden()


def test_copying_says_that_it_is_done(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=design_url)
    page.goto(f"{design_url}/styleguide/")
    page.get_by_role("button", name="Copy Pod spec").click()
    expect(page.locator("#announcer")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("apiVersion: v1")
    assert "nvidia.com/mig-3g.71gb: 1" in copied


def test_a_live_fragment_keeps_what_the_visitor_does(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.goto(f"{design_url}/live-page/")
    before = page.locator("#number").inner_text()
    page.locator("#more summary").click()
    page.locator("#note").fill("half a thought")
    page.locator("#note").evaluate("(field) => field.setSelectionRange(4, 4)")
    page.locator("#facts").evaluate("(node) => { node.isTheSame = true; }")

    live.publish("gpus")

    expect(page.locator("#number")).not_to_have_text(before)

    assert page.locator("#facts").evaluate("(node) => node.isTheSame")
    expect(page.locator("#more")).to_have_attribute("open", "")
    expect(page.locator("#more p")).to_have_text(re.compile(r"Detail \d+"))
    expect(page.locator("#note")).to_be_focused()
    expect(page.locator("#note")).to_have_value("half a thought")
    assert page.locator("#note").evaluate("(field) => field.selectionStart") == 4


def test_cells_of_a_narrow_table_name_their_column(guard: Guard, design_url: str) -> None:
    page = guard.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{design_url}/live-page/")
    cell = page.locator("#facts td").nth(1)
    expect(cell).to_have_attribute("data-label", "GPUs")
    assert cell.evaluate("(td) => getComputedStyle(td, '::before').content") == '"GPUs"'


def test_a_page_reads_well_without_javascript(design_url: str, page: Page) -> None:
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as plain:
        quiet = plain.new_page()
        quiet.goto(f"{design_url}/styleguide/")
        expect(quiet.get_by_role("button", name="Copy Pod spec")).to_be_hidden()
        expect(quiet.get_by_role("button", name="Dark")).to_be_hidden()
        expect(quiet.get_by_role("link", name=re.compile("^H200 · 0: MIG")).first).to_be_visible()
        quiet.set_viewport_size({"width": 390, "height": 800})
        quiet.get_by_role("button", name="Menu").click()
        expect(quiet.get_by_role("navigation", name="Main")).to_be_visible()
