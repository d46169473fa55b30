"""After an operation that did not end well: what is as before, what is not, and what to do now."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap

from django.conf import settings
from django.utils.translation import gettext as _

from gpu.manifests import CORDONED_BY
from gpu.models import Gpu, Operation
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.resources import differences
from gpu.planning.steps import nvidia_smi_commands
from gpu.selectors.operations import named_pods_alive
from gpu.selectors.sharing import CONFIG_LABEL
from gpu.selectors.tables import table_of
from gpu.views.layout_preview import steps_to
from gpu.views.layout_wish import Wish, present_layout, stored_wish
from gpu.views.recovery_mig_manager import steps_after_layout, steps_before_layout
from gpu.views.wording import layout_words


class Verdict(StrEnum):
    """How one thing compares with what it was before the operation."""

    SAME = "same"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing, its verdict, and how it is now."""

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class NextStep:
    """One thing to do by hand, with the commands for it."""

    sentence: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a failed operation has left behind, and the way out."""

    facts: tuple[Fact, ...]
    next_steps: tuple[NextStep, ...]


def recovery_of(operation: Operation) -> Recovery | None:
    """Return what a failed operation left behind, as last observed; None for one that went well."""
    if operation.state not in {Operation.State.NEEDS_OPERATOR, Operation.State.ROLLED_BACK}:
        return None
    facts = (_before_and_now(operation), _devices(operation), _cordon(operation), *_pods(operation))
    steps: tuple[NextStep, ...] = ()
    if operation.state == Operation.State.NEEDS_OPERATOR:
        steps = tuple(_next_steps(operation))
    return Recovery(facts, steps)


def _before_and_now(operation: Operation) -> Fact:
    return _configuration(operation) if operation.gpu_id is None else _layout(operation)


def _configuration(operation: Operation) -> Fact:
    """Compare the node's configuration of the device plugin, which a change of sharing moves."""
    name = _("Configuration of the device plugin")
    now = operation.node.labels.get(CONFIG_LABEL, "")
    before: str | None = operation.memory.get("previous_label")
    shown = now or _("the default")
    if before is None or before == now:
        # The label is remembered before the first write, so without it nothing was written.
        return Fact(name, Verdict.SAME, shown)
    detail = _("%(now)s, before: %(before)s") % {
        "now": shown,
        "before": before or _("the default"),
    }
    return Fact(name, Verdict.CHANGED, detail)


def _layout(operation: Operation) -> Fact:
    name = _("Layout of the GPU")
    now = present_layout(operation.changed_gpu)
    if operation.previous is None:
        # The check comes before anything is written, so nothing can have been changed.
        return Fact(name, Verdict.SAME, layout_words(now.as_json()))
    same = _as_set(now) == _as_set(_before(operation))
    detail = layout_words(now.as_json())
    if not same:
        detail = _("%(now)s, before: %(before)s") % {
            "now": detail,
            "before": layout_words(operation.previous),
        }
    return Fact(name, Verdict.SAME if same else Verdict.CHANGED, detail)


def _devices(operation: Operation) -> Fact:
    name = _("What the node offers")
    before = operation.memory.get("expected_before")
    if before is None:
        return Fact(name, Verdict.UNKNOWN, _("It was not read before the failure."))
    unequal = differences(before, operation.node.allocatable)
    if not unequal:
        return Fact(name, Verdict.SAME, _("All resources count as before."))
    words = ", ".join(f"{key} {now} ({was})" for key, (was, now) in unequal.items())
    return Fact(name, Verdict.CHANGED, _("Now (before): %(counts)s") % {"counts": words})


def _cordon(operation: Operation) -> Fact:
    name = _("Scheduling on the node")
    now = _("open") if operation.node.is_schedulable else _("cordoned")
    if operation.was_schedulable is None:
        return Fact(name, Verdict.SAME, now)
    same = operation.was_schedulable == operation.node.is_schedulable
    return Fact(name, Verdict.SAME if same else Verdict.CHANGED, now)


