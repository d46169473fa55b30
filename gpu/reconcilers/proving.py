"""After the change: new devices registered, counted, seen from inside Pods; then the node back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu import manifests
from gpu.executors import verification
from gpu.manifests import CORDONED_BY
from gpu.models import Operation
from gpu.objects import PodObject
from gpu.planning.resources import differences
from gpu.ports import NODE, POD, AlreadyExistsError, NotFoundError, Scope, UnreachableError
from gpu.reconcilers.looks import Again, Context, Fail, Go, Look, Wait, hostname
from gpu.selectors.sharing import proved_sharing
from gpu.selectors.tables import table_of
from gpu.services import operations

State = Operation.State

_POLL_S = 0.5
_VERIFY_DEADLINE_S = 300


def restart_plugin(context: Context) -> Look:
    """Replace the node's device-plugin Pod, for it lists devices only when it starts."""
    return replace_plugin(context, State.AWAITING_ALLOCATABLE)


def replace_plugin(context: Context, then: str) -> Look:
    """Delete the plugin's Pods that were there at first; go on when a new one is ready."""
    pods = plugin_pods(context)
    old = context.recall("plugin_uids")
    if old is None:
        if not pods:
            return Fail(
                "no_device_plugin",
                _(
                    "No device-plugin Pod runs on %(node)s (looked for %(selector)s in %(space)s);"
                    " nothing would report the new devices."
                ),
                {
                    "node": context.operation.node.name,
                    "selector": settings.DEVICE_PLUGIN_SELECTOR,
                    "space": settings.DEVICE_PLUGIN_NAMESPACE,
                },
            )
        old = [pod.uid for pod in pods]
        operations.remember(context.operation, plugin_uids=old)
    for pod in pods:
        if pod.uid in old and not pod.is_deleting:
            context.cluster.delete(POD, pod.name, pod.namespace)
    new = [pod for pod in pods if pod.uid not in old and not pod.is_deleting]
    if any(pod.uid in old for pod in pods) or not any(pod.is_ready for pod in new):
        return Wait(_POLL_S, _("The device plugin is starting anew."))
    return Go(then, {"device_plugin_pod": new[0].key})


def await_allocatable(context: Context) -> Look:
    """Wait until the node offers exactly what its layouts say, old resources at 0 included."""
    return allocatable_reached(context, State.VERIFYING)


def allocatable_reached(context: Context, then: str) -> Look:
    """Compare allocatable with what the layouts add up to; labels are late and prove nothing."""
    node = context.node()
    expected: dict[str, int] = context.recall("expected") or {}
    unequal = differences(expected, dict(node.allocatable))
    if unequal:
        words = ", ".join(f"{key} {have} of {want}" for key, (want, have) in unequal.items())
        return Wait(
            _POLL_S, _("The node does not offer its new devices yet: %(what)s."), {"what": words}
        )
    before = context.recall("expected_before") or {}
    return Go(then, {"before": before, "after": dict(node.allocatable)})


def verify(context: Context) -> Look:
    """Start one Pod for each free device and one that asks for none; judge what they saw."""
    plan = context.recall("verify")
    if plan is None:
        plan = _free_devices(context)
        operations.remember(context.operation, verify=plan)
    seen = look_through_pods(context, plan)
    if not isinstance(seen, Seen):
        return seen
    table = table_of(context.operation.changed_gpu.model)
    sharing = proved_sharing(context.operation.node)
    shares = None if sharing is None else sharing.replicas
    problem = verification.problem(seen.rows, context.recall("new") or [], table, shares)
    return conclude(context, seen, problem)


@dataclass(frozen=True, slots=True)
class Seen:
    """What verification Pods saw: a line for each, and the devices seen by one that asked none."""

    names: tuple[str, ...]
    rows: list[dict[str, Any]]
    blind: list[str]

    @property
    def evidence(self) -> dict[str, Any]:
        """Return what is kept and shown."""
        return {"pods": self.rows, "pod_without_request_sees": self.blind}


def look_through_pods(context: Context, plan: dict[str, int]) -> Seen | Wait | Fail:
    """Start so many Pods for each resource of a plan, and one for none; tell once all looked."""
    pods = ensure_pods(context, plan)
    failed = [pod for pod in pods.values() if pod.is_finished]
    if failed:
        return Fail(
            "verification_failed",
            _("Verification Pod %(pod)s ended before it was read: %(reason)s"),
            {"pod": failed[0].name, "reason": failed[0].message or "no reason given"},
        )
    logs = {name: log_of(context, pod) for name, pod in pods.items()}
    done = sum(manifests.VERIFIED in log for log in logs.values())
    if done < len(pods):
        return Wait(
            _POLL_S,
            _("%(done)s of %(all)s verification Pods have looked."),
            {"done": done, "all": len(pods)},
        )
    rows = [
        verification.row(name, next(iter(pod.resources)), logs[name])
        for name, pod in pods.items()
        if pod.resources
    ]
    blind = [
        device.uuid
        for name, pod in pods.items()
        if not pod.resources
        for device in verification.devices_seen(logs[name])
    ]
    return Seen(tuple(pods), rows, blind)


