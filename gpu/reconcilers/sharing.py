"""Changing how a node's GPUs are shared, through the device plugin's configuration."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu.executors import device_plugin, verification
from gpu.executors.device_plugin import CONFIG_LABEL, Book, Configuration, ConfigurationError
from gpu.models import GpuModel, Operation
from gpu.objects import NodeObject, PodObject
from gpu.planning.node_sharing import NodeSharing, changed_resources
from gpu.planning.observed import ObservedNode
from gpu.planning.resources import differences, node_resources
from gpu.ports import CONFIG_MAP, NODE, POD, Manifest, NotFoundError, Scope
from gpu.reconcilers import applying, probing, proving
from gpu.reconcilers.looks import Again, Context, Fail, Go, Look, Wait
from gpu.services import operations

State = Operation.State

_POLL_S = 1.0
_MOST_PODS = 64
_MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
_REPLICAS_LABEL = "nvidia.com/gpu.replicas"


def check(context: Context) -> Look:
    """See that the node is as its configuration says, and remember what it was before."""
    node = context.node()
    if not node.is_ready:
        return Fail(
            "node_not_ready",
            _("%(node)s is not ready; nothing was changed."),
            {"node": node.name},
        )
    if not any(_reads_configurations(item) for item in _plugin_manifests(context)):
        return Fail(
            "no_config_manager",
            _(
                "The device plugin on %(node)s reads no ConfigMap %(name)s, so a label would change"
                " nothing; install its chart with config.name=%(name)s."
            ),
            {"node": node.name, "name": settings.DEVICE_PLUGIN_CONFIGMAP},
        )
    observed = probing.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    devices = node_resources(gpu.setup() for gpu in observed.gpus)
    try:
        present = present_configuration(read_book(context), node)
    except ConfigurationError as error:
        return Fail(
            "configuration_unreadable",
            _(
                "The configuration %(name)s of %(node)s cannot be taken over: %(error)s; correct it"
                " by hand first."
            ),
            {"name": node.labels.get(CONFIG_LABEL, ""), "node": node.name, "error": str(error)},
        )
    return _checked(context, node, present, devices)


def _checked(
    context: Context, node: NodeObject, present: Configuration, devices: dict[str, int]
) -> Look:
    operation = context.operation
    desired = NodeSharing.from_json(operation.desired["sharing"])
    desired.check()
    before = present.sharing.advertised(devices)
    unequal = differences(before, dict(node.allocatable))
    if unequal:
        operations.remember(operation, open_probe=None)
        words = ", ".join(f"{key} {have} of {want}" for key, (want, have) in unequal.items())
        message = _("The node does not offer what its configuration says: %(what)s.")
        return Wait(_POLL_S, message, {"what": words})
    label = node.labels.get(CONFIG_LABEL, "")
    if operation.previous is None:
        previous = {"sharing": present.sharing.to_json(), "config": label}
        operations.set_fact(operation, previous=previous)
    touched = changed_resources(present.sharing, desired, devices)
    target, text = _target(context, present, desired)
    operations.remember(
        operation,
        open_probe=None,
        devices=devices,
        changed=sorted(touched),
        touched_resources=sorted(
            {way.name_of(key) for key in touched for way in (present.sharing, desired)}
        ),
        expected_before=before,
        expected=desired.advertised(devices),
        previous_label=label,
        target_label=target,
        entry=text,
    )
    evidence = {"desired": {"sharing": present.sharing.to_json()}, "config": label or _DEFAULT}
    return Go(State.CORDONING, evidence)


_DEFAULT = device_plugin.DEFAULT_ENTRY


def apply(context: Context) -> Look:
    """Close keys about to appear, add the configuration, move the label; one write at a time."""
    if not context.recall("keys_closed"):
        names = set(context.recall("expected")) - set(context.recall("expected_before"))
        models = GpuModel.objects.filter(
            gpus__node_id=context.operation.node_id, gpus__is_present=True
        )
        return applying.close_keys(context, models.distinct(), names)
    if not context.recall("has_written"):
        operations.remember(context.operation, has_written=True)
    text = context.recall("entry")
    if text is not None:
        book = read_book(context)
        if book.data.get(device_plugin.entry_name(text)) != text:
            context.cluster.apply(_with_entry(context, book, text))
            return Again()
    return move_label(
        context,
        source=context.recall("previous_label"),
        target=context.recall("target_label"),
        then=State.RESTARTING_PLUGIN,
    )


def move_label(context: Context, *, source: str, target: str, then: str) -> Look:
    """Move the node from one configuration to another; somebody else's choice stops it."""
    node = context.node()
    label = node.labels.get(CONFIG_LABEL, "")
    if label == target:
        return Go(then, {"config": target or _DEFAULT})
    if label != source:
        return Fail(
            "label_moved",
            _("Somebody else gave %(node)s the configuration %(name)s meanwhile."),
            {"node": node.name, "name": label or _DEFAULT},
        )
    metadata = {
        "labels": {CONFIG_LABEL: target or None},
        "resourceVersion": node.resource_version,
    }
    context.cluster.patch(NODE, node.name, {"metadata": metadata})
    return Again()


