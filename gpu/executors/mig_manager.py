"""The executor for clusters with the GPU Operator: from wanted layouts to a mig-parted config.

mig-parted works by counts: it compares how many instances of each profile a GPU has, leaves it
alone when they agree, and otherwise destroys all of that GPU's instances and makes new ones
wherever the driver likes. So a layout is checked for whether counts can bring it about, and what is
there afterwards is read from the devices.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpu.executors.nvidia_smi import Target, UnreachableLayoutError, switches_mode
from gpu.manifests import DEPLOY_PREFIX, MANAGED_BY, MIG_PAUSED
from gpu.planning.geometry import Instance
from gpu.planning.landings import landings, likely_landing, profiles_of
from gpu.planning.layouts import check_layout
from gpu.planning.observed import ObservedGpu, ObservedNode
from gpu.planning.tables import GpuTable

type Entries = list[dict[str, Any]]

CONFIG_KEY = "config.yaml"
BUSY_STATES = frozenset({"pending", "rebooting"})
OUR_PREFIX = "slicedesk-"
HARMLESS = "all-disabled"
_MOST_OF_OURS = 100


class ConfigMapError(ValueError):
    """The mig-parted ConfigMap cannot be used as it is; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Config:
    """A mig-parted configuration of all GPUs of a node, by the name that its content gives it."""

    name: str
    entries: Entries

    @classmethod
    def of(cls, entries: Entries) -> "Config":
        """Name a configuration by the hash of its content, so that a name never changes meaning."""
        text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
        return cls(f"{OUR_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}", entries)


def config_for(
    observed: ObservedNode,
    tables: Mapping[str, GpuTable | None],
    wanted: Mapping[str, Target],
) -> Config:
    """Return the configuration that gives each GPU (by UUID) what is wanted, else what it has.

    `tables` are by UUID too. GPUs with MIG off that are not to change are left out, for a change of
    mode anywhere resets every GPU that is named. Raises `UnreachableLayoutError` for a layout that
    cannot be, or that counts cannot bring about; a planning error for a profile that the driver's
    table does not have, for mig-parted would wipe the GPU and call it a success.
    """
    entries: Entries = []
    for gpu in observed.gpus:
        target = wanted.get(gpu.uuid, Target.of(gpu))
        table = tables.get(gpu.uuid)
        if gpu.uuid not in wanted and not target.is_mig_enabled:
            continue
        if table is None:
            msg = f"GPU {gpu.index} ({gpu.name}) cannot do MIG."
            raise UnreachableLayoutError(msg)
        if gpu.uuid in wanted and target != Target.of(gpu):
            _require_reachable(gpu, table, target)
        entries.append(_entry(gpu.index, target))
    return Config.of(entries)


def require_others_kept(
    observed: ObservedNode, tables: Mapping[str, GpuTable | None], uuid: str, target: Target
) -> tuple[ObservedGpu, ...]:
    """Return the other GPUs whose instances a change of mode destroys and makes anew.

    Raises `UnreachableLayoutError` when one of them would not get back what it has. Without a
    change of mode no other GPU is touched, for their counts agree.
    """
    gpu = observed.gpu(uuid)
    if gpu is None or not switches_mode(gpu, target):
        return ()
    cleared = [other for other in observed.gpus if other.uuid != uuid and other.instances]
    for other in cleared:
        table, present = tables.get(other.uuid), frozenset(other.layout)
        if table is None or landings(table, profiles_of(present)) != {present}:
            msg = (
                f"Switching MIG mode of GPU {gpu.index} makes mig-manager destroy and make anew the"
                f" instances of GPU {other.index}, and by counts they may land elsewhere. Empty GPU"
                f" {other.index} first, or give it a layout that can lie in one way only."
            )
            raise UnreachableLayoutError(msg)
    return tuple(cleared)


def touched_devices(
    gpu: ObservedGpu, target: Target, others: Iterable[ObservedGpu] = ()
) -> frozenset[str]:
    """Return the device ids whose holders are in the way: any change wipes the whole GPU."""
    if Target.of(gpu) == target:
        return frozenset()
    devices = {gpu.uuid} | {item.mig_uuid for item in gpu.instances}
    devices |= {item.mig_uuid for other in others for item in other.instances}
    return frozenset(device for device in devices if device)


def touched_resources(
    gpu: ObservedGpu, target: Target, others: Iterable[ObservedGpu] = ()
) -> frozenset[str]:
    """Return the resource names among which unknown holders have to be looked for."""
    if Target.of(gpu) == target:
        return frozenset()
    items = [item for each in (gpu, *others) for item in each.instances]
    names = {f"nvidia.com/mig-{item.profile}".replace("+", ".") for item in items}
    if not gpu.is_mig_enabled:
        names.add("nvidia.com/gpu")
    return frozenset(names)


def names(entries: Entries, index: int) -> bool:
    """Say whether a configuration says anything about the GPU of that index."""
    return any(e.get("devices") == "all" or index in _listed(e) for e in entries)


