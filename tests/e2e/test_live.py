"""Live pages in a real browser: the last news is shown, however fast they come."""

import pytest
from playwright.sync_api import Page, expect

from portal import live
from tenants.models import User
from tests import factories
from tests.e2e.guards import Guard

pytestmark = pytest.mark.e2e


@pytest.fixture
def marta(guard: Guard, portal_url: str) -> Page:
    factories.make_user("marta", role=User.Role.MANAGER)
    factories.make_node()
    page = guard.page
    page.goto(f"{portal_url}/sign-in/")
    page.locator("[name=username]").fill("marta")
    page.locator("[name=password]").fill("secret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.locator(".freshness.is-live")).to_be_attached()
    return page


def test_news_that_come_while_a_page_waits_are_shown_in_the_end(marta: Page) -> None:
    tenants = marta.locator("section[aria-labelledby=tenants-title] table")
    for name in ("first", "second", "third"):
        factories.make_tenant(name)
        live.publish("overview")
        if name == "first":
            expect(tenants).to_contain_text("First")
    expect(tenants).to_contain_text("Third", timeout=10_000)
