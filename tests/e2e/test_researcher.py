"""The researcher's journey: from signing in to a ready slice and back, in a real browser.

Aspects: the answer follows what is typed; counter-offers fill the form; the page of a request tells
each step live until ready; copying; giving back; the keyboard alone; without scripts; both themes,
languages and widths.
"""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

_SOON_MS = 15_000
_MADE_MS = 120_000


@pytest.fixture
def ada(guard: Guard, lab_url: str) -> Page:
    """The page of a researcher who has just signed in."""
    sign_in(guard.page, lab_url, "ada")
    return guard.page


def answer_of(page: Page) -> Locator:
    return page.locator("#fit-answer")


def field(page: Page, label: str) -> Locator:
    return page.get_by_label(label, exact=True)


def memory_of(page: Page) -> Locator:
    return page.get_by_label("GPU memory for each slice (GiB)")


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until the wanted element has the focus."""
    for _press in range(80):
        if wanted.evaluate("(element) => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    message = f"Tab does not reach {wanted}"
    raise AssertionError(message)


def approve(page: Page, url: str, request_id: str) -> None:
    """Approve a request as the tenant's lead, in a window of her own."""
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        leads = context.new_page()
        sign_in(leads, url, "lei")
        leads.goto(f"{url}/inbox/")
        leads.locator(f"#request-{request_id}").get_by_role("button", name="Approve").click()
        expect(leads.locator("main")).to_contain_text("1 request approved.")


def test_from_signing_in_to_a_ready_slice_and_back(guard: Guard, ada: Page, lab_url: str) -> None:
    page = ada
    expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    guard.look()
    page.get_by_role("link", name="Offerings").click()
    expect(page.get_by_role("heading", name="Isolated slice")).to_be_visible()
    guard.look()
    page.get_by_role("link", name="Request a slice").first.click()

    number = ask_for_what_has_to_be_cut(guard)
    see_it_made(guard, lab_url, number)
    take_the_pod_spec(page, lab_url, number)

    page.get_by_role("link", name="Home").click()
    slices = page.locator("#my-slices").locator(f"tr:has(a[href='/requests/{number}/'])")
    expect(slices).to_contain_text("1g.20gb on A100-SXM4-80GB, 19.5 GiB")
    expect(slices).to_contain_text("no Pod")
    slices.get_by_role("link").click()
    page.get_by_role("link", name="Give back").click()
    guard.look()
    page.get_by_role("button", name="Give the slice back").click()
    expect(page.locator("#request-story .state").first).to_have_text("ended")
    expect(page.locator("main")).to_contain_text("It was given back before its end.")


def ask_for_what_has_to_be_cut(guard: Guard) -> str:
    """Ask in vain, take a counter-offer, then ask for a size that nobody has cut yet."""
    page = guard.page
    expect(answer_of(page)).to_contain_text("You can have this")
    guard.look()
    field(page, "What for").fill("Fine-tuning a segmentation model")
    memory_of(page).fill("500")
    expect(answer_of(page)).to_contain_text("This cluster cannot give that.", timeout=_SOON_MS)
    guard.look()
    answer_of(page).get_by_role("button", name=re.compile("isolated")).first.click()
    expect(memory_of(page)).not_to_have_value("500", timeout=_SOON_MS)
    expect(answer_of(page)).to_contain_text("You can have this", timeout=_SOON_MS)
    expect(field(page, "What for")).to_have_value("Fine-tuning a segmentation model")

    field(page, "GPU model").select_option(label="A100-SXM4-80GB")
    memory_of(page).fill("19.5")
    expect(answer_of(page)).to_contain_text(
        "You can have this after a change that disturbs nobody.", timeout=_SOON_MS
    )
    expect(answer_of(page)).to_contain_text("1g.20gb on A100-SXM4-80GB: 19.5 GiB")
    page.get_by_role("button", name="Submit request").last.click()
    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    return page.url.rstrip("/").rpartition("/")[2]


def see_it_made(guard: Guard, url: str, number: str) -> None:
    """Watch the open page go from waiting to ready, without loading it anew."""
    page = guard.page
    story = page.locator("#request-story")
    expect(story).to_contain_text("waiting for approval")
    expect(story).to_contain_text("Lei Ming or an admin decides.")
    guard.look()
    page.evaluate("window.isTheSamePage = true")

    approve(page, url, number)

    expect(story.locator(".state").first).to_have_text("being made", timeout=_SOON_MS)
    expect(story).to_contain_text("GPU changed: gpu-", timeout=_SOON_MS)
    expect(story.locator(".state").first).to_have_text("ready", timeout=_MADE_MS)
    assert page.evaluate("window.isTheSamePage"), "the page was loaded anew"
    expect(story).to_contain_text("A Pod above the quota was refused, as it should be.")
    guard.look()


