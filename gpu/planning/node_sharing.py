"""How all of a node's GPUs are shared: one strategy, and a number of replicas for each resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gpu.planning.sharing import (
    MAX_MPS_CLIENTS,
    InvalidSharingError,
    SharingStrategy,
    check_sharing,
)

_RENAMED = ".shared"
_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeSharing:
    """A node's sharing; a resource that `replicas` does not name is not shared.

    With `is_renamed` a shared resource is advertised as `….shared` instead of under its own name.
    """

    strategy: SharingStrategy = SharingStrategy.NONE
    replicas: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    is_renamed: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "NodeSharing":
        """Read a stored sharing; `InvalidSharingError` for a strategy that there is not."""
        try:
            strategy = SharingStrategy(data["strategy"])
        except ValueError as error:
            message = f"There is no sharing strategy {data['strategy']!r}."
            raise InvalidSharingError(message) from error
        return cls(strategy, dict(data.get("replicas") or {}), bool(data.get("rename")))

    def to_json(self) -> dict[str, Any]:
        """Return the sharing as it is stored."""
        return {
            "strategy": str(self.strategy),
            "replicas": dict(sorted(self.replicas.items())),
            "rename": self.is_renamed,
        }

    def check(self, *, most_clients: int = MAX_MPS_CLIENTS) -> None:
        """Raise `InvalidSharingError` if the device plugin would refuse it."""
        if self.strategy is SharingStrategy.NONE:
            if self.replicas or self.is_renamed:
                message = "A node that is not shared has no replicas and renames nothing."
                raise InvalidSharingError(message)
            return
        if not self.replicas:
            message = "Sharing names at least one resource; for none, do not share."
            raise InvalidSharingError(message)
        for resource, count in self.replicas.items():
            check_sharing(self.strategy, count, resource=resource, most_clients=most_clients)

    def shares_of(self, resource: str) -> int:
        """Return how often each device of a resource is advertised; 1 when it is not shared."""
        return self.replicas.get(resource, 1)

    def name_of(self, resource: str) -> str:
        """Return the key under which a resource is advertised."""
        is_renamed = self.is_renamed and resource in self.replicas
        return f"{resource}{_RENAMED}" if is_renamed else resource

    def advertised(self, devices: Mapping[str, int]) -> dict[str, int]:
        """Return what the plugin advertises for so many devices of each resource."""
        return {
            self.name_of(resource): count * self.shares_of(resource)
            for resource, count in sorted(devices.items())
        }


def changed_resources(
    before: NodeSharing, after: NodeSharing, devices: Mapping[str, int]
) -> frozenset[str]:
    """Return the resources, under their own names, that are advertised in another way after."""
    return frozenset(
        resource for resource in devices if _way(before, resource) != _way(after, resource)
    )


def _way(sharing: NodeSharing, resource: str) -> tuple[str, int, str]:
    count = sharing.shares_of(resource)
    strategy = sharing.strategy if count > 1 else SharingStrategy.NONE
    return sharing.name_of(resource), count, strategy
