"""NVIDIA's components as they run on the nodes: the plugin registers devices, GFD writes labels.

The plugin lists devices only when it starts. GPU Feature Discovery looks about once a minute, so
its labels are late.
"""

from math import ceil
from zlib import crc32

from gpu.adapters.simulated import config_manager, plugin, statuses
from gpu.adapters.simulated.containers import program_of
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World
from gpu.ports import Manifest

PLUGIN_LABELS = {"app.kubernetes.io/name": "nvidia-device-plugin"}
PLUGIN_REGISTERS_S = 2.0
LABELS_EVERY_S = 60.0
_LOST = "error starting plugins: error getting plugins: unable to create device map: GPU is lost"
_CRASHED = "error starting plugins: the plugin ended with exit code 1"


def is_plugin(pod: Manifest) -> bool:
    """Say whether a Pod is the device plugin of its node."""
    labels = pod["metadata"].get("labels") or {}
    return bool(hidden(pod).get("daemon_set")) and PLUGIN_LABELS.items() <= labels.items()


def start_plugin(world: World, pod: Manifest) -> None:
    """Begin to list the node's devices; they are offered a little later."""
    config_manager.begin(world, pod)
    node = world.node(pod["spec"]["nodeName"])
    if node is not None:
        hidden(node)["register_at"] = world.after(PLUGIN_REGISTERS_S, node["metadata"]["name"])
        world.put(node)


def forget_plugin(world: World, pod: Manifest) -> None:
    """Offer nothing any more on the node of a plugin that has gone or crashed."""
    node = world.node(pod["spec"].get("nodeName", ""))
    if node is not None and is_plugin(pod):
        hidden(node).pop("register_at", None)
        statuses.offer(node, {}, world.now)
        world.put(node)


def crash_of(world: World, pod: Manifest, *, is_starting: bool) -> str:
    """Return why a plugin crashes, or an empty text; a lost GPU is noticed at its start."""
    node = pod["spec"]["nodeName"]
    if not is_plugin(pod):
        return ""
    if world.has_fault(node, "plugin_crash_loop"):
        return _CRASHED
    if is_starting:
        config_manager.begin(world, pod)
        if world.has_fault(node, "gpu_lost"):
            return _LOST
    return config_manager.crash(world, pod)


def run_plugins(world: World) -> None:
    """Register what is due, write labels that are due, forget what is long gone."""
    for node in world.nodes:
        if not world.is_silent(node["metadata"]["name"]):
            _run_plugin(world, node)


def look_soon(world: World, node: str) -> None:
    """Let GPU Feature Discovery see, at its next look, what has changed on a node."""
    found = world.node(node)
    if found is not None:
        _look_soon(world, found)
        world.put(found)


def hold_devices(world: World) -> None:
    """Tell the drivers which devices running programs hold; one that only looks holds none."""
    held: dict[str, dict[str, str]] = {node["metadata"]["name"]: {} for node in world.nodes}
    for pod in world.pods:
        is_running = pod["status"]["phase"] == "Running" and "retry_at" not in hidden(pod)
        if not is_running or program_of(pod) is not None:
            continue
        for ids in hidden(pod).get("devices", {}).values():
            for device in ids:
                on_node = held.setdefault(pod["spec"]["nodeName"], {})
                on_node[device.split("::")[0]] = pod["metadata"]["name"]
    before = world.tx.fact("held") or {}
    for node, devices in held.items():
        if before.get(node) != devices:
            world.files.set_held(node, devices)
    if before != held:
        world.tx.set_fact("held", held)


def _run_plugin(world: World, node: Manifest) -> None:
    secret, name = hidden(node), node["metadata"]["name"]
    _follow_label(world, node)
    if secret.get("register_at", world.now + 1) <= world.now:
        _register(world, node, name)
    if secret.get("labels_at", world.now + 1) <= world.now:
        secret.pop("labels_at")
        if not world.has_fault(name, "gpu_lost"):
            _relabel(world, node)
        world.put(node)
    if secret.get("capacity_at", world.now + 1) <= world.now:
        statuses.forget_capacity(node)
        world.put(node)


def _follow_label(world: World, node: Manifest) -> None:
    """Let the plugin start anew with another configuration, once its first start is over."""
    if "register_at" in hidden(node):
        return
    for pod in world.pods_on(node["metadata"]["name"]):
        if is_plugin(pod) and pod["status"]["phase"] == "Running":
            is_up = "retry_at" not in hidden(pod)
            if config_manager.follow(world, node, pod) and is_up:
                # A configuration that ends the plugin is noticed by its kubelet at the next step.
                hidden(node)["register_at"] = world.now
                world.put(node)


def _register(world: World, node: Manifest, name: str) -> None:
    if world.has_fault(name, "plugin_never_registers"):
        return
    hidden(node).pop("register_at")
    config = config_manager.config_of(node)
    devices = plugin.listed_devices(world.files.state(name), config)
    hidden(node)["one_at_most"] = [key for key in devices if config.refuses_many(key)]
    statuses.offer(node, devices, world.now)
    _look_soon(world, node)
    world.put(node)


def _look_soon(world: World, node: Manifest) -> None:
    every = LABELS_EVERY_S * world.pace
    offset = (crc32(node["metadata"]["name"].encode()) % 60) / 60 * every
    due = world.now
    if every:
        due = ceil((world.now - offset) / every) * every + offset
    hidden(node).setdefault("labels_at", due)


def _relabel(world: World, node: Manifest) -> None:
    state = world.files.state(node["metadata"]["name"])
    fresh = plugin.feature_labels(state, config_manager.config_of(node))
    old = node["metadata"].get("labels") or {}
    kept = {key: value for key, value in old.items() if not plugin.is_feature_label(key)}
    node["metadata"]["labels"] = kept | fresh
