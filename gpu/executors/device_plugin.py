"""From wanted sharing to the device plugin's configuration and back; pure.

NVIDIA's plugin ignores keys that it does not know and ends on values that it does not like, so what
is written comes from here alone, and what is read is read strictly. An entry of the ConfigMap is
named by its content's hash: it is added, never edited, for an edit under the same label does
nothing. One share is no `sharing` section, for the plugin refuses one replica.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpu.manifests import PREFIX
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.sharing import MIN_REPLICAS, SharingStrategy

CONFIG_LABEL = "nvidia.com/device-plugin.config"
DEFAULT_ENTRY = "default"
ENTRY_PREFIX = "slicedesk-"
DEFAULT_MARK = f"{PREFIX}default-entry"

_VERSION = "v1"
_RESOURCE_PREFIX = "nvidia.com/"
_SECTIONS = {
    "timeSlicing": SharingStrategy.TIME_SLICING,
    "mps": SharingStrategy.MPS,
}
_KNOWN = frozenset({"version", "flags", "sharing", "resources"})
_KNOWN_OF_SECTION = frozenset({"renameByDefault", "failRequestsGreaterThanOne", "resources"})
_KNOWN_OF_RESOURCE = frozenset({"name", "replicas", "devices"})
_DIGITS = 12


class ConfigurationError(Exception):
    """A configuration that somebody else wrote cannot be taken over; the text says why."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One entry of the ConfigMap: how the node is shared, and flags that stay as they are."""

    sharing: NodeSharing
    flags: Mapping[str, Any] = field(default_factory=dict)

    def with_sharing(self, sharing: NodeSharing) -> "Configuration":
        """Return the same configuration with another sharing."""
        return Configuration(sharing, self.flags)

    def to_text(self) -> str:
        """Return the entry's content; the same configuration gives the same text."""
        body: dict[str, Any] = {"version": _VERSION}
        if self.flags:
            body["flags"] = self.flags
        if self.sharing.strategy is not SharingStrategy.NONE:
            section = next(k for k, v in _SECTIONS.items() if v is self.sharing.strategy)
            body["sharing"] = {
                section: {
                    "renameByDefault": self.sharing.is_renamed,
                    "failRequestsGreaterThanOne": True,
                    "resources": [
                        {"name": name, "replicas": count}
                        for name, count in sorted(self.sharing.replicas.items())
                    ],
                }
            }
        return yaml.safe_dump(body, sort_keys=True, default_flow_style=False)


def plain_flags(mig_strategy: str) -> dict[str, Any]:
    """Return the flags of a node that has none of its own yet; empty leaves the plugin's own."""
    return {"migStrategy": mig_strategy} if mig_strategy else {}


def entry_name(text: str) -> str:
    """Return the name under which a content is kept: always the same for the same content."""
    return f"{ENTRY_PREFIX}{_digest(text)}"


def read_configuration(text: str) -> Configuration:
    """Read an entry, whoever wrote it; `ConfigurationError` for what we could not keep as it is."""
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = "it is not YAML"
        raise ConfigurationError(message) from error
    body = _mapping("the configuration", body)
    _expect("the configuration", body, _KNOWN)
    if body.get("version", _VERSION) != _VERSION:
        message = f"its version is {body['version']!r} instead of {_VERSION}"
        raise ConfigurationError(message)
    if body.get("resources"):
        message = "it names resources by patterns of its own (resources)"
        raise ConfigurationError(message)
    flags = _mapping("flags", body.get("flags"))
    return Configuration(_read_sharing(_mapping("sharing", body.get("sharing"))), flags)


def default_text(data: Mapping[str, str], flags: Mapping[str, Any]) -> str | None:
    """Return the default that the ConfigMap lacks; None when it has one.

    A single entry serves as the default of every node without a label, so a default beside it has
    its content: added, it changes nothing for anybody. Otherwise the default shares nothing.
    """
    if DEFAULT_ENTRY in data:
        return None
    foreign = [text for name, text in data.items() if not name.startswith(ENTRY_PREFIX)]
    if len(foreign) == 1 and len(data) == 1:
        return foreign[0]
    return Configuration(NodeSharing(), flags).to_text()


