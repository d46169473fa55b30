"""Before anything is changed: check, cordon, and see that nobody is in the way."""

from collections.abc import Iterable

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu.executors.nvidia_smi import Target, lines_to, touched_devices, touched_resources
from gpu.manifests import CORDONED_BY
from gpu.models import Gpu, Operation
from gpu.objects import PodObject
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.observed import ObservedNode
from gpu.planning.resources import node_resources
from gpu.ports import NODE, POD, BlockedError, Scope
from gpu.reconcilers import probing
from gpu.reconcilers.looks import Context, Fail, Go, Look, Wait
from gpu.selectors.sharing import proved_sharing, sharing_of
from gpu.selectors.tables import table_of
from gpu.services import operations

State = Operation.State

_POLL_S = 1.0
_PATIENT_POLL_S = 5.0


def check(context: Context) -> Look:
    """See that the node is as the plan expects, and remember what it was before."""
    operation = context.operation
    node = context.node()
    if not node.is_ready:
        return Fail(
            "node_not_ready",
            _("%(node)s is not ready; nothing was changed."),
            {"node": node.name},
        )
    observed = probing.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    gpu = observed.gpu(operation.changed_gpu.uuid)
    if gpu is None:
        return Fail(
            "gpu_gone",
            _("%(node)s does not have GPU %(gpu)s any more."),
            {"node": node.name, "gpu": operation.changed_gpu.uuid},
        )
    target = Target.from_json(operation.desired)
    lines_to(gpu, gpu.table or table_of(operation.changed_gpu.model), target)
    if operation.previous is None:
        operations.set_fact(operation, previous=Target.of(gpu).to_json())
    operations.remember(
        operation,
        open_probe=None,
        touched=sorted(touched_devices(gpu, target)),
        touched_resources=sorted(touched_resources(gpu, target)),
        expected_before=expected_resources(observed),
    )
    return Go(State.CORDONING, {"layout": Target.of(gpu).to_json(), "driver": gpu.driver_version})


def cordon(context: Context) -> Look:
    """Keep the scheduler away from the node; remember whether it was schedulable before."""
    operation = context.operation
    node = context.node()
    mark = f"operation-{operation.pk}"
    if operation.was_schedulable is None:
        operations.set_fact(operation, was_schedulable=node.is_schedulable)
    if node.is_schedulable or node.annotations.get(CORDONED_BY) != mark:
        body = {
            "metadata": {
                "annotations": {CORDONED_BY: mark},
                "resourceVersion": node.resource_version,
            },
            "spec": {"unschedulable": True},
        }
        context.cluster.patch(NODE, node.name, body)
    return Go(State.DRAINING, {"was_schedulable": operation.was_schedulable})


def drain(context: Context) -> Look:
    """Wait for the Pods in the way, or evict those that the approved preview named."""
    operation = context.operation
    in_the_way = pods_in_the_way(context)
    names = ", ".join(pod.key for pod in in_the_way)
    if not in_the_way:
        return Go(State.APPLYING, {"pods_in_the_way": []})
    if operation.pods_in_the_way == Operation.PodsInTheWay.WAIT:
        return Wait(_PATIENT_POLL_S, _("Waiting until these Pods end: %(pods)s."), {"pods": names})
    named = set(operation.named_pods)
    strangers = [pod.key for pod in in_the_way if f"{pod.key}/{pod.uid}" not in named]
    if strangers:
        return Fail(
            "pod_came_since",
            _(
                "Pods that the preview did not name are in the way: %(pods)s. None of them was"
                " evicted; look at the preview again."
            ),
            {"pods": ", ".join(strangers)},
        )
    return _evict(context, in_the_way)


def pods_in_the_way(context: Context) -> list[PodObject]:
    """Return the Pods that hold, or where the cluster does not tell may hold, what has to go."""
    # A change of sharing touches every device of its resources, whichever a Pod holds.
    touched = None if context.operation.gpu_id is None else set(context.recall("touched") or ())
    resources = set(context.recall("touched_resources") or ())
    scope = Scope(field_selector=f"spec.nodeName={context.operation.node.name}")
    pods = [PodObject.from_manifest(item) for item in context.cluster.list(POD, scope).items]
    return [
        pod
        for pod in pods
        if pod.resources
        and not pod.is_finished
        and pod.namespace != settings.SYSTEM_NAMESPACE
        and _holds(pod, touched, resources)
    ]


def expected_resources(observed: ObservedNode) -> dict[str, int]:
    """Return what the node offers for what is on its GPUs and how they are shared."""
    uuids = [gpu.uuid for gpu in observed.gpus]
    rows = list(Gpu.objects.filter(uuid__in=uuids).select_related("node"))
    sharing = sharing_of(rows[0].node) if rows else NodeSharing()
    if sharing.replicas or (rows and proved_sharing(rows[0].node)):
        return sharing.advertised(node_resources(gpu.setup() for gpu in observed.gpus))
    replicas = {row.uuid: row.replicas for row in rows}
    return node_resources(gpu.setup(replicas=replicas.get(gpu.uuid, 1)) for gpu in observed.gpus)


def _holds(pod: PodObject, touched: set[str] | None, resources: set[str]) -> bool:
    if pod.devices is None or touched is None:
        return bool(resources & set(pod.resources))
    held = {device.split("::")[0] for ids in pod.devices.values() for device in ids}
    return bool(held & touched)


def _evict(context: Context, pods: Iterable[PodObject]) -> Look:
    held_back: list[str] = []
    leaving: list[str] = []
    for pod in pods:
        leaving.append(pod.key)
        if pod.is_deleting:
            continue
        try:
            context.cluster.evict(pod.name, pod.namespace)
        except BlockedError:
            held_back.append(pod.key)
    if held_back:
        return Wait(
            _PATIENT_POLL_S,
            _("A disruption budget keeps these Pods for now: %(pods)s."),
            {"pods": ", ".join(held_back)},
        )
    return Wait(
        _POLL_S,
        _("Evicted; waiting until they have gone: %(pods)s."),
        {"pods": ", ".join(leaving)},
    )
