"""Change freezes as pages show them."""

from datetime import datetime

from django.db import models
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from gpu.models import ChangeFreeze


def freezes_for_list(now: datetime) -> QuerySet[ChangeFreeze]:
    """Return freezes, those that hold first, then the newest."""
    holds = Case(
        When(lifted_at=None, ends_at__gt=now, then=Value(0)),
        default=Value(1),
        output_field=IntegerField(),
    )
    return (
        ChangeFreeze.objects.select_related("node", "created_by")
        .alias(rank=holds)
        .order_by("rank", "-created_at", "-pk")
        .fetch_mode(models.FETCH_RAISE)
    )


def freezes_on(node_id: int | None, now: datetime) -> list[ChangeFreeze]:
    """Return the freezes that hold now for a node, or with no node for all of them."""
    wanted = Q(node=None) if node_id is None else Q(node=None) | Q(node_id=node_id)
    holds = ChangeFreeze.objects.filter(wanted, lifted_at=None, ends_at__gt=now)
    return list(holds.select_related("created_by").order_by("-ends_at"))