def _pods(operation: Operation) -> Iterable[Fact]:
    if not operation.named_pods:
        return
    alive = named_pods_alive(operation)
    gone = [key.rpartition("/")[0] for key in operation.named_pods if key not in alive]
    name = _("Pods that the preview named")
    if gone:
        yield Fact(name, Verdict.CHANGED, _("gone: %(pods)s") % {"pods": ", ".join(gone)})
    else:
        yield Fact(name, Verdict.SAME, _("all still there"))


def _next_steps(operation: Operation) -> Iterable[NextStep]:
    node = operation.node.name
    yield from _steps_back(operation)
    yield NextStep(
        _("Restart the device plugin on the node, for it lists devices only when it starts."),
        (_restart_plugin_command(node),),
    )
    look = f"kubectl get node {node} -o jsonpath='{{.status.allocatable}}'"
    forget = f"kubectl annotate node {node} {CORDONED_BY}-"
    if operation.was_schedulable is False:
        sentence = _(
            "See that the node offers what it should; it was cordoned before and stays so."
        )
        yield NextStep(sentence, (look, forget))
        return
    yield NextStep(
        _("See that the node offers what it should, then give it back to the scheduler."),
        (look, forget, f"kubectl uncordon {node}"),
    )


def _steps_back(operation: Operation) -> Iterable[NextStep]:
    """Yield what puts back what the operation changed, as far as that is known."""
    node = operation.node.name
    if operation.gpu is None:
        yield NextStep(
            _("Look at which configuration the node has, and what the plugin says of it."),
            (
                f"kubectl get node {node} -L {CONFIG_LABEL}",
                _plugin_command("get pods", node),
            ),
        )
        before: str | None = operation.memory.get("previous_label")
        if before is not None:
            change = f"{CONFIG_LABEL}={before} --overwrite" if before else f"{CONFIG_LABEL}-"
            yield NextStep(
                _("Give the node the configuration that it had before."),
                (f"kubectl label node {node} {change}",),
            )
        return
    gpu = operation.gpu
    yield NextStep(
        _("On %(node)s, look at what the driver shows now.") % {"node": node},
        ("nvidia-smi -L", f"nvidia-smi mig -i {gpu.index} -lgi"),
    )
    is_by_manager = operation.executor == Operation.Executor.MIG_MANAGER
    if is_by_manager:
        yield from starmap(NextStep, steps_before_layout(operation))
    commands = _way_back(gpu, operation)
    if commands:
        yield NextStep(
            _("On %(node)s, put the layout back that was there before.") % {"node": node}, commands
        )
    if is_by_manager:
        yield from starmap(NextStep, steps_after_layout(operation))


def _plugin_command(verb: str, node: str) -> str:
    space, selector = settings.DEVICE_PLUGIN_NAMESPACE, settings.DEVICE_PLUGIN_SELECTOR
    return f"kubectl -n {space} {verb} -l {selector} --field-selector spec.nodeName={node}"


def _restart_plugin_command(node: str) -> str:
    return _plugin_command("delete pod", node)


def _way_back(gpu: Gpu, operation: Operation) -> tuple[str, ...]:
    """Return the commands from what was last observed to what was before; none when it is so."""
    table = table_of(gpu.model)
    if table is None or operation.previous is None:
        return ()
    ids = {Instance(i.profile, i.start): i.gi_id for i in gpu.instances.all()}
    try:
        steps = steps_to(table, present_layout(gpu), _before(operation))
        return nvidia_smi_commands(steps, table, gpu_index=gpu.index, gi_ids=ids)
    except PlanningError:
        return ()


def _before(operation: Operation) -> Wish:
    return stored_wish(operation.previous or {"mig": False, "instances": []})


def _as_set(wish: Wish) -> tuple[bool, frozenset[Instance]]:
    return wish.is_mig_on, frozenset(wish.layout)
