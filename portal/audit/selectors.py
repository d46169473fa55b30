"""Reading the audit trail."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.db import models
from django.db.models import Q, QuerySet
from django.utils import timezone

from portal.audit.models import AuditEvent


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What of the trail is wanted; empty means all. Days are whole days of the site's zone."""

    actor: str = ""
    verb: str = ""
    target: str = ""
    since: date | None = None
    until: date | None = None


def audit_events(wanted: AuditFilter) -> QuerySet[AuditEvent]:
    """Return matching events, newest first; nothing but their own columns may be read."""
    conditions = Q()
    if wanted.actor:
        conditions &= Q(actor_label__icontains=wanted.actor)
    if wanted.verb:
        conditions &= Q(verb=wanted.verb)
    if wanted.target:
        conditions &= Q(target__icontains=wanted.target)
    if wanted.since:
        conditions &= Q(at__gte=_start_of(wanted.since))
    if wanted.until:
        conditions &= Q(at__lt=_start_of(wanted.until + timedelta(days=1)))
    return AuditEvent.objects.filter(conditions).fetch_mode(models.FETCH_RAISE)


def _start_of(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))
