"""The simulated lab with a clock of the test's own, and the objects that its tests make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.objects import JobObject, NodeObject, PodObject
from gpu.ports import (
    EVENT,
    JOB,
    NODE,
    POD,
    Kind,
    Manifest,
    NotFoundError,
    Scope,
)

SPACE = "tests"
NODE_NAME = "gpu-h200-01"
GPU = "nvidia.com/gpu"
START = 1_800_000_000.0
HOST = {"privileged": True}


@dataclass(slots=True)
class Clock:
    """Seconds since the epoch, as the test says."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Simulation:
    """A lab, its clock, and a namespace of the test's own."""

    cluster: SimulatedCluster
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def build(cls, folder: Path, *, pace: float = 1.0) -> "Simulation":
        """Return a new lab in a folder."""
        clock = Clock()
        cluster = SimulatedCluster(folder / "lab.sqlite3", clock=clock, pace=pace)
        build_lab(cluster)
        cluster.create(manifest(Kind("v1", "Namespace", "namespaces", is_namespaced=False), SPACE))
        return cls(cluster, clock)

    def wait(self, seconds: float) -> None:
        """Let the clock go on."""
        self.clock.now += seconds

    def pod(self, name: str, namespace: str = SPACE) -> PodObject:
        """Return a Pod as it is now."""
        return PodObject.from_manifest(self.cluster.read(POD, name, namespace))

    def pods(self, namespace: str = SPACE) -> list[PodObject]:
        """Return the Pods of a namespace."""
        return [PodObject.from_manifest(i) for i in self.cluster.list(POD, Scope(namespace)).items]

    def job(self, name: str) -> JobObject:
        """Return a Job as it is now."""
        return JobObject.from_manifest(self.cluster.read(JOB, name, SPACE))

    def node(self, name: str = NODE_NAME) -> NodeObject:
        """Return a node as it is now."""
        return NodeObject.from_manifest(self.cluster.read(NODE, name))

    def said(self, name: str, namespace: str = SPACE) -> list[str]:
        """Return the reasons of the Events about an object."""
        scope = Scope(namespace, "", f"involvedObject.name={name}")
        return sorted(item["reason"] for item in self.cluster.list(EVENT, scope).items)

    def exists(self, kind: Kind, name: str, namespace: str = SPACE) -> bool:
        """Say whether an object is there."""
        try:
            self.cluster.read(kind, name, namespace)
        except NotFoundError:
            return False
        return True

    def plugin_pod(self, node: str = NODE_NAME) -> PodObject:
        """Return the device plugin's Pod of a node that is not going."""
        scope = Scope(field_selector=f"spec.nodeName={node}", label_selector=PLUGIN)
        pods = [PodObject.from_manifest(item) for item in self.cluster.list(POD, scope).items]
        [found] = [pod for pod in pods if not pod.is_deleting]
        return found

    def restart_plugin(self, node: str = NODE_NAME) -> None:
        """Delete the device plugin's Pod, as an operation does."""
        pod = self.plugin_pod(node)
        self.cluster.delete(POD, pod.name, pod.namespace)

    def run_on_host(self, name: str, script: str, node: str = NODE_NAME) -> None:
        """Run a script on a node with the host in view, as our Jobs do."""
        body = pod(name, script=script, node=node)
        body["spec"]["containers"][0]["securityContext"] = HOST
        self.cluster.create(body)


PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"


def manifest(kind: Kind, name: str, **fields: Any) -> Manifest:  # noqa: ANN401  # JSON edge
    """Return an object, in the test's namespace if its kind has one."""
    meta = {"name": name} | ({"namespace": SPACE} if kind.is_namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **fields}


def pod(
    name: str,
    *,
    script: str = "",
    node: str = NODE_NAME,
    limits: Mapping[str, object] | None = None,
    policy: str = "Never",
) -> Manifest:
    """Return a Pod for a node: with a script of its own, or with a program that just runs."""
    container: Manifest = {
        "name": "main",
        "image": "registry.example/work:1",
        "command": ["sh", "-c", script] if script else ["python", "train.py"],
        "resources": {"limits": dict(limits or {})},
    }
    spec: Manifest = {"restartPolicy": policy, "containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return manifest(POD, name, spec=spec)


def job(name: str, script: str, **spec: object) -> Manifest:
    """Return a Job that runs a script on the test's node, with the host in view."""
    template = {"spec": pod(name, script=script)["spec"]}
    template["spec"]["containers"][0]["securityContext"] = HOST
    return manifest(JOB, name, spec={"backoffLimit": 0, "template": template, **spec})
