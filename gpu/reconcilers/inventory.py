"""Reads the GPUs of nodes that have not been read since they started."""

import structlog
from django.conf import settings
from django.utils import timezone

from gpu import manifests
from gpu.executors import node_jobs, probing, scripts
from gpu.executors.probing import UnreadableProbeError
from gpu.manifests import HOSTNAME_LABEL, ROLE_LABEL
from gpu.models import Node
from gpu.planning.errors import PlanningError
from gpu.ports import Cluster, ClusterError
from gpu.services import inventory, observations

_log = structlog.get_logger(__name__)


def read_unread_nodes(*, cluster: Cluster) -> int:
    """Start or look after one probe for each unread node; return how many are still unread."""
    nodes = inventory.nodes_to_probe()
    unread = len(nodes)
    for node in nodes:
        try:
            unread -= _read(node, cluster)
        except ClusterError as error:
            _log.warning("probe.cluster", node=node.name, error=str(error))
        except (PlanningError, UnreadableProbeError) as error:
            _log.warning("probe.unreadable", node=node.name, error=str(error))
            observations.record_probe_error(node.pk, str(error), now=timezone.now())
    return unread


def _read(node: Node, cluster: Cluster) -> bool:
    asked_at = inventory.claim_probe(node, now=timezone.now())
    task = node_jobs.Task(
        name=manifests.object_name("slicedesk-probe", node.name, int(asked_at.timestamp() * 1000)),
        node=node.labels.get(HOSTNAME_LABEL, node.name),
        script=scripts.probe_script(settings.NVIDIA_SMI),
        labels={ROLE_LABEL: "probe"},
    )
    finished = node_jobs.run(cluster, task)
    if finished is None:
        return False
    if not finished.is_complete:
        reason = scripts.refusal(finished.log) or finished.message or "the probe's Pod failed"
        raise UnreadableProbeError(reason)
    observed = probing.read_probe(finished.log)
    observations.record_observation(node.pk, observed, now=timezone.now(), is_settled=True)
    node_jobs.discard(cluster, task.name)
    return True
