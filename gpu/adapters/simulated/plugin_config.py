"""The device plugin's configuration as NVIDIA's plugin reads it, with the habits of that reading.

Keys that it does not know are ignored silently, and so is the sharing of a resource that the node
does not have. Fewer than two replicas, or text that is no YAML, end the plugin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

_PREFIX = "nvidia.com/"
_SECTIONS = {"timeSlicing": "time-slicing", "mps": "mps"}


class BadConfigError(ValueError):
    """The plugin ends at once; the text is what it prints."""


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """How the plugin advertises a node's devices."""

    strategy: str = "none"
    replicas: Mapping[str, int] = field(default_factory=dict)
    is_renamed: bool = False
    is_one_at_most: bool = False

    def shares(self, resource: str) -> int:
        """Return how often each device of a resource is listed."""
        return self.replicas.get(resource, 1)

    def name(self, resource: str) -> str:
        """Return under which name a resource is advertised."""
        return f"{resource}.shared" if self.is_renamed and resource in self.replicas else resource

    def ids(self, resource: str, uuid: str) -> list[str]:
        """Return the ids under which one device is listed."""
        count = self.shares(resource)
        return [uuid] if count == 1 else [f"{uuid}::{number}" for number in range(count)]

    def refuses_many(self, name: str) -> bool:
        """Say whether a Pod may ask for one at most of what is advertised under that name."""
        shared = {self.name(resource) for resource in self.replicas}
        return self.is_one_at_most and name in shared


NOT_SHARED = PluginConfig()


@lru_cache(maxsize=256)
def read_config(text: str) -> PluginConfig:
    """Read a configuration; `BadConfigError` where NVIDIA's plugin would end."""
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"error parsing config file: unmarshal error: {error}"
        raise BadConfigError(msg) from error
    if body is not None and not isinstance(body, dict):
        msg = "error parsing config file: unmarshal error: cannot unmarshal into Go value"
        raise BadConfigError(msg)
    sharing = (body or {}).get("sharing") or {}
    for section, strategy in _SECTIONS.items():
        found = sharing.get(section)
        if found and found.get("resources"):
            return _shared(strategy, found)
    return NOT_SHARED


def _shared(strategy: str, section: Mapping[str, Any]) -> PluginConfig:
    replicas: dict[str, int] = {}
    for item in section["resources"]:
        count = item.get("replicas")
        if not isinstance(count, int) or count < 2:  # noqa: PLR2004  # as the plugin says
            msg = (
                "error parsing config file: unmarshal error: error unmarshaling JSON: while"
                " decoding JSON: number of replicas must be >= 2"
            )
            raise BadConfigError(msg)
        name = str(item["name"])
        replicas[name if name.startswith(_PREFIX) else f"{_PREFIX}{name}"] = count
    return PluginConfig(
        strategy,
        replicas,
        is_renamed=bool(section.get("renameByDefault")),
        is_one_at_most=bool(section.get("failRequestsGreaterThanOne")) or strategy == "mps",
    )
