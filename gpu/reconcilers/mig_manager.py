"""Before mig-manager is asked for anything: is it there, idle, ours to ask, and able to do this."""

from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu.executors import mig_manager as executor
from gpu.executors.mig_manager import BUSY_STATES, ConfigMapError
from gpu.executors.nvidia_smi import Target
from gpu.manifests import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from gpu.models import Gpu, Operation
from gpu.objects import NodeObject, PodObject
from gpu.planning.landings import landings, profiles_of
from gpu.planning.observed import ObservedGpu, ObservedNode
from gpu.planning.tables import GpuTable
from gpu.ports import CONFIG_MAP, POD, Manifest, NotFoundError, Scope
from gpu.reconcilers import probing, proving
from gpu.reconcilers.looks import Context, Fail, Go, Look
from gpu.reconcilers.preparing import expected_resources
from gpu.selectors.tables import table_of
from gpu.services import operations

State = Operation.State


def check(context: Context) -> Look:
    """See that mig-manager and the node are as the plan expects; remember what was before."""
    node = context.node()
    problem = _node_problem(node) or _manager_problem(context)
    if problem is not None:
        return problem
    observed = probing.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    gpu = observed.gpu(context.operation.changed_gpu.uuid)
    if gpu is None:
        return Fail(
            "gpu_gone",
            _("%(node)s does not have GPU %(gpu)s any more."),
            {"node": node.name, "gpu": context.operation.changed_gpu.uuid},
        )
    try:
        configs = executor.read_configs(read_config_map(context))
    except ConfigMapError as error:
        return Fail("mig_config_map", "%(error)s", {"error": str(error)})
    label = node.labels.get(MIG_CONFIG_LABEL, "")
    named = configs.get(label)
    if named is not None and not executor.can_be_judged(named):
        named = None
    if named is not None and not executor.agrees(named, observed):
        return _disagreement(node, label)
    return _plan(context, observed, gpu, named)


def manager_pods(context: Context) -> list[Manifest]:
    """Return the mig-manager's Pods on the node; those that are going are among them."""
    scope = Scope(
        settings.MIG_MANAGER_NAMESPACE,
        label_selector=settings.MIG_MANAGER_SELECTOR,
        field_selector=f"spec.nodeName={context.operation.node.name}",
    )
    return list(context.cluster.list(POD, scope).items)


def read_config_map(context: Context) -> Manifest | None:
    """Return our mig-parted ConfigMap; None while there is none."""
    name, space = settings.MIG_CONFIG_MAP, settings.MIG_MANAGER_NAMESPACE
    try:
        return context.cluster.read(CONFIG_MAP, name, space)
    except NotFoundError:
        return None


def _node_problem(node: NodeObject) -> Fail | None:
    if not node.is_ready:
        return Fail(
            "node_not_ready", _("%(node)s is not ready; nothing was changed."), {"node": node.name}
        )
    state = node.labels.get(MIG_STATE_LABEL, "")
    if state in BUSY_STATES:
        return Fail(
            "mig_manager_busy",
            _(
                "mig-manager on %(node)s says %(state)s: somebody else changes the node, or an"
                " earlier change hangs. Nothing was written. Try again when it has ended; if it"
                " never does, delete its Pod there."
            ),
            {"node": node.name, "state": state},
        )
    return None


def _manager_problem(context: Context) -> Fail | None:
    pods = manager_pods(context)
    ready = [pod for pod in pods if PodObject.from_manifest(pod).is_ready]
    params = {
        "node": context.operation.node.name,
        "selector": settings.MIG_MANAGER_SELECTOR,
        "space": settings.MIG_MANAGER_NAMESPACE,
        "wanted": settings.MIG_CONFIG_MAP,
    }
    if not ready:
        return Fail(
            "no_mig_manager",
            _("No mig-manager Pod is ready on %(node)s (looked for %(selector)s in %(space)s)."),
            params,
        )
    found = executor.mounted_config_map(ready[0])
    if found != settings.MIG_CONFIG_MAP:
        return Fail(
            "mig_config_map",
            _(
                "mig-manager reads the ConfigMap %(found)s, not ours. Set migManager.config.name of"
                " the ClusterPolicy to %(wanted)s and make a ConfigMap of that name in %(space)s."
            ),
            {**params, "found": found or f"{context.operation.node.name}-mig-config"},
        )
    return None


