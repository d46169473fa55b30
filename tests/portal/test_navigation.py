"""The sidebar: each role sees the pages that it may open, and where it is."""

import pytest
from django.http import HttpRequest
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from portal.navigation import Navigation, navigation
from tenants.models import Membership, User
from tests import factories

pytestmark = pytest.mark.django_db


def seen_by(user: User | None, path: str = "/") -> Navigation:
    request: HttpRequest = RequestFactory().get(path)
    if user is not None:
        request.user = user
    found = navigation(request)["nav"]
    assert isinstance(found, Navigation)
    return found


def labels(nav: Navigation) -> list[str]:
    return [item.label for group in nav.groups for item in group.items]


def member(role: str) -> User:
    tenant = factories.make_tenant()
    return factories.join(tenant, factories.make_user(), role=role)


def test_a_researcher_asks_and_waits() -> None:
    nav = seen_by(member(Membership.Role.RESEARCHER))
    assert labels(nav) == ["Home", "Request a slice", "Requests", "Offerings"]
    assert nav.role == "researcher"


def test_a_lead_decides_as_well() -> None:
    nav = seen_by(member(Membership.Role.LEAD))
    assert "Inbox" in labels(nav)
    assert nav.role == "tenant lead"


def test_a_manager_looks_at_the_cluster_and_changes_nothing() -> None:
    shown = labels(seen_by(factories.make_user("max", role=User.Role.MANAGER)))
    assert {"Overview", "GPUs", "Nodes"} <= set(shown)
    assert {"Inbox", "Request a slice", "Operations", "Audit"}.isdisjoint(shown)


def test_an_admin_sees_everything_but_asks_for_nothing() -> None:
    shown = labels(seen_by(factories.make_user("ada", role=User.Role.ADMIN)))
    assert {"Inbox", "GPUs", "Nodes", "Operations", "Overview", "Audit"} <= set(shown)
    assert "Request a slice" not in shown


def test_the_inbox_says_how_much_waits_there() -> None:
    tenant = factories.make_tenant()
    lead = factories.join(tenant, factories.make_user("alice"), role=Membership.Role.LEAD)
    factories.submit(tenant, factories.join(tenant, factories.make_user("bob")))
    counts = {item.label: item.count for group in seen_by(lead).groups for item in group.items}
    assert counts["Inbox"] == 1


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/", "Home"),
        ("/requests/", "Requests"),
        ("/requests/12/", "Requests"),
        ("/requests/new/", "Request a slice"),
        ("/nowhere/", None),
    ],
)
def test_the_current_page_is_the_nearest_address(path: str, label: str | None) -> None:
    current = seen_by(member(Membership.Role.RESEARCHER), path).current
    assert (current.label if current else None) == label


def test_visitors_have_no_sidebar() -> None:
    assert seen_by(None).groups == ()


def test_a_fragment_costs_no_query_for_the_sidebar(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    request = RequestFactory().get("/")
    request.user = factories.make_user()
    with django_assert_num_queries(0):
        navigation(request)


def test_the_theme_of_the_cookie_is_in_the_first_byte_of_the_page(client: Client) -> None:
    for cookie, theme in (("dark", "dark"), ("light", "light"), ("<b>", "auto")):
        client.cookies["slicedesk_theme"] = cookie
        assert f'data-bs-theme="{theme}"' in client.get("/sign-in/").content.decode()[:200]
