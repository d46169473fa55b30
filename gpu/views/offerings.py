"""What may be asked for, and what of it is free at this moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
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
from gpu.views.amounts import compute_words, gib, gib_text
from gpu.views.isolation import Honesty, honesty_of, offering_name
from gpu.views.pages import live_token, render_page
from portal.http import PortalRequest
from tenants.permissions import Capability
from tenants.selectors import capabilities_of


@dataclass(frozen=True, slots=True)
class KindRow:
    """One line of an offering: a size on a model, and how much of it there is."""

    model: str
    name: str
    replicas: int
    memory: str
    compute: str
    free_now: int
    after_change: int
    is_capped: bool
    url: str

    @property
    def more_after_change(self) -> bool:
        """Say whether a harmless change gives more than is free now."""
        return self.after_change > self.free_now


@dataclass(frozen=True, slots=True)
class OfferingCard:
    """An offering as the page shows it."""

    offering: Offering
    name: str
    honesty: Honesty
    rows: tuple[KindRow, ...]


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
        rows=tuple(_row(item.offering, one, names) for one in found),
    )


def _row(offering: Offering, found: Availability, names: Mapping[str, str]) -> KindRow:
    kind = found.kind
    wanted = {
        "isolation": offering.isolation,
        "memory": gib_text(kind.memory_mib),
        "gpu_model": kind.product,
    }
    return KindRow(
        model=names.get(kind.product, kind.product),
        name=kind.profile or "",
        replicas=kind.replicas,
        memory=gib(kind.memory_mib),
        compute=compute_words(kind.compute),
        free_now=found.free_now,
        after_change=found.after_change,
        is_capped=found.is_capped,
        url=f"{reverse('gpu:request-new')}?{urlencode(wanted)}",
    )
