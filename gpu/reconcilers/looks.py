"""What a reconciler looks at, and what it answers after one look.

Messages are untranslated msgids with `%(name)s` parameters: they are stored so, and each reader
gets them in her own language.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu import manifests
from gpu.manifests import HOSTNAME_LABEL, OPERATION_LABEL
from gpu.models import Operation
from gpu.objects import NodeObject
from gpu.ports import NODE, Cluster


@dataclass(frozen=True, slots=True)
class Context:
    """One operation and the cluster that it changes."""

    operation: Operation
    cluster: Cluster

    def node(self) -> NodeObject:
        """Return the node as it is now."""
        return NodeObject.from_manifest(self.cluster.read(NODE, self.operation.node.name))

    def recall(self, key: str) -> Any:  # noqa: ANN401  # JSON values
        """Return what was remembered under a key, or None."""
        return self.operation.memory.get(key)

    def object_name(self, *parts: object) -> str:
        """Return the name of an object that belongs to this operation alone.

        The moment it was opened tells it from an operation of the same number in an installation
        that was there before, whose finished Jobs stay in the cluster for an hour.
        """
        opened = format(int(self.operation.opened_at.timestamp() * 1000), "x")
        return manifests.object_name("slicedesk-op", self.operation.pk, opened, *parts)

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of every object that belongs to this operation."""
        return {OPERATION_LABEL: str(self.operation.pk)}


def hostname(node: NodeObject) -> str:
    """Return the value by which node affinity finds the node."""
    return node.labels.get(HOSTNAME_LABEL, node.name)


@dataclass(frozen=True, slots=True)
class Go:
    """The state is finished: enter the next one, with what was seen."""

    state: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    message: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until the cluster has moved; look again in so many seconds."""

    seconds: float
    message: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Again:
    """Something was done within the state; look at once."""

    evidence: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    message: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fail:
    """The state cannot be finished: a code for machines, a sentence for people."""

    code: str
    message: str
    params: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()


type Look = Go | Wait | Again | Fail
