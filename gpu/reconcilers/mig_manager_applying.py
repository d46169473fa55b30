"""Asking mig-manager for a configuration and waiting for it; only the devices say that it is so.

Its state label is a hint: it carries no name of the change, an old `success` stays for a while,
`success` may come without a device, and `pending` may stay for ever.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from gpu.executors import mig_manager as executor
from gpu.executors.mig_manager import BUSY_STATES, Config, ConfigMapError
from gpu.executors.nvidia_smi import Target
from gpu.manifests import MIG_CONFIG_LABEL, MIG_STATE_LABEL, PREFIX
from gpu.models import Node, Operation
from gpu.objects import NodeObject, PodObject
from gpu.planning.observed import ObservedGpu, ObservedNode
from gpu.ports import CONFIG_MAP, NODE, POD, ClusterError
from gpu.reconcilers import applying, probing
from gpu.reconcilers.looks import Again, Context, Fail, Look, Wait
from gpu.reconcilers.mig_manager import manager_pods, read_config_map
from gpu.services import operations

State = Operation.State

_POLL_S = 0.5
_FILE_S = 2.0
_RECHECK_S = 2.0
# How long a state that was there before we wrote may still be the old one.
_STALE_S = 5.0
# How long nothing at all may come; how long `pending` may stay: it gives up after 5 minutes itself.
_SILENT_S = 60.0
_PENDING_S = 400.0
# How long devices may be missing after `success`.
_GRACE_S = 30.0
_MOST_LOG = 300


@dataclass(frozen=True, slots=True)
class Goal:
    """The configuration to ask for, and the layout of the changed GPU that it must end in."""

    config: Config
    target: Target
    then: str


def apply(context: Context) -> Look:
    """Bring the GPU to the wanted layout by asking mig-manager for it."""
    if not context.recall("keys_closed"):
        return applying.close_new_keys(context)
    target = Target.from_json(context.operation.desired)
    goal = Goal(_config(context.recall("mig_config")), target, State.RESTARTING_PLUGIN)
    return bring_to(context, goal)


def restore(context: Context, then: str) -> Look:
    """Bring the GPU back to the layout that it had, by the configuration that it had."""
    target = Target.from_json(context.operation.previous or {"mig": False, "instances": []})
    return bring_to(context, Goal(_config(context.recall("mig_back")), target, then))


def bring_to(context: Context, goal: Goal) -> Look:
    """Write the label once, then wait for the devices, with a limit for each way of hanging."""
    node = context.node()
    if context.recall("mig_written") != goal.config.name:
        return _ask(context, node, goal)
    label = node.labels.get(MIG_CONFIG_LABEL)
    if label != goal.config.name:
        if label == context.recall("mig_label_at_write"):
            return _write_label(context, node, goal)  # a worker died between the two
        return _taken(node, label)
    return _restarting(context) or _follow(context, goal, node.labels.get(MIG_STATE_LABEL, ""))


def _follow(context: Context, goal: Goal, state: str) -> Look:
    """Take the state as a hint of where to look."""
    if state in BUSY_STATES:
        return _await_pending(context)
    if state == "failed":
        return _on_failed(context, state)
    if state == "success":
        return _judge(context, goal)
    if _waited_s(context) > _SILENT_S:
        return Fail(
            "mig_manager_silent",
            _("mig-manager says nothing to the new label; look at the log of its Pod."),
            evidence={"log": _last_words(context)},
        )
    return Wait(_POLL_S, _("Waiting until mig-manager notices the new label."))


def restore_labels(context: Context) -> bool:
    """Resume the components that a mig-manager left paused; return whether there were any."""
    node = context.node()
    paused = executor.paused_labels(node.labels)
    if paused:
        labels: dict[str, str] = dict.fromkeys(paused, "true")
        _patch_labels(context, node, labels)
    return bool(paused)


def _ask(context: Context, node: NodeObject, goal: Goal) -> Look:
    """Make the configuration known, then remember the intent, then write the label."""
    is_back = bool(context.recall("back"))
    label, state = node.labels.get(MIG_CONFIG_LABEL), node.labels.get(MIG_STATE_LABEL, "")
    if state in BUSY_STATES and not is_back:
        return Wait(_POLL_S, _("mig-manager is at work for somebody else; nothing was written."))
    if label != context.recall("mig_label_before") and not is_back:
        return _taken(node, label)
    try:
        is_new = _publish(context, goal.config)
    except ConfigMapError as error:
        return Fail("mig_config_map", "%(error)s", {"error": str(error)})
    if is_new:
        return Wait(_FILE_S, _("The configuration is on its way into mig-manager's Pod."))
    # Stuck, if it is busy still: a new Pod forgets what hung and takes the present label.
    old = [pod["metadata"]["uid"] for pod in manager_pods(context)]
    operations.remember(
        context.operation,
        mig_written=goal.config.name,
        mig_label_at_write=label,
        mig_state_at_write=state,
        mig_since=timezone.now().isoformat(),
        mig_saw_pending=False,
        mig_restarted=state in BUSY_STATES,
        mig_old_pods=old if state in BUSY_STATES else None,
        open_probe=None,
        has_written=True,
    )
    # The same value again would do nothing.
    return Again() if label == goal.config.name else _write_label(context, node, goal)


def _publish(context: Context, config: Config) -> bool:
    """Put a configuration into our ConfigMap unless it is there; return whether it was not."""
    manifest = read_config_map(context)
    configs = executor.read_configs(manifest)
    if configs.get(config.name) == config.entries:
        return False
    name, space = settings.MIG_CONFIG_MAP, settings.MIG_MANAGER_NAMESPACE
    wanted = executor.with_config(configs, config, in_use=_names_in_use())
    body = executor.config_map(name, space, wanted)
    if manifest is None:
        context.cluster.create(body)
    else:
        # Its maker owns the key, so it is not applied; the version keeps us from losing theirs.
        version = manifest["metadata"]["resourceVersion"]
        fresh = {"metadata": {"resourceVersion": version}, "data": body["data"]}
        context.cluster.patch(CONFIG_MAP, name, fresh, space)
    # A kubelet brings a changed ConfigMap into a Pod when the Pod changes, else a minute later.
    touched = {"metadata": {"annotations": {f"{PREFIX}mig-config": config.name}}}
    for pod in manager_pods(context):
        context.cluster.patch(POD, pod["metadata"]["name"], touched, space)
    return True


def _names_in_use() -> set[str]:
    """Return configurations that a node's label names, or that an open operation may need."""
    labels = Node.objects.filter(is_present=True).values_list("labels", flat=True)
    memories = Operation.objects.open().values_list("memory", flat=True)
    named = {item.get(MIG_CONFIG_LABEL, "") for item in labels}
    for memory in memories:
        named |= {(memory.get(key) or {}).get("name", "") for key in ("mig_config", "mig_back")}
    return named