def can_be_judged(entries: Entries) -> bool:
    """Say whether the GPUs that a configuration means can be told: not past a device filter."""
    return not any(entry.get("device-filter") for entry in entries)


def agrees(entries: Entries, observed: ObservedNode) -> bool:
    """Say whether the GPUs have the modes and counts that a configuration names."""
    for gpu in observed.gpus:
        mine = [e for e in entries if e.get("devices") == "all" or gpu.index in _listed(e)]
        if not mine:
            continue
        entry, counts = mine[-1], Counter(item.profile for item in gpu.instances)
        wanted = Counter(entry.get("mig-devices") or {}) if entry.get("mig-enabled") else Counter()
        if gpu.is_mig_enabled != bool(entry.get("mig-enabled")) or counts != +wanted:
            return False
    return True


def read_configs(manifest: Mapping[str, Any] | None) -> dict[str, Entries]:
    """Return the configurations in a mig-parted ConfigMap by name; none of one that is not there.

    Raises `ConfigMapError` for one that cannot be read.
    """
    text = ((manifest or {}).get("data") or {}).get(CONFIG_KEY) or "{}"
    try:
        configs = (yaml.safe_load(text) or {}).get("mig-configs") or {}
    except (yaml.YAMLError, AttributeError) as error:
        msg = f"{CONFIG_KEY} of the mig-parted ConfigMap cannot be read: {error}"
        raise ConfigMapError(msg) from error
    if not isinstance(configs, dict):
        msg = f"{CONFIG_KEY} of the mig-parted ConfigMap has no mapping under mig-configs."
        raise ConfigMapError(msg)
    return configs


def with_config(
    configs: Mapping[str, Entries], wanted: Config, *, in_use: Iterable[str]
) -> dict[str, Entries]:
    """Return the configurations with one more; those of others stay, ours that nobody uses may go.

    There are always two or more: mig-manager applies a configuration that is alone when a node's
    label is taken away. Raises `ConfigMapError` when the name has another content already.
    """
    present = configs.get(wanted.name)
    if present is not None and present != wanted.entries:
        msg = (
            f"The mig-parted ConfigMap has another content under {wanted.name}, so somebody edited"
            " it in place; take that entry out and try again."
        )
        raise ConfigMapError(msg)
    off: Entries = [{"devices": "all", "mig-enabled": False, "mig-devices": {}}]
    kept = {HARMLESS: off, **configs, wanted.name: wanted.entries}
    used = {*in_use, wanted.name}
    spare = [name for name in kept if name.startswith(OUR_PREFIX) and name not in used]
    for name in spare[: max(0, len(spare) - _MOST_OF_OURS)]:
        del kept[name]
    return kept


def config_map(name: str, namespace: str, configs: Mapping[str, Entries]) -> dict[str, Any]:
    """Build the ConfigMap as mig-manager reads it."""
    text = yaml.safe_dump({"version": "v1", "mig-configs": dict(configs)}, sort_keys=False)
    meta = {"name": name, "namespace": namespace, "labels": dict(MANAGED_BY)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CONFIG_KEY: text}}


def paused_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the deploy labels that a mig-manager has paused, by key."""
    return tuple(
        sorted(k for k, v in labels.items() if k.startswith(DEPLOY_PREFIX) and v == MIG_PAUSED)
    )


def mounted_config_map(pod: Mapping[str, Any]) -> str | None:
    """Return the ConfigMap that a mig-manager's Pod reads its configurations from; None if none."""
    named = {
        str(volume.get("name")): str(volume["configMap"].get("name", ""))
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("configMap")
    }
    # The operator mounts others besides: the list of the host's clients, and its entry point.
    return named.get("mig-parted-config") or (
        next(iter(named.values())) if len(named) == 1 else None
    )


def _require_reachable(gpu: ObservedGpu, table: GpuTable, target: Target) -> None:
    if not target.is_mig_enabled:
        return
    layout = check_layout(table, [Instance(*pair) for pair in target.instances])
    pairs = frozenset((item.profile, item.start) for item in layout)
    found = landings(table, profiles_of(pairs))
    if pairs in found:
        return
    likely = likely_landing(table, pairs)
    if likely is None:
        way = "It has no order of making them that fits."
    else:
        way = f"It makes {_words(likely)}; ask for that, or for another layout."
    msg = (
        f"mig-manager is told counts, not places, so it cannot make {_words(pairs)} on GPU"
        f" {gpu.index}. {way}"
    )
    raise UnreachableLayoutError(msg)


def _entry(index: int, target: Target) -> dict[str, Any]:
    counts = Counter(profile for profile, _start in target.instances)
    return {
        "devices": [index],
        "mig-enabled": target.is_mig_enabled,
        "mig-devices": dict(sorted(counts.items())) if target.is_mig_enabled else {},
    }


def _words(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{p}@{s}" for p, s in sorted(pairs, key=lambda pair: pair[1])) or "nothing"


def _listed(entry: Mapping[str, Any]) -> tuple[int, ...]:
    devices = entry.get("devices")
    return tuple(devices) if isinstance(devices, list) else ()
