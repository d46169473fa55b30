"""Taking over what a look at a node's GPUs found."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import NumericRange

from gpu import dispatch
from gpu.models import Gpu, GpuInstance, GpuModel, Node, Operation
from gpu.planning.catalogue import NotMigCapableError, UnknownGpuError, find_table
from gpu.planning.errors import PlanningError
from gpu.planning.observed import ObservedGpu, ObservedNode
from gpu.planning.tables import GpuTable, table_from_json, table_to_json
from gpu.services import drift, pools
from gpu.services.sharing import shown_sharing


@transaction.atomic(durable=True)
def record_observation(
    node_id: int, observed: ObservedNode, *, now: datetime, is_settled: bool
) -> None:
    """Replace what is known of a node's GPUs and instances.

    Before a change has been verified (`is_settled` false) pools are left as they are, so that
    nobody is granted a device that has not been proved.
    """
    node = Node.objects.select_for_update().get(pk=node_id)
    uuids = [gpu.uuid for gpu in observed.gpus]
    Gpu.objects.filter(node=node).exclude(uuid__in=uuids).update(is_present=False)
    for gpu in observed.gpus:
        _record_gpu(node, gpu, now)
    is_new_boot = node.probed_boot_id not in {"", node.boot_id}
    node.probed_at = now
    if is_settled:  # a reboot in the middle of an operation is looked at once more after it
        node.probed_boot_id = node.boot_id
    node.probe_error = ""
    node.driver_version = observed.gpus[0].driver_version if observed.gpus else ""
    node.save(update_fields=["probed_at", "probed_boot_id", "probe_error", "driver_version"])
    if is_settled:
        drift.compare_with_desired(node, is_new_boot=is_new_boot, now=now)
        pools.refresh_pools()
    dispatch.announce("gpus", f"node-{node.name}", *_gpu_topics(node))


def record_probe_error(node_id: int, message: str, *, now: datetime) -> None:
    """Keep why a node's GPUs could not be read; it is tried again later."""
    Node.objects.filter(pk=node_id).update(probe_error=message[:2000], probe_requested_at=now)
    dispatch.announce("nodes")


def product_of(name: str) -> str:
    """Return the GPU product as GFD labels it, from the name that nvidia-smi prints."""
    return "-".join(name.split())


def _gpu_topics(node: Node) -> list[str]:
    return [f"gpu-{pk}" for pk in node.gpus.values_list("pk", flat=True)]


def _record_gpu(node: Node, gpu: ObservedGpu, now: datetime) -> None:
    row, _created = Gpu.objects.update_or_create(
        uuid=gpu.uuid,
        defaults={
            "node": node,
            "index": gpu.index,
            "model": _record_model(gpu),
            "memory_mib": gpu.memory_mib,
            "is_mig_enabled": gpu.is_mig_enabled,
            **_sharing(node, gpu),
            "is_present": True,
            "observed_at": now,
        },
    )
    row.instances.all().delete()
    table = gpu.table or _stored_table(row.model)
    GpuInstance.objects.bulk_create(
        GpuInstance(
            gpu=row,
            profile=item.profile,
            memory_slices=NumericRange(item.placement.start, item.placement.end),
            resource_name=f"nvidia.com/mig-{item.profile}".replace("+", "."),
            memory_mib=_memory(table, item.profile),
            gi_id=item.gi_id,
            ci_id=item.ci_ids[0] if item.ci_ids else None,
            mig_uuid=item.mig_uuid,
        )
        for item in gpu.instances
    )


def _sharing(node: Node, gpu: ObservedGpu) -> dict[str, Any]:
    """Return what the row is to say of sharing; nothing new while that is being changed."""
    changes = Operation.objects.under_way().filter(node=node)
    if changes.filter(executor=Operation.Executor.DEVICE_PLUGIN).exists():
        return {}
    sharing, replicas = shown_sharing(node, is_mig_enabled=gpu.is_mig_enabled)
    return {"sharing": sharing, "replicas": replicas}


def _record_model(gpu: ObservedGpu) -> GpuModel:
    table, source = _table(gpu)
    model, _created = GpuModel.objects.update_or_create(
        product=product_of(gpu.name),
        defaults={
            "name": gpu.name.removeprefix("NVIDIA "),
            "memory_mib": gpu.memory_mib,
            "table": table_to_json(table) if table else None,
            "table_source": source,
        },
    )
    return model


def _table(gpu: ObservedGpu) -> tuple[GpuTable | None, str]:
    if gpu.table is not None:
        return gpu.table, GpuModel.TableSource.DRIVER
    known = GpuModel.objects.filter(
        product=product_of(gpu.name), table_source=GpuModel.TableSource.DRIVER
    ).first()
    if known is not None:
        return _stored_table(known), GpuModel.TableSource.DRIVER
    try:
        return find_table(gpu.name, memory_mib=gpu.memory_mib), GpuModel.TableSource.CATALOGUE
    except (NotMigCapableError, UnknownGpuError):
        return None, GpuModel.TableSource.NONE


def _stored_table(model: GpuModel) -> GpuTable | None:
    return table_from_json(model.table) if model.table else None


def _memory(table: GpuTable | None, profile: str) -> int | None:
    try:
        return table.profile(profile).memory_mib if table else None
    except PlanningError:
        return None
