"""The hardware of a lab node: one JSON file that the stand-ins share and a test may edit."""

import fcntl
import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

type Json = dict[str, Any]

DRIVER_VERSION = "580.159.04"
CUDA_VERSION = "13.0"
_MODELS = Path(__file__).with_name("gpu_models.json")


def models() -> dict[str, Json]:
    """Return the models' facts by id; figures that nobody published are in proportion."""
    return {model["id"]: model for model in json.loads(_MODELS.read_text())}


def new_state(node: str, model_ids: Sequence[str]) -> Json:
    """Return the state of a node that has just been installed with these models, MIG mode off."""
    known = models()
    return {
        "driver_version": DRIVER_VERSION,
        "cuda_version": CUDA_VERSION,
        "gpus": [_gpu(known[model], node, index) for index, model in enumerate(model_ids)],
    }


def _gpu(model: Json, node: str, index: int) -> Json:
    facts = {key: value for key, value in model.items() if key != "id"}
    return {
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}.slicedesk.test')}",
        "bus_id": f"00000000:{index + 6:02X}:00.0",
        **facts,
        "mig": False,
        "mig_pending": False,
        "instances": [],
    }


@dataclass(frozen=True, slots=True)
class Gpus:
    """One node's state directory; `nvidia_smi` is the built stand-in."""

    directory: Path
    nvidia_smi_program: Path

    def read(self) -> Json:
        """Return the state as it is now."""
        state: Json = json.loads((self.directory / "state.json").read_text())
        return state

    @contextmanager
    def edit(self) -> Iterator[Json]:
        """Yield the state to change in place; it replaces the file when the block ends well."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            exists = (self.directory / "state.json").exists()
            state = self.read() if exists else {}
            yield state
            self._write(state)

    def install(self, state: Json) -> None:
        """Replace the whole state."""
        with self.edit() as present:
            present.clear()
            present.update(state)

    def reboot(self) -> None:
        """Do what a reboot does: instances go, and so does MIG mode where it is volatile."""
        with self.edit() as state:
            for gpu in state["gpus"]:
                gpu["instances"] = []
                gpu["mig"] = gpu["mig_pending"] = gpu["mig_pending"] and gpu["mode_survives_reboot"]

    def nvidia_smi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `nvidia-smi` as on the node itself."""
        return subprocess.run(  # noqa: S603
            [self.nvidia_smi_program, *arguments],
            env={"STANDIN_GPUS": str(self.directory)},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    @contextmanager
    def held(self, uuid: str) -> Iterator[None]:
        """Hold a GPU or MIG device open for the block, as a running CUDA program does."""
        with (self.directory / "clients" / uuid).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    def _write(self, state: Json) -> None:
        clients = self.directory / "clients"
        clients.mkdir(exist_ok=True)
        for gpu in state["gpus"]:
            (clients / gpu["uuid"]).touch()
            for instance in gpu["instances"]:
                for compute in instance["compute"]:
                    (clients / compute["uuid"]).touch()
        unfinished = self.directory / "state.json.new"
        unfinished.write_text(json.dumps(state, indent=1))
        os.replace(unfinished, self.directory / "state.json")  # noqa: PTH105


def feature_labels(state: Json) -> dict[str, str]:
    """Return the node labels that GPU Feature Discovery writes for this state, strategy mixed."""
    gpus = state["gpus"]
    if not gpus:
        return {}
    first = gpus[0]
    driver, cuda = state["driver_version"].split("."), state["cuda_version"].split(".")
    major, minor = first["compute_capability"].split(".")
    labels = {
        "cuda.driver-version.full": state["driver_version"],
        "cuda.driver-version.major": driver[0],
        "cuda.driver-version.minor": driver[1],
        "cuda.driver-version.revision": driver[2],
        "cuda.runtime-version.full": state["cuda_version"],
        "cuda.runtime-version.major": cuda[0],
        "cuda.runtime-version.minor": cuda[1],
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
        "gpu.count": str(len(gpus)),
        "gpu.family": first["family"],
        "gpu.machine": "unknown",
        "gpu.memory": str(first["memory_mib"]),
        "gpu.mode": "compute",
        "gpu.present": "true",
        "gpu.product": first["name"].replace(" ", "-"),
        "gpu.replicas": "1" if any(not gpu["mig"] for gpu in gpus) else "0",
        "gpu.sharing-strategy": "none",
        "mig.capable": str(any(gpu["profiles"] for gpu in gpus)).lower(),
        "mig.strategy": "mixed",
        "mps.capable": "false",
        "vgpu.present": "false",
    }
    for gpu in gpus:
        for instance in gpu["instances"]:
            labels.update(_profile_labels(gpu, instance["profile"], labels))
    return {f"nvidia.com/{key}": value for key, value in labels.items()}


def _profile_labels(gpu: Json, name: str, labels: dict[str, str]) -> dict[str, str]:
    profile = next(profile for profile in gpu["profiles"] if profile["name"] == name)
    prefix = f"mig-{name.replace('+', '.')}"
    values = {
        "count": int(labels.get(f"{prefix}.count", "0")) + 1,
        "replicas": 1,
        "sharing-strategy": "none",
        "product": f"{gpu['name'].replace(' ', '-')}-MIG-{name.replace('+', '.')}",
        "memory": profile["memory_mib"],
        "multiprocessors": profile["sm"],
        "slices.gi": profile["compute_slices"],
        "slices.ci": profile["compute_slices"],
        "engines.copy": profile["ce"],
        "engines.decoder": profile["dec"],
        "engines.encoder": profile["enc"],
        "engines.jpeg": profile["jpeg"],
        "engines.ofa": profile["ofa"],
    }
    return {f"{prefix}.{key}": str(value) for key, value in values.items()}
