"""What NVIDIA's components make of a node's hardware, and where that hardware is kept."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu.adapters.simulated.plugin_config import NOT_SHARED, PluginConfig
from gpu.adapters.smi.hardware import Json, write_json

WHOLE = "nvidia.com/gpu"
_FEATURE = re.compile(
    r"nvidia\.com/(cuda\.|mig-|(mig\.capable|mig\.strategy|mps\.capable|vgpu\.present)$"
    r"|gpu\.(compute\.|(count|family|machine|memory|mode|present|product|replicas|sharing-strategy)$))"
)


class NodeFiles:
    """Where the hardware of all nodes is kept: a folder for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, node: str) -> Path:
        """Return the folder of a node's GPUs."""
        return self.folder / node

    def state(self, node: str) -> Json:
        """Return what the node's driver knows; a node without hardware has no GPUs."""
        path = self.of(node) / "state.json"
        state: Json = json.loads(path.read_text()) if path.exists() else {"gpus": []}
        return state

    def install(self, node: str, state: Json) -> None:
        """Put hardware into a node; nothing stays of what was there before."""
        shutil.rmtree(self.of(node), ignore_errors=True)
        self.of(node).mkdir(parents=True)
        write_json(str(self.of(node) / "state.json"), state)

    def set_held(self, node: str, held: Mapping[str, str]) -> None:
        """Say which devices running programs hold, and whose they are."""
        if self.of(node).exists():
            write_json(str(self.of(node) / "held.json"), dict(held))

    def set_faults(self, node: str, faults: Mapping[str, bool]) -> None:
        """Switch faults of the node's driver."""
        if self.of(node).exists():
            write_json(str(self.of(node) / "faults.json"), dict(faults))

    def history(self, node: str) -> list[str]:
        """Return the changing commands that succeeded on the node, in order."""
        path = self.of(node) / "history"
        return path.read_text().splitlines() if path.exists() else []


def listed_devices(state: Json, config: PluginConfig = NOT_SHARED) -> dict[str, list[str]]:
    """Return what the plugin registers when it starts now: device ids by advertised name."""
    found: dict[str, list[str]] = {}
    for gpu in state["gpus"]:
        if not gpu["mig"]:
            found.setdefault(config.name(WHOLE), []).extend(config.ids(WHOLE, gpu["uuid"]))
            continue
        for instance in gpu["instances"]:
            name = f"nvidia.com/mig-{instance['profile']}".replace("+", ".")
            for compute in instance["compute"]:
                ids = config.ids(name, compute["uuid"])
                found.setdefault(config.name(name), []).extend(ids)
    return found


def is_feature_label(key: str) -> bool:
    """Say whether a label is one that GPU Feature Discovery writes and takes away."""
    return bool(_FEATURE.match(key))


def feature_labels(state: Json, config: PluginConfig = NOT_SHARED) -> dict[str, str]:
    """Return the labels that GPU Feature Discovery writes, strategy mixed."""
    gpus = state["gpus"]
    if not gpus:
        return {}
    first = gpus[0]
    replicas = config.shares(WHOLE)
    is_shared = replicas > 1
    whole = sum(not gpu["mig"] for gpu in gpus)
    product = first["name"].replace(" ", "-")
    has_suffix = is_shared and not config.is_renamed
    labels = {
        **_versions(state, first),
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.family": first["family"],
        "nvidia.com/gpu.machine": "unknown",
        "nvidia.com/gpu.memory": str(first["memory_mib"]),
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": f"{product}-SHARED" if has_suffix else product,
        "nvidia.com/gpu.replicas": str(replicas) if whole else "0",
        "nvidia.com/gpu.sharing-strategy": config.strategy if is_shared else "none",
        "nvidia.com/mig.capable": str(bool(first["profiles"])).lower(),
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
    }
    return labels | _mig_labels(state, product, config)


def _versions(state: Json, gpu: Json) -> dict[str, str]:
    driver, cuda = state["driver_version"].split("."), state["cuda_version"].split(".")
    major, minor = gpu["compute_capability"].split(".")
    return {
        "nvidia.com/cuda.driver-version.full": state["driver_version"],
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2],
        "nvidia.com/cuda.driver.major": driver[0],
        "nvidia.com/cuda.driver.minor": driver[1],
        "nvidia.com/cuda.driver.rev": driver[2],
        "nvidia.com/cuda.runtime-version.full": state["cuda_version"],
        "nvidia.com/cuda.runtime-version.major": cuda[0],
        "nvidia.com/cuda.runtime-version.minor": cuda[1],
        "nvidia.com/cuda.runtime.major": cuda[0],
        "nvidia.com/cuda.runtime.minor": cuda[1],
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
    }


def _mig_labels(state: Json, product: str, config: PluginConfig) -> dict[str, str]:
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for gpu in state["gpus"]:
        profiles: dict[str, dict[str, Any]] = {p["name"]: p for p in gpu["profiles"]}
        for instance in gpu["instances"] if gpu["mig"] else ():
            profile = profiles[instance["profile"]]
            prefix = f"nvidia.com/mig-{profile['name']}".replace("+", ".")
            counts[prefix] = counts.get(prefix, 0) + 1
            replicas = config.shares(prefix)
            found |= {
                f"{prefix}.count": str(counts[prefix]),
                f"{prefix}.memory": str(profile["memory_mib"]),
                f"{prefix}.product": f"{product}-MIG-{profile['name']}".replace("+", "."),
                f"{prefix}.replicas": str(replicas),
                f"{prefix}.sharing-strategy": config.strategy if replicas > 1 else "none",
                f"{prefix}.slices.gi": str(profile["compute_slices"]),
                f"{prefix}.slices.ci": str(profile["compute_slices"]),
                f"{prefix}.multiprocessors": str(profile["sm"]),
                f"{prefix}.engines.copy": str(profile["ce"]),
                f"{prefix}.engines.decoder": str(profile["dec"]),
                f"{prefix}.engines.encoder": str(profile["enc"]),
                f"{prefix}.engines.jpeg": str(profile["jpeg"]),
                f"{prefix}.engines.ofa": str(profile["ofa"]),
            }
    return found
