"""What may be asked for, and what of it is free at this moment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from gpu.models import Offering
from gpu.selectors.offerings import (
    Availability,
    Offered,
    active_offerings,
    availability,
    model_names,
    offered,
)
from gpu.selectors.snapshot import cluster_snapshot
from gpu.views.amounts import gib, gib_text, sevenths
from gpu.views.isolation import Honesty, honesty_of, offering_name
from gpu.views.pages import live_token, render_page
from portal.http import PortalRequest
from tenants.permissions import Capability
from tenants.selectors import capabilities_of


@dataclass(frozen=True, slots=True)
class KindRow:
    """One line of an offering: a size of a model, and how much of it there is."""

    name: str
    replicas: int
    memory: str
    parts: str
    free_now: int
    after_change: int
    is_capped: bool
    url: str


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """A GPU model and what an offering has of it."""

    model: str
    rows: tuple[KindRow, ...]


@dataclass(frozen=True, slots=True)
class OfferingCard:
    """An offering as the page shows it."""

    offering: Offering
    name: str
    honesty: Honesty
    groups: tuple[ModelGroup, ...]


@require_safe
def offering_list(request: PortalRequest) -> HttpResponse:
    """Show what may be asked for."""
    snapshot = cluster_snapshot()
    names = model_names()
    cards = [
        _card(item, availability(snapshot, item), names)
        for item in offered(snapshot, active_offerings())
    ]
    context = {
        "cards": cards,
        "may_request": Capability.REQUEST_SLICES in capabilities_of(request.user),
        "live_token": live_token(request, "gpus"),
    }
    return render_page(request, "gpu/offering_list.html", context, fragments=("offering-cards",))


def _card(item: Offered, found: list[Availability], names: Mapping[str, str]) -> OfferingCard:
    return OfferingCard(
        offering=item.offering,
        name=offering_name(item.offering),
        honesty=honesty_of(item.offering.isolation),
        groups=tuple(_groups(item.offering, found, names)),
    )


def _groups(
    offering: Offering, found: list[Availability], names: Mapping[str, str]
) -> Iterator[ModelGroup]:
    products = {one.kind.product: names.get(one.kind.product, one.kind.product) for one in found}
    for product, name in sorted(products.items(), key=lambda item: item[1]):
        rows = tuple(_row(offering, one) for one in found if one.kind.product == product)
        yield ModelGroup(name, rows)


def _row(offering: Offering, found: Availability) -> KindRow:
    kind = found.kind
    wanted = {
        "isolation": offering.isolation,
        "memory": gib_text(kind.memory_mib),
        "gpu_model": kind.product,
    }
    return KindRow(
        name=kind.profile or "",
        replicas=kind.replicas,
        memory=gib(kind.memory_mib),
        parts=_("%(parts)s of 7") % {"parts": sevenths(kind.compute)},
        free_now=found.free_now,
        after_change=found.after_change,
        is_capped=found.is_capped,
        url=f"{reverse('gpu:request-new')}?{urlencode(wanted)}",
    )
