"""What researchers may ask for, and what they asked for."""

from typing import TYPE_CHECKING, Self, override

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from gpu.models.inventory import GpuModel
from tenants.models import Tenant
from tenants.permissions import Capability

if TYPE_CHECKING:
    from tenants.models import User


class Isolation(models.TextChoices):
    """How well a slice is kept apart from its neighbours."""

    ISOLATED = "isolated", _("Isolated (MIG)")
    SHARED = "shared", _("Shared (time-slicing)")
    WHOLE = "whole", _("Whole GPU")


class Offering(models.Model):
    """What a researcher may pick, on which models, for how long, and with what beside it.

    Empty CPU, memory and storage mean the slice's part of its node, by GPU memory.
    """

    name = models.CharField(_("name"), max_length=80, unique=True)
    name_zh = models.CharField(_("name in Chinese"), max_length=80, blank=True)
    isolation = models.CharField(_("isolation"), max_length=10, choices=Isolation)
    gpu_models = models.ManyToManyField(GpuModel, verbose_name=_("GPU models"), blank=True)
    max_days = models.PositiveSmallIntegerField(
        _("longest duration (days)"), default=14, validators=[MinValueValidator(1)]
    )
    max_count = models.PositiveSmallIntegerField(
        _("most at once"), default=8, validators=[MinValueValidator(1)]
    )
    needs_approval = models.BooleanField(_("needs approval"), default=True)
    cpu_milli = models.PositiveIntegerField(_("CPU (millicores)"), null=True, blank=True)
    memory_mib = models.PositiveIntegerField(_("memory (MiB)"), null=True, blank=True)
    storage_mib = models.PositiveIntegerField(_("ephemeral storage (MiB)"), null=True, blank=True)
    is_active = models.BooleanField(_("offered"), default=True)

    class Meta:
        ordering = ["isolation", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["isolation"], condition=Q(is_active=True), name="offering_one_per_isolation"
            )
        ]

    @override
    def __str__(self) -> str:
        return self.name


class SliceRequestQuerySet(models.QuerySet["SliceRequest"]):
    """Queries on slice requests."""

    def visible_to(self, user: "User") -> Self:
        """Keep what the person asked for, or what belongs to tenants that the person leads."""
        if user.may(Capability.SEE_ALL_TENANTS):
            return self
        led = Q(tenant__memberships__user=user, tenant__memberships__role="lead")
        return self.filter(Q(requester=user) | led).distinct()

    def waiting(self) -> Self:
        """Keep those that wait for room, in the order in which they are served."""
        return self.filter(state=SliceRequest.State.WAITING_FOR_ROOM).order_by("decided_at", "pk")


class SliceRequest(models.Model):
    """What somebody asked for, and how far it has come."""

    class State(models.TextChoices):
        """Where the request stands; "ending soon" is ready with an end that is near."""

        WAITING_FOR_APPROVAL = "waiting_for_approval", _("waiting for approval")
        WAITING_FOR_ROOM = "waiting_for_room", _("waiting for room")
        BEING_MADE = "being_made", _("being made")
        READY = "ready", _("ready")
        ENDED = "ended", _("ended")
        DECLINED = "declined", _("declined")
        WITHDRAWN = "withdrawn", _("withdrawn")

    OPEN_STATES = (State.WAITING_FOR_APPROVAL, State.WAITING_FOR_ROOM, State.BEING_MADE)

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="slice_requests")
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="slice_requests"
    )
    offering = models.ForeignKey(Offering, models.PROTECT, related_name="slice_requests")
    memory_mib = models.PositiveIntegerField()
    count = models.PositiveSmallIntegerField(default=1)
    days = models.PositiveSmallIntegerField()
    gpu_model = models.ForeignKey(GpuModel, models.PROTECT, null=True, related_name="+")
    purpose = models.CharField(max_length=500)
    state = models.CharField(max_length=24, choices=State, default=State.WAITING_FOR_APPROVAL)
    waiting_reason = models.CharField(max_length=60, blank=True)
    waiting_detail = models.JSONField(default=dict)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    submitted_at = models.DateTimeField(auto_now_add=True)
    state_changed_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)

    objects = SliceRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-submitted_at", "-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(count__gte=1), name="slice_request_count_positive"),
            models.CheckConstraint(condition=Q(days__gte=1), name="slice_request_days_positive"),
        ]
        indexes = [models.Index(fields=["state", "decided_at"], name="slice_request_queue")]

    @override
    def __str__(self) -> str:
        return f"request {self.pk} of {self.tenant}"

    @property
    def isolation(self) -> str:
        """Return the isolation that was asked for."""
        return self.offering.isolation

    @property
    def is_open(self) -> bool:
        """Say whether something is still to happen before the slice is ready."""
        return self.state in self.OPEN_STATES