def conclude(
    context: Context,
    seen: Seen,
    problem: verification.Problem | None,
    more: Mapping[str, Any] | None = None,
) -> Look:
    """Fail with what is wrong, or remove the Pods and go on, with the evidence in both cases."""
    evidence = {**seen.evidence, **(more or {})}
    if problem:
        message, params = problem
        return Fail("verification_failed", message, params, evidence)
    for name in seen.names:
        context.cluster.delete(POD, name, settings.SYSTEM_NAMESPACE, grace_s=0)
    return Go(State.UNCORDONING, evidence)


def uncordon(context: Context) -> Look:
    """Give the node back to the scheduler, if it was schedulable before."""
    return give_back(context, State.DONE)


def give_back(context: Context, then: str) -> Look:
    """Take our cordon away; a node that somebody had cordoned before stays cordoned."""
    node = context.node()
    if node.annotations.get(CORDONED_BY) == f"operation-{context.operation.pk}":
        body: dict[str, Any] = {
            "metadata": {
                "annotations": {CORDONED_BY: None},
                "resourceVersion": node.resource_version,
            },
        }
        if context.operation.was_schedulable:
            body["spec"] = {"unschedulable": False}
        context.cluster.patch(NODE, node.name, body)
        return Again()
    return Go(then, {"schedulable": node.is_schedulable})


def plugin_pods(context: Context) -> list[PodObject]:
    """Return the device plugin's Pods on the node, and what the chart runs beside it."""
    scope = Scope(
        settings.DEVICE_PLUGIN_NAMESPACE,
        label_selector=settings.DEVICE_PLUGIN_SELECTOR,
        field_selector=f"spec.nodeName={context.operation.node.name}",
    )
    return [PodObject.from_manifest(item) for item in context.cluster.list(POD, scope).items]


def _free_devices(context: Context) -> dict[str, int]:
    """Count the free devices of each resource that the target GPU now offers."""
    node = context.node()
    names = {
        f"nvidia.com/mig-{profile}".replace("+", ".")
        for profile, _start in context.operation.desired["instances"]
    }
    if not context.operation.desired["mig"]:
        names = {"nvidia.com/gpu"}
    scope = Scope(field_selector=f"spec.nodeName={node.name}")
    used: dict[str, int] = {}
    for item in context.cluster.list(POD, scope).items:
        pod = PodObject.from_manifest(item)
        if not pod.is_finished:
            for key, count in pod.resources.items():
                used[key] = used.get(key, 0) + count
    return {
        name: max(0, node.allocatable.get(name, 0) - used.get(name, 0)) for name in sorted(names)
    }


def ensure_pods(context: Context, plan: dict[str, int]) -> dict[str, PodObject]:
    """Return the verification Pods of a plan, starting those that are missing, by name."""
    wanted: dict[str, str | None] = {context.object_name("verify", "none"): None}
    for resource, count in plan.items():
        short = resource.split("/")[1]
        wanted |= {context.object_name("verify", short, n): resource for n in range(count)}
    found: dict[str, PodObject] = {}
    node = hostname(context.node())
    for name, asked in wanted.items():
        try:
            manifest = context.cluster.read(POD, name, settings.SYSTEM_NAMESPACE)
        except NotFoundError:
            manifest = _start_pod(context, name, node, asked)
        found[name] = PodObject.from_manifest(manifest)
    return found


def _start_pod(context: Context, name: str, node: str, resource: str | None) -> dict[str, Any]:
    body = manifests.verification_pod(
        manifests.Probe(
            name=name,
            namespace=settings.SYSTEM_NAMESPACE,
            node=node,
            image=settings.VERIFY_IMAGE,
            labels=context.labels,
            resource_name=resource,
            deadline_s=_VERIFY_DEADLINE_S,
        )
    )
    try:
        return context.cluster.create(body)
    except AlreadyExistsError:
        return context.cluster.read(POD, name, settings.SYSTEM_NAMESPACE)


def log_of(context: Context, pod: PodObject) -> str:
    """Return what a verification Pod has printed; nothing before it has started."""
    try:
        return context.cluster.read_log(pod.name, pod.namespace)
    except UnreachableError:
        return ""
