"""What is left to do by hand after a change through mig-manager that could not be taken back."""

from collections.abc import Iterable

from django.conf import settings
from django.utils.translation import gettext as _

from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL, MIG_PAUSED, MIG_STATE_LABEL
from gpu.models import Operation

type Step = tuple[str, tuple[str, ...]]
"""One sentence, and the commands for it."""


def steps_before_layout(operation: Operation) -> Iterable[Step]:
    """Yield what comes before the layout is put back: see what mig-manager says, reboot if due."""
    node, space = operation.node.name, settings.MIG_MANAGER_NAMESPACE
    pod = f"kubectl -n {space} get pod -o name {_where(node)}"
    yield (
        _("See what mig-manager on %(node)s says, and what the last line of its log is.")
        % {"node": node},
        (
            f"kubectl get node {node} -L {MIG_CONFIG_LABEL} -L {MIG_STATE_LABEL}",
            f"kubectl -n {space} logs --tail=20 $({pod})",
        ),
    )
    if operation.failure_code == "needs_reboot":
        yield (
            _("Reboot %(node)s: the MIG mode of the GPU changes only then.") % {"node": node},
            (f"kubectl drain {node} --ignore-daemonsets", "reboot"),
        )


def steps_after_layout(operation: Operation) -> Iterable[Step]:
    """Yield what comes after it: the label has to say what is there, and nothing may stay paused.

    mig-manager compares counts, so with the layout back it changes nothing for the old name.
    """
    node = operation.node.name
    back = operation.memory.get("mig_back")
    if back:
        change = f"{MIG_CONFIG_LABEL}={back['name']} --overwrite"
        yield (
            _("Give the node the name of the configuration that it had before."),
            (f"kubectl label node {node} {change}",),
        )
    paused = [key for key, value in sorted(operation.node.labels.items()) if value == MIG_PAUSED]
    resumed = " ".join(f"{key}=true" for key in paused if key.startswith(DEPLOY_PREFIX))
    commands = (f"kubectl label node {node} {resumed} --overwrite",) if resumed else ()
    yield (
        _("Start mig-manager anew there: it resumes what it paused, and forgets what hung."),
        (
            *commands,
            f"kubectl -n {settings.MIG_MANAGER_NAMESPACE} delete pod {_where(node)}",
        ),
    )


def _where(node: str) -> str:
    return f"-l {settings.MIG_MANAGER_SELECTOR} --field-selector spec.nodeName={node}"