def _write_label(context: Context, node: NodeObject, goal: Goal) -> Look:
    _patch_labels(context, node, {MIG_CONFIG_LABEL: goal.config.name})
    return Again({"mig_config": goal.config.name, "mig_entries": goal.config.entries})


def _patch_labels(context: Context, node: NodeObject, labels: dict[str, str]) -> None:
    body = {"metadata": {"labels": labels, "resourceVersion": node.resource_version}}
    context.cluster.patch(NODE, node.name, body)


def _taken(node: NodeObject, label: str | None) -> Fail:
    return Fail(
        "mig_label_taken",
        _("Somebody else wrote %(label)s into the label nvidia.com/mig.config of %(node)s."),
        {"label": label or "nothing", "node": node.name},
    )


def _await_pending(context: Context) -> Look:
    if not context.recall("mig_saw_pending"):
        operations.remember(context.operation, mig_saw_pending=True)
    if _waited_s(context) > _PENDING_S:
        return Fail(
            "mig_manager_stuck",
            _(
                "mig-manager stays at pending: some client of the GPUs does not end, such as a"
                " monitoring agent. %(log)s"
            ),
            {"log": _last_words(context)},
        )
    return Wait(_POLL_S, _("mig-manager is changing the GPUs."))


def _on_failed(context: Context, state: str) -> Look:
    is_news = context.recall("mig_saw_pending") or state != context.recall("mig_state_at_write")
    if not is_news and _waited_s(context) < _STALE_S:
        return Wait(_POLL_S, _("Waiting until mig-manager notices the new label."))
    if not context.recall("mig_restarted"):
        # It may not have had the file yet, or hold a GPU itself; the same label again does nothing.
        _restart_manager(context)
        return Wait(_POLL_S, _("mig-manager failed; it is started anew once, to try again."))
    return Fail(
        "mig_manager_failed",
        _("mig-manager says that it failed: %(reason)s"),
        {"reason": _last_words(context) or "no reason given"},
    )