def take_the_pod_spec(page: Page, url: str, number: str) -> None:
    """Copy it, and download it as a file."""
    story = page.locator("#request-story")
    expect(story.locator("#pod-spec")).to_contain_text("nvidia.com/mig-1g.20gb: '1'")
    expect(story).to_contain_text(f"kubectl -n team-vision get pod slice-ada-{number}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.get_by_role("button", name="Copy Pod spec").click()
    expect(page.locator("#announcer")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("apiVersion: v1")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"slice-ada-{number}.yaml"


def test_the_slider_and_the_number_stay_in_step(ada: Page, lab_url: str) -> None:
    page = ada
    page.goto(f"{lab_url}/requests/new/")
    slider = page.get_by_label("GPU memory, by the sizes that there are")
    field(page, "GPU model").select_option(label="A100-SXM4-40GB")
    memory_of(page).fill("4.75")
    expect(slider).to_have_value("0")

    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(memory_of(page)).to_have_value("9.62")
    expect(slider).to_have_attribute("aria-valuetext", "9.62 GiB")
    expect(answer_of(page)).to_contain_text("on A100-SXM4-40GB: 9.62 GiB", timeout=_SOON_MS)

    memory_of(page).fill("39.25")
    expect(slider).to_have_value("3")
    page.get_by_role("radio", name=re.compile("^Whole GPU")).check()
    expect(slider).to_be_disabled()
    expect(answer_of(page)).to_contain_text("whole A100-SXM4-40GB: 40 GiB", timeout=_SOON_MS)


def test_a_wrong_field_keeps_all_that_was_typed(guard: Guard, ada: Page, lab_url: str) -> None:
    page = ada
    page.goto(f"{lab_url}/requests/new/")
    field(page, "For how many days").fill("99")
    field(page, "What for").fill("Reading group")
    guard.allow("status of 422")
    page.get_by_role("button", name="Submit request").last.click()

    expect(page.locator(".errorlist")).to_contain_text("Choose 1 to 14 days")
    expect(field(page, "For how many days")).to_have_value("99")
    expect(field(page, "For how many days")).to_be_focused()
    expect(field(page, "What for")).to_have_value("Reading group")
    guard.look()


def test_a_slice_is_asked_for_with_the_keyboard_alone(ada: Page) -> None:
    page = ada
    tab_to(page, page.locator("main").get_by_role("link", name="Request a slice"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Request a slice")
    tab_to(page, memory_of(page))
    page.keyboard.type("4")
    tab_to(page, page.get_by_role("radio", name=re.compile("^Isolated slice")))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name=re.compile("^Shared GPU"))).to_be_checked()
    expect(answer_of(page)).to_contain_text("It needs no approval.", timeout=_SOON_MS)
    tab_to(page, field(page, "What for"))
    page.keyboard.type("Notebook for the reading group")
    page.keyboard.press("Enter")

    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    expect(page.locator("#request-story .state").first).to_have_text("ready", timeout=_MADE_MS)
    expect(page.locator("main")).to_contain_text("Keep to your share")
    tab_to(page, page.get_by_role("link", name="Give back"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name="Give the slice back"))
    page.keyboard.press("Enter")
    expect(page.locator("#request-story .state").first).to_have_text("ended")


def test_everything_works_without_scripts(lab_url: str, page: Page) -> None:
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as plain:
        quiet = plain.new_page()
        sign_in(quiet, lab_url, "noor")
        quiet.goto(f"{lab_url}/requests/new/")
        memory_of(quiet).fill("500")
        quiet.get_by_role("button", name="Check whether I can have it").click()
        expect(answer_of(quiet)).to_contain_text("This cluster cannot give that.")
        answer_of(quiet).get_by_role("button", name=re.compile("isolated")).first.click()
        expect(answer_of(quiet)).to_contain_text("You can have this")
        field(quiet, "What for").fill("Without scripts")
        quiet.get_by_role("button", name="Submit request").last.click()

        expect(quiet.locator("#request-story")).to_contain_text("waiting for approval")
        quiet.get_by_role("link", name="Withdraw").click()
        quiet.get_by_role("button", name="Withdraw the request").click()
        expect(quiet.locator("#request-story .state").first).to_have_text("withdrawn")
        quiet.get_by_role("link", name="Ask again").click()
        expect(field(quiet, "What for")).to_have_value("Without scripts")


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_page_in_every_look(guard: Guard, ada: Page, lab_url: str, look: Look) -> None:
    page = ada
    look.apply(page, lab_url)
    paths = ["/", "/offerings/", "/requests/", "/requests/new/?memory=500", "/requests/new/"]
    page.goto(f"{lab_url}/requests/?state=ready")
    first = page.locator("main td a").first.get_attribute("href") or ""
    for path in (*paths, first, f"{first}release/"):
        page.goto(lab_url + path)
        guard.look()
