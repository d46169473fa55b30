"""Taking a GPU out of service and back: it is neither offered nor fitted meanwhile."""

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from gpu import dispatch
from gpu.models import Gpu
from gpu.services import pools
from gpu.services.errors import ServiceError, WrongStateError
from portal.audit import services as audit
from tenants.models import User


@transaction.atomic(durable=True)
def take_out_of_service(gpu_id: int, *, note: str, actor: User) -> None:
    """Offer a GPU to nobody from now on; what runs on it and what is granted stays."""
    note = note.strip()
    if not note:
        raise ServiceError(_("Say why, so that others know: a few words."), field="note")
    _set(gpu_id, is_in_service=False, note=note, actor=actor)


@transaction.atomic(durable=True)
def put_back_in_service(gpu_id: int, *, actor: User) -> None:
    """Offer a GPU again."""
    _set(gpu_id, is_in_service=True, note="", actor=actor)


def _set(gpu_id: int, *, is_in_service: bool, note: str, actor: User) -> None:
    gpu = Gpu.objects.select_for_update(of=("self",)).select_related("node").get(pk=gpu_id)
    if gpu.is_in_service == is_in_service:
        raise WrongStateError(
            _("This GPU is in service already.")
            if is_in_service
            else _("This GPU is out of service already.")
        )
    before = gpu.service_note
    gpu.is_in_service, gpu.service_note = is_in_service, note
    gpu.save(update_fields=["is_in_service", "service_note"])
    audit.record(
        "gpu.in_service" if is_in_service else "gpu.out_of_service",
        f"node/{gpu.node.name}",
        actor=actor,
        reason=note or before,
        gpu=gpu.index,
    )
    pools.refresh_pools()
    dispatch.wake(dispatch.RECONCILE_WAITING)
    dispatch.announce("gpus", f"gpu-{gpu.pk}", f"node-{gpu.node.name}")
