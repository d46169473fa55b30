"""Running a script once on a node, as a Job, and looking how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.conf import settings

from gpu import manifests
from gpu.objects import JobObject, PodObject
from gpu.ports import (
    JOB,
    POD,
    AlreadyExistsError,
    Cluster,
    NotFoundError,
    Scope,
    UnreachableError,
)


@dataclass(frozen=True, slots=True)
class Task:
    """A script for a node under a name that stands for this one run of it."""

    name: str
    node: str
    script: str
    labels: Mapping[str, str] = field(default_factory=dict)
    deadline_s: int = 180


@dataclass(frozen=True, slots=True)
class Finished:
    """How a Job ended, and all that it printed."""

    is_complete: bool
    log: str
    message: str


def ensure_namespace(cluster: Cluster) -> None:
    """Make sure that our own namespace is there, for privileged Pods."""
    cluster.apply(manifests.namespace(settings.SYSTEM_NAMESPACE, pod_security="privileged"))


def run(cluster: Cluster, task: Task) -> Finished | None:
    """Start the Job unless it was started before; return its end, or None while it runs.

    The name makes it happen once: a worker that died after starting it finds it again.
    """
    try:
        job = JobObject.from_manifest(cluster.read(JOB, task.name, settings.SYSTEM_NAMESPACE))
    except NotFoundError:
        _start(cluster, task)
        return None
    if not job.is_complete and not job.is_failed:
        return None
    return Finished(job.is_complete, _log(cluster, job), job.message)


def discard(cluster: Cluster, name: str) -> None:
    """Remove a Job and its Pod, whatever they do; for names that will be used again."""
    cluster.delete(JOB, name, settings.SYSTEM_NAMESPACE)


def _start(cluster: Cluster, task: Task) -> None:
    body = manifests.node_job(
        manifests.NodeScript(
            name=task.name,
            namespace=settings.SYSTEM_NAMESPACE,
            node=task.node,
            image=settings.TOOLS_IMAGE,
            script=task.script,
            labels=task.labels,
            deadline_s=task.deadline_s,
        )
    )
    try:
        cluster.create(body)
    except AlreadyExistsError:
        return
    except NotFoundError:
        ensure_namespace(cluster)
        cluster.create(body)


def _log(cluster: Cluster, job: JobObject) -> str:
    pods = cluster.list(POD, Scope(job.namespace, label_selector=f"job-name={job.name}")).items
    newest = max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
    if newest is None:
        return ""
    try:
        return cluster.read_log(PodObject.from_manifest(newest).name, job.namespace)
    except NotFoundError:
        return ""
    except UnreachableError:
        if job.is_failed:
            return ""
        raise