def _disagreement(node: NodeObject, label: str) -> Fail:
    return Fail(
        "mig_label_disagrees",
        _(
            "The label of %(node)s says %(label)s, but its GPUs are not so: somebody changed them"
            " past mig-manager, or two changes ran into each other. Delete mig-manager's Pod there,"
            " so that it applies its label, or set the label to what is there; then try again."
        ),
        {"node": node.name, "label": label},
    )


def _plan(
    context: Context, observed: ObservedNode, gpu: ObservedGpu, named: executor.Entries | None
) -> Look:
    operation = context.operation
    target, tables = Target.from_json(operation.desired), tables_of(observed)
    config = executor.config_for(observed, tables, {gpu.uuid: target})
    others = executor.require_others_kept(observed, tables, gpu.uuid, target)
    holders = _holders(context, others)
    if holders:
        return Fail(
            "mode_change_clears_others",
            _(
                "Switching MIG mode of this GPU makes mig-manager clear the node's other GPUs, and"
                " these Pods hold their instances: %(pods)s. Nothing was changed; wait until they"
                " have ended."
            ),
            {"pods": ", ".join(holders)},
        )
    if operation.previous is None:
        operations.set_fact(operation, previous=Target.of(gpu).to_json())
    label = context.node().labels.get(MIG_CONFIG_LABEL)
    operations.remember(
        operation,
        open_probe=None,
        touched=sorted(executor.touched_devices(gpu, target, others)),
        touched_resources=sorted(executor.touched_resources(gpu, target, others)),
        expected_before=expected_resources(observed),
        mig_config={"name": config.name, "entries": config.entries},
        mig_back=_way_back(observed, tables, gpu, (label, named)),
        mig_can_return=_can_return(gpu, tables[gpu.uuid]),
        mig_label_before=label,
        mig_others={o.uuid: Target.of(o).to_json() for o in observed.gpus if o.uuid != gpu.uuid},
        plugins_before=[pod.uid for pod in proving.plugin_pods(context)],
    )
    evidence: dict[str, Any] = {
        "layout": Target.of(gpu).to_json(),
        "driver": gpu.driver_version,
        "mig_config_before": label or "",
    }
    return Go(State.CORDONING, evidence)


def _way_back(
    observed: ObservedNode,
    tables: dict[str, GpuTable | None],
    gpu: ObservedGpu,
    present: tuple[str | None, executor.Entries | None],
) -> dict[str, Any]:
    """Return the configuration to ask for after a failure: the present one, if it will do."""
    label, named = present
    # One that says nothing about this GPU would leave it as it will be then.
    if named is not None and executor.names(named, gpu.index):
        return {"name": label, "entries": named}
    before = executor.config_for(observed, tables, {gpu.uuid: Target.of(gpu)})
    return {"name": before.name, "entries": before.entries}


def tables_of(observed: ObservedNode) -> dict[str, GpuTable | None]:
    """Return the MIG table of each GPU by UUID: the driver's own, or what is known of its model."""
    uuids = [gpu.uuid for gpu in observed.gpus if gpu.table is None]
    rows = Gpu.objects.filter(uuid__in=uuids).select_related("model")
    known = {row.uuid: table_of(row.model) for row in rows}
    return {gpu.uuid: gpu.table or known.get(gpu.uuid) for gpu in observed.gpus}


def _can_return(gpu: ObservedGpu, table: GpuTable | None) -> bool:
    """Say whether counts can bring the present layout back, should the change fail."""
    present = frozenset(gpu.layout)
    return table is None or not present or present in landings(table, profiles_of(present))


def _holders(context: Context, gpus: tuple[ObservedGpu, ...]) -> list[str]:
    devices = {item.mig_uuid for gpu in gpus for item in gpu.instances}
    names = {
        f"nvidia.com/mig-{item.profile}".replace("+", ".") for gpu in gpus for item in gpu.instances
    }
    scope = Scope(field_selector=f"spec.nodeName={context.operation.node.name}")
    pods = [PodObject.from_manifest(item) for item in context.cluster.list(POD, scope).items]
    return [
        pod.key
        for pod in pods
        if not pod.is_finished and pod.namespace != settings.SYSTEM_NAMESPACE
        if (
            names & pod.resources.keys()
            if pod.devices is None
            else devices & {device for ids in pod.devices.values() for device in ids}
        )
    ]
