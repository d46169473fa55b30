"""Granted slices, and the pools of resources that they are taken from."""

from typing import override

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from gpu.models.inventory import GpuModel
from gpu.models.requests import SliceRequest
from tenants.models import Tenant


class ResourcePool(models.Model):
    """All devices of one resource name on one GPU product, and who has a right to them.

    `foreign` counts devices held in namespaces that are not ours; `reserved` counts rights whose
    devices an operation is still making; `shortfall` is what an observation took away from under
    grants (a lost GPU), so that grants never exceed what the cluster held when they were made.
    """

    model = models.ForeignKey(GpuModel, models.PROTECT, related_name="pools")
    resource_name = models.CharField(max_length=63)
    capacity = models.PositiveIntegerField(default=0)
    foreign = models.PositiveIntegerField(default=0)
    granted = models.PositiveIntegerField(default=0)
    reserved = models.PositiveIntegerField(default=0)
    shortfall = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["model", "resource_name"]
        constraints = [
            models.UniqueConstraint(fields=["model", "resource_name"], name="resource_pool_unique"),
            models.CheckConstraint(
                condition=Q(shortfall__gte=F("granted") + F("foreign") - F("capacity")),
                name="resource_pool_never_overgranted",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.resource_name} on {self.model}"

    @property
    def free(self) -> int:
        """Return how many devices nobody has a right to; never below 0."""
        return max(0, self.capacity - self.foreign - self.granted - self.reserved)


class Allocation(models.Model):
    """A right to a count of one resource on one GPU product, from a start to an end.

    Memory, CPU, storage and compute are for each of `count`; memory of the GPU in MiB, compute in
    thousandths of a seventh of a GPU. `placements` remembers what was cut for it:
    `[{"gpu": uuid, "profile": name, "start": slice}]`. `pending_changes` are the changes that are
    still to be started for it: `[{"gpu": uuid, "desired": layout}]`.
    """

    class State(models.TextChoices):
        """How far the right goes."""

        RESERVED = "reserved", _("being made")
        ACTIVE = "active", _("active")
        ENDED = "ended", _("ended")

    slice_request = models.OneToOneField(SliceRequest, models.PROTECT, related_name="allocation")
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="allocations")
    pool = models.ForeignKey(ResourcePool, models.PROTECT, related_name="allocations")
    state = models.CharField(max_length=10, choices=State)
    count = models.PositiveSmallIntegerField()
    profile = models.CharField(max_length=24, blank=True)
    memory_mib = models.PositiveIntegerField()
    compute = models.PositiveIntegerField()
    cpu_milli = models.PositiveIntegerField()
    ram_mib = models.PositiveIntegerField()
    storage_mib = models.PositiveIntegerField()
    placements = models.JSONField(default=list)
    pending_changes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    starts_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.CheckConstraint(condition=Q(count__gte=1), name="allocation_count_positive"),
            models.CheckConstraint(
                condition=~Q(state="active") | Q(starts_at__isnull=False, ends_at__isnull=False),
                name="allocation_active_has_dates",
            ),
        ]
        indexes = [models.Index(fields=["state", "ends_at"], name="allocation_state_end")]

    @override
    def __str__(self) -> str:
        return f"allocation {self.pk} of {self.tenant}"


class NamespaceQuota(models.Model):
    """The quota last written to a tenant's namespace, and whether the cluster keeps to it.

    `hard` is what was written; `problem` is empty when a Pod above each limit was refused.
    """

    tenant = models.OneToOneField(Tenant, models.CASCADE, related_name="namespace_quota")
    hard = models.JSONField(default=dict)
    written_at = models.DateTimeField(null=True)
    tested_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True)
    lease_until = models.DateTimeField(null=True)
    lease_holder = models.CharField(max_length=36, blank=True)

    class Meta:
        ordering = ["tenant"]

    @override
    def __str__(self) -> str:
        return f"quota of {self.tenant}"