def verify(context: Context) -> Look:
    """Let as many Pods as there are shares look, on the changed resources; judge what they saw."""
    desired = NodeSharing.from_json(context.operation.desired["sharing"])
    devices: dict[str, int] = context.recall("devices")
    changed: list[str] = context.recall("changed")
    plan = context.recall("verify")
    if plan is None:
        plan = _plan({desired.name_of(key): context.recall("expected") for key in changed})
        operations.remember(context.operation, verify=plan)
    seen = proving.look_through_pods(context, plan)
    if not isinstance(seen, proving.Seen):
        return seen
    problem = verification.sharing_problem(
        seen.rows,
        {desired.name_of(key): desired.shares_of(key) for key in changed},
        {desired.name_of(key): devices[key] for key in changed},
    )
    # The labels of GPU Feature Discovery are late, so they are told and never waited for.
    late = {"label_replicas": context.node().labels.get(_REPLICAS_LABEL, "")}
    return proving.conclude(context, seen, problem, late)


def read_book(context: Context) -> Book:
    """Return the plugin's ConfigMap; an empty one where there is none."""
    name, space = settings.DEVICE_PLUGIN_CONFIGMAP, settings.DEVICE_PLUGIN_NAMESPACE
    try:
        return Book.from_manifest(context.cluster.read(CONFIG_MAP, name, space))
    except NotFoundError:
        return Book(name, space)


def present_configuration(book: Book, node: NodeObject) -> Configuration:
    """Return the configuration that the node has; `ConfigurationError` where it is not readable."""
    name = device_plugin.active_entry(book.data, node.labels.get(CONFIG_LABEL, ""))
    if name is None:
        strategy = node.labels.get(_MIG_STRATEGY_LABEL, "")
        return Configuration(NodeSharing(), device_plugin.plain_flags(strategy))
    return device_plugin.read_configuration(book.data[name])


def _target(
    context: Context, present: Configuration, desired: NodeSharing
) -> tuple[str, str | None]:
    """Return the label to move to, and the content to add first; none where it is there already.

    An undo goes back to the very configuration of before, if that still says what it said.
    """
    wanted: str | None = context.operation.desired.get("config")
    if wanted is not None:
        book = read_book(context)
        name = device_plugin.active_entry(book.data, wanted)
        if wanted in {"", name} and name is not None:
            try:
                if device_plugin.read_configuration(book.data[name]).sharing == desired:
                    return wanted, None
            except ConfigurationError:
                pass
    text = present.with_sharing(desired).to_text()
    return device_plugin.entry_name(text), text


def _with_entry(context: Context, book: Book, text: str) -> Manifest:
    present = book.data.get(device_plugin.active_entry(book.data, "") or "", "")
    flags: Mapping[str, Any] = {}
    if not present:
        flags = device_plugin.read_configuration(text).flags
    default = device_plugin.default_text(book.data, flags)
    return book.with_entry(text, in_use=_in_use(context), default=default)


def _in_use(context: Context) -> set[str]:
    """Return every configuration that a node has, or that a change under way leaves or brings."""
    nodes = context.cluster.list(NODE).items
    names = {(item["metadata"].get("labels") or {}).get(CONFIG_LABEL, "") for item in nodes}
    changes = Operation.objects.under_way().filter(executor=Operation.Executor.DEVICE_PLUGIN)
    for memory in changes.values_list("memory", flat=True):
        names |= {memory.get("previous_label") or "", memory.get("target_label") or ""}
    return names


def _plan(offered: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return how many Pods are to look at each resource: one a share, as far as a node holds."""
    left = _MOST_PODS
    plan: dict[str, int] = {}
    for name, counts in sorted(offered.items()):
        plan[name] = min(counts.get(name, 0), left)
        left -= plan[name]
    return plan


def _plugin_manifests(context: Context) -> tuple[Manifest, ...]:
    scope = Scope(
        settings.DEVICE_PLUGIN_NAMESPACE,
        label_selector=settings.DEVICE_PLUGIN_SELECTOR,
        field_selector=f"spec.nodeName={context.operation.node.name}",
    )
    return context.cluster.list(POD, scope).items


def _reads_configurations(manifest: Manifest) -> bool:
    if PodObject.from_manifest(manifest).is_finished:
        return False
    volumes = manifest["spec"].get("volumes") or ()
    sources = [v.get("configMap") or {} for v in volumes]
    sources += [
        s.get("configMap") or {}
        for v in volumes
        for s in (v.get("projected") or {}).get("sources") or ()
    ]
    return any(s.get("name") == settings.DEVICE_PLUGIN_CONFIGMAP for s in sources)
