"""What every page does alike: who may open it, page or fragment, paging, live topics."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, cast, overload

from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_lazy as _

from portal import live
from portal.http import PortalRequest
from tenants.permissions import Capability

PAGE_SIZE = 25

type View[**P] = Callable[Concatenate[PortalRequest, P], HttpResponse]


def requires[**P](*any_of: Capability) -> Callable[[View[P]], View[P]]:
    """Open a view only to those whose role gives one of the capabilities; 403 to all others."""

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def checked(request: PortalRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if not any(request.user.may(capability) for capability in any_of):
                raise PermissionDenied(_("Your role does not include this page."))
            return view(request, *args, **kwargs)

        return cast("View[P]", checked)

    return decorate


def render_page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    fragments: Sequence[str] = (),
    status: int = 200,
) -> HttpResponse:
    """Render a page, or only the fragment that htmx means to swap, if it is one of `fragments`."""
    htmx = cast("PortalRequest", request).htmx
    name = template
    if htmx and not htmx.boosted and htmx.target in fragments:
        name = f"{template}#{htmx.target}"
    response = render(request, name, dict(context), status=status)
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


@overload
def page_of[M: Model](request: HttpRequest, rows: QuerySet[M], *, size: int = ...) -> Page[M]: ...


@overload
def page_of[T](request: HttpRequest, rows: Sequence[T], *, size: int = ...) -> Page[T]: ...


def page_of(request: HttpRequest, rows: Any, *, size: int = PAGE_SIZE) -> Page[Any]:
    """Return the page that the address asks for; the nearest one where there is no such page."""
    return Paginator(rows, size).get_page(request.GET.get("page"))


def live_token(request: PortalRequest, *topics: str) -> str:
    """Return the token with which this page listens to its topics."""
    return live.sign_topics(request.user.pk, topics)
