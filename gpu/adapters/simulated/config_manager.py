"""NVIDIA's config-manager beside the device plugin: which configuration its node has, and when.

It follows the node's label, never the content of what the label names: an edited entry changes
nothing until the label moves or the Pod is new. At each start the node is on the default for a
moment. A label that names nothing puts the node on the default a while later.
"""

from collections.abc import Mapping
from zlib import crc32

from gpu.adapters.simulated.plugin_config import (
    NOT_SHARED,
    BadConfigError,
    PluginConfig,
    read_config,
)
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World
from gpu.ports import CONFIG_MAP, Manifest

LABEL = "nvidia.com/device-plugin.config"
DEFAULT = "default"
REACTS_S = 0.3
REACTS_WITHIN_S = 0.7
MISSING_S = 13.0
MOUNT_FOLLOWS_S = 60.0
NO_DEFAULT = (
    "no config was set, no default was provided, and all fallbacks failed: the node has several"
    " configurations and none is the default"
)


def begin(world: World, pod: Manifest) -> None:
    """Put a new Pod's node on the default configuration; its own one follows.

    Without a default the Pod does not get past its init container, whatever the label says.
    """
    node = world.node(pod["spec"]["nodeName"])
    if node is None or ("mounted" in hidden(pod) and hidden(node).get("config_text") is not None):
        return
    mounted = _data(world, pod)
    hidden(pod)["mounted"] = mounted
    hidden(node)["config_text"] = None if mounted is None else _default(mounted)
    hidden(node)["label_seen"] = ""
    hidden(node).pop("reload_at", None)
    hidden(node).pop("missing_at", None)
    world.put(pod)
    world.put(node)


def crash(world: World, pod: Manifest) -> str:
    """Return why the plugin ends with the configuration that it has, or an empty text."""
    node = world.node(pod["spec"]["nodeName"])
    if node is None or hidden(pod).get("mounted") is None:
        return ""
    text = hidden(node).get("config_text")
    if text is None:
        return NO_DEFAULT
    try:
        read_config(text)
    except BadConfigError as error:
        return str(error)
    return ""


def follow(world: World, node: Manifest, pod: Manifest) -> bool:
    """Let the config-manager of a running plugin act; return whether the plugin starts anew."""
    if hidden(pod).get("mounted") is None or hidden(node).get("config_text") is None:
        return False
    _follow_mount(world, node, pod)
    secret, label = hidden(node), _label(node)
    if secret.get("label_seen", "") != label:
        secret["label_seen"] = label
        name = node["metadata"]["name"]
        part = crc32(f"{name}.{label}".encode()) % 100 / 100
        secret["reload_at"] = world.after(REACTS_S + REACTS_WITHIN_S * part, name)
        secret.pop("missing_at", None)
        world.put(node)
    if secret.get("reload_at", world.now + 1) <= world.now:
        secret.pop("reload_at")
        is_new = _reload(world, node, hidden(pod)["mounted"])
    elif secret.get("missing_at", world.now + 1) <= world.now:
        secret.pop("missing_at")
        is_new = _switch(node, _default(hidden(pod)["mounted"]))
    else:
        return False
    world.put(node)
    return is_new


def config_of(node: Manifest) -> PluginConfig:
    """Return how the plugin of a node advertises devices with the configuration that it has."""
    text = hidden(node).get("config_text")
    try:
        return read_config(text) if text else NOT_SHARED
    except BadConfigError:
        return NOT_SHARED


def _label(node: Manifest) -> str:
    return str((node["metadata"].get("labels") or {}).get(LABEL, ""))


def _data(world: World, pod: Manifest) -> dict[str, str] | None:
    """Return the ConfigMap that the Pod mounts; None for a plugin without config-manager."""
    for volume in pod["spec"].get("volumes") or ():
        name = (volume.get("configMap") or {}).get("name")
        if name:
            body = world.tx.get(CONFIG_MAP, name, pod["metadata"]["namespace"])
            return dict((body or {}).get("data") or {})
    return None


def _default(mounted: Mapping[str, str]) -> str | None:
    if DEFAULT in mounted:
        return mounted[DEFAULT]
    if not mounted:
        return ""
    return next(iter(mounted.values())) if len(mounted) == 1 else None


def _follow_mount(world: World, node: Manifest, pod: Manifest) -> None:
    """Let the kubelet bring an edited ConfigMap into the Pod, about a minute late."""
    secret, data = hidden(pod), _data(world, pod)
    if data == secret["mounted"]:
        return
    if "mount_at" not in secret:
        secret["mount_at"] = world.after(MOUNT_FOLLOWS_S)
        world.put(pod)
    if secret["mount_at"] > world.now:
        return
    secret.pop("mount_at")
    was_missing = _label(node) and _label(node) not in secret["mounted"]
    secret["mounted"] = data
    world.put(pod)
    if was_missing:
        # The sidecar ends and starts again for want of the file, and so finds it now.
        hidden(node)["label_seen"] = ""


def _reload(world: World, node: Manifest, mounted: Mapping[str, str]) -> bool:
    label = _label(node)
    if label and label not in mounted:
        hidden(node)["missing_at"] = world.after(MISSING_S, node["metadata"]["name"])
        return False
    return _switch(node, mounted[label] if label else _default(mounted))


def _switch(node: Manifest, text: str | None) -> bool:
    is_new = hidden(node).get("config_text") != text
    hidden(node)["config_text"] = text
    return is_new