def _judge(context: Context, goal: Goal) -> Look:
    """Believe the devices, not the label: they have to be as wanted, on every GPU of the node."""
    observed = probing.look(context)
    if not isinstance(observed, ObservedNode):
        return observed
    gpu = observed.gpu(context.operation.changed_gpu.uuid)
    if gpu is None:
        return Fail(
            "gpu_gone",
            _("%(node)s does not have GPU %(gpu)s any more."),
            {"node": context.operation.node.name, "gpu": context.operation.changed_gpu.uuid},
        )
    if Target.of(gpu) != goal.target:
        return _not_yet(context, gpu, goal.target)
    others = context.recall("mig_others") or {}
    moved = [
        o for o in observed.gpus if o.uuid in others and Target.of(o).to_json() != others[o.uuid]
    ]
    if moved:
        names = ", ".join(str(item.index) for item in moved)
        return Fail(
            "others_changed",
            _("GPUs that were to stay as they were have changed, too: %(gpus)s."),
            {"gpus": names},
        )
    return applying.arrived(context, observed, gpu, goal.then)


def _not_yet(context: Context, gpu: ObservedGpu, target: Target) -> Look:
    evidence = {"layout": Target.of(gpu).to_json()}
    if gpu.is_mig_enabled not in {target.is_mig_enabled, gpu.is_mig_pending}:
        return Fail(
            "needs_reboot",
            _(
                "mig-manager says success, but GPU %(gpu)s changes its MIG mode only at a reset or"
                " a reboot of %(node)s."
            ),
            {"gpu": gpu.index, "node": context.operation.node.name},
            evidence,
        )
    if _waited_s(context) > _GRACE_S:
        return Fail(
            "success_without_devices",
            _("mig-manager says success, but the GPU does not have the wanted layout."),
            evidence=evidence,
        )
    probing.close(context)
    return Wait(_RECHECK_S, _("mig-manager says success; the GPU is not as wanted yet."))


def _restart_manager(context: Context) -> None:
    """Replace mig-manager's Pod: it forgets what it had read, and resumes what it had paused."""
    uids = [pod["metadata"]["uid"] for pod in manager_pods(context)]
    operations.remember(
        context.operation,
        mig_restarted=True,
        mig_old_pods=uids,
        mig_since=timezone.now().isoformat(),
        mig_state_at_write="",
        mig_saw_pending=False,
        open_probe=None,
    )


def _restarting(context: Context) -> Look | None:
    """Delete the Pods that are to go and wait for a new one; None when nothing is to be done."""
    old = context.recall("mig_old_pods")
    if old is None:
        return None
    pods = [PodObject.from_manifest(item) for item in manager_pods(context)]
    for pod in pods:
        if pod.uid in old and not pod.is_deleting:
            context.cluster.delete(POD, pod.name, pod.namespace)
    if any(p.uid in old for p in pods) or not any(p.is_ready for p in pods):
        return Wait(_POLL_S, _("mig-manager is starting anew."))
    operations.remember(context.operation, mig_old_pods=None, mig_since=timezone.now().isoformat())
    return Again()


def _waited_s(context: Context) -> float:
    since: str = context.recall("mig_since")
    return (timezone.now() - datetime.fromisoformat(since)).total_seconds()


def _last_words(context: Context) -> str:
    """Return the last line that mig-manager logged; empty when its log cannot be read."""
    for pod in manager_pods(context):
        try:
            log = context.cluster.read_log(pod["metadata"]["name"], pod["metadata"]["namespace"])
        except ClusterError:
            continue
        lines = [line for line in log.splitlines() if "error" in line.lower()]
        if lines:
            return lines[-1][-_MOST_LOG:]
    return ""


def _config(memory: dict[str, Any]) -> Config:
    return Config(memory["name"], memory["entries"])
