"""The sidebar: which pages a person's role opens, and where she is among them."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from gpu.selectors.inbox import requests_to_decide
from tenants.models import User
from tenants.permissions import Capability
from tenants.selectors import capabilities_of


@dataclass(frozen=True, slots=True)
class NavItem:
    """One page of the sidebar; `count` is how much waits there."""

    label: str
    url: str
    icon: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class NavGroup:
    """Pages of one kind; the first group has no title."""

    title: str
    items: tuple[NavItem, ...]


@dataclass(frozen=True, slots=True)
class Navigation:
    """The sidebar of one person on one page."""

    groups: tuple[NavGroup, ...]
    current: NavItem | None
    role: str


def navigation(request: HttpRequest) -> dict[str, object]:
    """Return `nav`, made only when a template asks for it: a fragment costs no query."""
    return {"nav": SimpleLazyObject(lambda: _navigation(request))}


def _navigation(request: HttpRequest) -> Navigation:
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return Navigation((), None, "")
    may = capabilities_of(user)
    groups = tuple(group for group in _groups(user, may) if group.items)
    return Navigation(groups, _current(request.path, groups), _role(user, may))


def _groups(user: User, may: frozenset[Capability]) -> Iterable[NavGroup]:
    asks = Capability.REQUEST_SLICES in may
    sees_cluster = Capability.SEE_CLUSTER in may
    sees_overview = Capability.SEE_OVERVIEW in may
    decides = Capability.DECIDE_REQUESTS in may
    waiting = requests_to_decide(user).count() if decides else 0
    yield NavGroup(
        "",
        _known(
            (True, _("Home"), "gpu:home", "home", 0),
            (decides, _("Inbox"), "gpu:inbox", "inbox", waiting),
            (asks, _("Request a slice"), "gpu:request-new", "plus", 0),
            (True, _("Requests"), "gpu:request-list", "list", 0),
            (True, _("Offerings"), "gpu:offering-list", "box", 0),
        ),
    )
    yield NavGroup(
        _("Cluster"),
        _known(
            (sees_cluster or sees_overview, _("GPUs"), "gpu:gpu-map", "cpu", 0),
            (sees_cluster or sees_overview, _("Nodes"), "gpu:node-list", "server-2", 0),
            (sees_cluster, _("Operations"), "gpu:operation-list", "history", 0),
        ),
    )
    yield NavGroup(
        _("Reports"),
        _known(
            (sees_overview, _("Overview"), "gpu:overview", "layout-dashboard", 0),
            (Capability.CHANGE_GPUS in may, _("Audit"), "gpu:audit-list", "layout-list", 0),
        ),
    )


def _known(*rows: tuple[bool, str, str, str, int]) -> tuple[NavItem, ...]:
    items = []
    for is_open, label, name, icon, count in rows:
        if not is_open:
            continue
        try:
            items.append(NavItem(label, reverse(name), icon, count))
        except NoReverseMatch:
            continue
    return tuple(items)


def _current(path: str, groups: Iterable[NavGroup]) -> NavItem | None:
    """Return the page whose address is the longest beginning of the path; home only itself."""
    found = [
        item
        for group in groups
        for item in group.items
        if path == item.url or (item.url != "/" and path.startswith(item.url))
    ]
    return max(found, key=lambda item: len(item.url), default=None)


def _role(user: User, may: frozenset[Capability]) -> str:
    if user.role == User.Role.RESEARCHER and Capability.DECIDE_REQUESTS in may:
        return _("tenant lead")
    return str(user.get_role_display())
