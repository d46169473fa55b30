"""The manager's journey: what is granted, to whom and of what, and taking it away as CSV.

Aspects: figures agree between page and CSV; the unit is in the address; from a tenant to its
slices; nothing can be changed; both themes, languages and widths.
"""

import csv
import io
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def marta(guard: Guard, lab_url: str) -> Page:
    """The page of a manager who has just signed in."""
    sign_in(guard.page, lab_url, "marta")
    return guard.page


def tile(page: Page, label: str) -> str:
    found = page.locator(".tile", has_text=label).first.locator(".tile-value")
    return found.inner_text().split()[0].replace(",", "")


def download(page: Page, section: str) -> list[dict[str, str]]:
    """Download the CSV of a section and read it as a spreadsheet does."""
    with page.expect_download() as waiting:
        page.locator(f"section[aria-labelledby={section}]").get_by_role("link", name="CSV").click()
    raw = Path(waiting.value.path()).read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"))))


def test_what_is_granted_to_whom_and_taking_it_away(
    guard: Guard, marta: Page, lab_url: str
) -> None:
    page = marta
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    guard.look()
    assert tile(page, "Really used") == "unknown"

    tenants = download(page, "tenants-title")
    models = download(page, "models-title")
    kinds = download(page, "kinds-title")
    granted = sum(float(row["Granted (GiB)"]) for row in tenants)
    assert granted > 0
    assert granted == pytest.approx(sum(float(row["Granted (GiB)"]) for row in models), abs=1)
    assert granted == pytest.approx(sum(float(row["Granted (GiB)"]) for row in kinds), abs=1)
    assert float(tile(page, "Granted")) == pytest.approx(granted, abs=1)
    assert sum(int(row["GPUs"]) for row in models) == 44
    for row in models:
        parts = sum(float(row[name]) for name in row if name.endswith("(GiB)"))
        capacity = float(row["Capacity (GiB)"])
        assert parts - capacity == pytest.approx(capacity, abs=0.2), row["Model"]

    page.get_by_role("link", name="Compute", exact=True).click()
    assert "unit=compute" in page.url
    assert tile(page, "Capacity") == str(44 * 7)
    guard.look()
    page.go_back()

    page.get_by_role("link", name="Computer Vision").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Requests")
    assert "tenant=vision" in page.url
    rows = page.locator("#request-table tbody tr")
    assert rows.count() > 0
    for text in rows.all_inner_texts():
        assert "Computer Vision" in text
        assert "ready" in text or "ending soon" in text
    rows.first.get_by_role("link").first.click()
    expect(page.locator("#request-story")).to_be_visible()
    expect(page.get_by_role("link", name="Give back")).to_have_count(0)
    guard.look()

    guard.allow("status of 403")
    answer = page.goto(f"{lab_url}/requests/new/")
    assert answer is not None
    assert answer.status == 403


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_the_overview_in_every_look(guard: Guard, marta: Page, lab_url: str, look: Look) -> None:
    page = marta
    look.apply(page, lab_url)
    for path in ("/overview/", "/overview/?unit=compute", "/requests/"):
        page.goto(lab_url + path)
        guard.look()
