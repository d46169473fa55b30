"""Changing the GPU: plan from a fresh look, run one script, look again, until nothing is left."""

from collections.abc import Iterable

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gpu.executors import node_jobs, scripts
from gpu.executors.nvidia_smi import Target, lines_to
from gpu.models import GpuModel, Operation
from gpu.planning.observed import ObservedGpu, ObservedNode
from gpu.reconcilers import namespaces
from gpu.reconcilers import probing as looking
from gpu.reconcilers.looks import Again, Context, Fail, Go, Look, Wait, hostname
from gpu.reconcilers.preparing import expected_resources
from gpu.selectors.tables import table_of
from gpu.services import observations, operations
from gpu.services.allocations import declare_keys
from tenants.models import Tenant

State = Operation.State

_POLL_S = 0.5
_MAX_APPLIES = 3


def apply(context: Context) -> Look:
    """Bring the GPU to the wanted layout."""
    if not context.recall("keys_closed"):
        return close_new_keys(context)
    return bring_to(context, Target.from_json(context.operation.desired), State.RESTARTING_PLUGIN)


def bring_to(context: Context, target: Target, then: str) -> Look:
    """Do what is left to do for a target, by one Job at a time; `then` when nothing is left."""
    observed = looking.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    operation = context.operation
    gpu = observed.gpu(operation.changed_gpu.uuid)
    if gpu is None:
        return Fail(
            "gpu_gone",
            _("%(node)s does not have GPU %(gpu)s any more."),
            {"node": operation.node.name, "gpu": operation.changed_gpu.uuid},
        )
    lines = lines_to(gpu, gpu.table or table_of(operation.changed_gpu.model), target)
    if not lines:
        return arrived(context, observed, gpu, then)
    return _run(context, lines)


def _run(context: Context, lines: tuple[scripts.Line, ...]) -> Look:
    number = context.recall("open_apply")
    if number is None:
        number = (context.recall("applies") or 0) + 1
        if number > _MAX_APPLIES * (2 if context.recall("back") else 1):
            return Fail(
                "layout_not_reached",
                _("The GPU did not take the layout although every command succeeded."),
            )
        operations.remember(context.operation, open_apply=number, applies=number, has_written=True)
    task = node_jobs.Task(
        name=context.object_name("apply", number),
        node=hostname(context.node()),
        script=scripts.apply_script(settings.NVIDIA_SMI, lines),
        labels=context.labels,
    )
    finished = node_jobs.run(context.cluster, task)
    if finished is None:
        return Wait(_POLL_S, _("Changing the GPU."))
    commands = tuple(scripts.commands_run(finished.log))
    if not finished.is_complete:
        reason = scripts.refusal(finished.log) or finished.message
        return Fail(
            "apply_refused",
            _("The driver refused: %(reason)s"),
            {"reason": reason},
            commands=commands,
        )
    operations.remember(context.operation, open_apply=None, open_probe=None)
    return Again(commands=commands)


def arrived(context: Context, observed: ObservedNode, gpu: ObservedGpu, then: str) -> Look:
    """Remember and record what is there now, before it has been proved; then go on."""
    before = {
        (profile, start)
        for profile, start in (context.operation.previous or {"instances": []})["instances"]
    }
    new = [
        {"uuid": item.mig_uuid, "profile": item.profile, "start": item.placement.start}
        for item in gpu.instances
        if (item.profile, item.placement.start) not in before
    ]
    operations.remember(
        context.operation, open_probe=None, expected=expected_resources(observed), new=new
    )
    observations.record_observation(
        context.operation.node_id, observed, now=timezone.now(), is_settled=False
    )
    devices = [
        {
            "profile": item.profile,
            "start": item.placement.start,
            "gi": item.gi_id,
            "uuid": item.mig_uuid,
        }
        for item in gpu.instances
    ]
    return Go(then, {"layout": Target.of(gpu).to_json(), "devices": devices})


def close_new_keys(context: Context) -> Look:
    """Write an explicit 0 for each key about to appear into every tenant's quota, beforehand."""
    names = {
        f"nvidia.com/mig-{profile}".replace("+", ".")
        for profile, _start in context.operation.desired["instances"]
    }
    return close_keys(context, [context.operation.changed_gpu.model], names)


def close_keys(context: Context, models: Iterable[GpuModel], names: set[str]) -> Look:
    """Declare keys for models, and write those new to the cluster into every tenant's quota as 0.

    `keys_closed` is remembered once all quotas have been written.
    """
    new = {name for model in models for name in declare_keys(model, names)}
    pending = sorted(new | set(context.recall("new_keys") or ()))
    operations.remember(context.operation, new_keys=pending)
    if pending:
        for tenant in Tenant.objects.filter(namespace_quota__isnull=False):
            try:
                namespaces.sync_namespace(tenant, cluster=context.cluster)
            except namespaces.NamespaceBusyError:
                return Wait(_POLL_S, _("Another worker is writing a tenant's quota."))
    operations.remember(context.operation, keys_closed=True)
    return Again({"new_resource_names": pending} if pending else {})
