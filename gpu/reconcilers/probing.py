"""Looking at a node's GPUs through a Job, once for each look that an operation needs."""

from django.conf import settings
from django.utils.translation import gettext_noop as _

from gpu.executors import node_jobs, probing, scripts
from gpu.planning.observed import ObservedNode
from gpu.reconcilers.looks import Context, Fail, Wait, hostname
from gpu.services import operations

_POLL_S = 0.5


def look(context: Context) -> ObservedNode | Wait | Fail:
    """Return what the open probe found, starting one if none is open.

    The probe stays open until `close` is called, so that a worker that takes over reads the same.
    """
    number = context.recall("open_probe")
    if number is None:
        number = (context.recall("probes") or 0) + 1
        operations.remember(context.operation, open_probe=number, probes=number)
    task = node_jobs.Task(
        name=context.object_name("probe", number),
        node=hostname(context.node()),
        script=scripts.probe_script(settings.NVIDIA_SMI),
        labels=context.labels,
    )
    finished = node_jobs.run(context.cluster, task)
    if finished is None:
        return Wait(_POLL_S, _("Reading the GPUs of the node."))
    if not finished.is_complete:
        return Fail(
            "probe_failed",
            _("The GPUs of the node could not be read: %(reason)s"),
            {"reason": finished.message or scripts.refusal(finished.log)},
        )
    return probing.read_probe(finished.log)


def close(context: Context) -> None:
    """Forget the open probe, so that the next look is a fresh one."""
    operations.remember(context.operation, open_probe=None)
