"""An admin plans a change and calls it off, freezes changes, and takes a GPU out of service.

Aspects: plain words before anything is done; each has its way back on the same page; looks.
"""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.guards import Guard
from tests.e2e.lab import LOOKS, Look, sign_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

NODE = "gpu-a30-01"
LATER = "2999-05-31T18:00"


@pytest.fixture
def grace(guard: Guard, lab_url: str) -> Page:
    """The page of an admin who has just signed in."""
    sign_in(guard.page, lab_url, "grace")
    return guard.page


def open_gpu(page: Page, url: str) -> str:
    """Open the first GPU of the node and return its address."""
    page.goto(f"{url}/gpus/?node={NODE}&view=table")
    page.locator('#gpu-map a[href^="/gpus/"]', has_text=NODE).first.click()
    expect(page.get_by_role("link", name="Reshape GPU")).to_be_visible()
    return page.url


def test_a_planned_change_is_called_off(guard: Guard, grace: Page, lab_url: str) -> None:
    address = open_gpu(grace, lab_url)
    grace.goto(f"{address}layout/?layout=")
    if grace.get_by_text("Nothing changes").is_visible():
        grace.goto(f"{address}layout/?layout=off")
    grace.get_by_role("link", name="Review change").click()
    grace.get_by_label("Start at").fill(LATER)
    grace.get_by_label("Reason").fill("Maintenance window")
    guard.look()
    grace.get_by_role("button", name="Change the GPU").click()
    expect(grace.get_by_text("The operation is planned")).to_be_visible()
    guard.look()

    grace.get_by_role("button", name="Call off").click()

    expect(grace.get_by_text("nothing was changed.").first).to_be_visible()
    expect(grace.get_by_role("button", name="Call off")).to_have_count(0)


@pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], ids=str)
def test_the_pages_look_right(guard: Guard, grace: Page, lab_url: str, look: Look) -> None:
    address = open_gpu(grace, lab_url)
    look.apply(grace, lab_url)
    for path in (f"{lab_url}/freezes/", f"{address}service/"):
        grace.goto(path)
        guard.look()


def test_a_freeze_is_seen_where_it_matters_and_lifted(
    guard: Guard, grace: Page, lab_url: str
) -> None:
    grace.goto(f"{lab_url}/nodes/{NODE}/")
    grace.get_by_role("link", name="Freeze changes").click()
    grace.get_by_label("Until").fill(LATER)
    grace.get_by_label("Reason").fill("Paper deadline")
    grace.get_by_role("button", name="Set the freeze").click()
    expect(grace.get_by_text("No new change starts there now.")).to_be_visible()
    guard.look()
    grace.goto(f"{lab_url}/nodes/{NODE}/")
    expect(grace.get_by_text(re.compile("No change may start on this node"))).to_be_visible()
    guard.look()

    grace.goto(f"{lab_url}/freezes/")
    grace.get_by_role("button", name=re.compile("^Lift")).first.click()

    expect(grace.get_by_text("The freeze has been lifted")).to_be_visible()


def test_a_gpu_goes_out_of_service_and_comes_back(guard: Guard, grace: Page, lab_url: str) -> None:
    open_gpu(grace, lab_url)
    grace.get_by_role("link", name="Take out of service").click()
    grace.get_by_label("Why it is out of service").fill("Fan is loud")
    guard.look()
    grace.get_by_role("button", name="Take out of service").click()
    expect(grace.get_by_text("Out of service: Fan is loud")).to_be_visible()
    guard.look()

    grace.get_by_role("link", name="Put back in service").click()
    grace.get_by_role("button", name="Put back in service").click()

    expect(grace.get_by_role("link", name="Take out of service")).to_be_visible()