def active_entry(data: Mapping[str, str], label: str) -> str | None:
    """Return the name of the entry that a node with that label has; None for no entry at all.

    A name that is gone means the default, and so does no label.
    """
    if label in data:
        return label
    if DEFAULT_ENTRY in data:
        return DEFAULT_ENTRY
    return next(iter(data)) if len(data) == 1 else None


@dataclass(frozen=True, slots=True)
class Book:
    """The plugin's ConfigMap as it is in the cluster; version and mark are empty without one."""

    name: str
    namespace: str
    data: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    default_mark: str = ""

    @classmethod
    def from_manifest(cls, body: Mapping[str, Any]) -> "Book":
        """Read a ConfigMap."""
        meta = body["metadata"]
        return cls(
            name=meta["name"],
            namespace=meta["namespace"],
            data=dict(body.get("data") or {}),
            version=meta.get("resourceVersion", ""),
            default_mark=(meta.get("annotations") or {}).get(DEFAULT_MARK, ""),
        )

    def with_entry(
        self, text: str, *, in_use: Collection[str], default: str | None
    ) -> dict[str, Any]:
        """Return the server-side apply that adds a content, and drops ours that nobody uses.

        Entries of others are not named in it and so stay as they are. The version makes a change
        by somebody else in between a conflict instead of a loss.
        """
        ours = {
            name: kept
            for name, kept in self.data.items()
            if name.startswith(ENTRY_PREFIX) and name in in_use
        }
        ours[entry_name(text)] = text
        meta: dict[str, Any] = {"name": self.name, "namespace": self.namespace}
        if self.version:
            meta["resourceVersion"] = self.version
        kept_default = self._own_default() if default is None else default
        if kept_default is not None:
            ours[DEFAULT_ENTRY] = kept_default
            meta["annotations"] = {DEFAULT_MARK: _digest(kept_default)}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": ours}

    def _own_default(self) -> str | None:
        """Return the default that we wrote; None when it is somebody else's, or is by now."""
        text = self.data.get(DEFAULT_ENTRY)
        return text if text is not None and _digest(text) == self.default_mark else None


def _read_sharing(sharing: Mapping[str, Any]) -> NodeSharing:
    _expect("sharing", sharing, frozenset(_SECTIONS))
    used = [name for name in _SECTIONS if (sharing.get(name) or {}).get("resources")]
    if not used:
        return NodeSharing()
    if len(used) > 1:
        message = "it shares both by time-slicing and by MPS"
        raise ConfigurationError(message)
    section = _mapping(used[0], sharing[used[0]])
    _expect(used[0], section, _KNOWN_OF_SECTION)
    replicas = dict(_read_resource(item) for item in section["resources"])
    return NodeSharing(_SECTIONS[used[0]], replicas, bool(section.get("renameByDefault")))


def _read_resource(item: object) -> tuple[str, int]:
    resource = _mapping("a shared resource", item)
    _expect("a shared resource", resource, _KNOWN_OF_RESOURCE)
    name, count = str(resource.get("name", "")), resource.get("replicas")
    if resource.get("devices", "all") != "all":
        message = f"it shares only some devices of {name}"
        raise ConfigurationError(message)
    if not isinstance(count, int) or count < MIN_REPLICAS:
        message = f"it gives {name or 'a resource'} {count} replicas instead of 2 or more"
        raise ConfigurationError(message)
    return (name if name.startswith(_RESOURCE_PREFIX) else f"{_RESOURCE_PREFIX}{name}"), count


def _mapping(what: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"{what} is no mapping"
        raise ConfigurationError(message)
    return value


def _expect(what: str, found: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(str(key) for key in found if key not in known)
    if unknown:
        message = f"{what} has a key that the plugin does not know: {', '.join(unknown)}"
        raise ConfigurationError(message)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
