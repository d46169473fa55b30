"""Drift: a GPU whose layout is not the one that was ordered last."""

from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from gpu import dispatch
from gpu.models import Gpu, Node, Operation
from gpu.services.errors import WrongStateError
from portal.audit import services as audit
from tenants.models import User


class DriftCause(models.TextChoices):
    """Why a layout is not as ordered, as far as can be told."""

    REBOOT = "reboot", _("the node was started anew")
    FOREIGN = "foreign", _("it was changed outside of the portal")


def layout_now(gpu: Gpu) -> dict[str, Any]:
    """Return what was last seen on a GPU, in the form that operations store."""
    present = sorted(gpu.instances.all(), key=lambda item: item.start)
    pairs = [[item.profile, item.start] for item in present]
    return {"mig": gpu.is_mig_enabled, "instances": pairs if gpu.is_mig_enabled else []}


def compare_with_desired(node: Node, *, is_new_boot: bool, now: datetime) -> None:
    """Note which GPUs of a node are as ordered, in the caller's transaction.

    What is seen first counts as ordered. Nothing is judged while an operation is under way.
    """
    if Operation.objects.under_way().filter(node=node).exists():
        return
    for gpu in node.gpus.filter(is_present=True).prefetch_related("instances"):
        seen = layout_now(gpu)
        if gpu.desired_layout is None:
            gpu.desired_layout = seen
        elif _same(gpu.desired_layout, seen):
            gpu.drift_since, gpu.drift_cause = None, ""
        elif gpu.drift_since is None:
            gpu.drift_since = now
            gpu.drift_cause = DriftCause.REBOOT if is_new_boot else DriftCause.FOREIGN
            audit.record(
                "gpu.drifted",
                f"node/{node.name}",
                actor=None,
                gpu=gpu.index,
                cause=gpu.drift_cause,
                ordered=gpu.desired_layout,
                seen=seen,
            )
        else:
            continue
        gpu.save(update_fields=["desired_layout", "drift_since", "drift_cause"])


@transaction.atomic(durable=True)
def accept_layout(gpu_id: int, *, actor: User) -> None:
    """Take what is on a GPU for what was ordered."""
    gpu = Gpu.objects.select_for_update(of=("self",)).select_related("node").get(pk=gpu_id)
    if gpu.drift_since is None:
        raise WrongStateError(_("This GPU is as ordered; there is nothing to accept."))
    if Operation.objects.under_way().filter(node=gpu.node).exists():
        raise WrongStateError(_("The node is being changed; look again when that has ended."))
    seen = layout_now(gpu)
    audit.record(
        "gpu.drift_accepted",
        f"node/{gpu.node.name}",
        actor=actor,
        gpu=gpu.index,
        ordered=gpu.desired_layout,
        seen=seen,
    )
    gpu.desired_layout, gpu.drift_since, gpu.drift_cause = seen, None, ""
    gpu.save(update_fields=["desired_layout", "drift_since", "drift_cause"])
    dispatch.announce("gpus", f"gpu-{gpu.pk}", f"node-{gpu.node.name}")


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first["mig"] == second["mig"] and (
        {tuple(pair) for pair in first["instances"]}
        == {tuple(pair) for pair in second["instances"]}
    )
