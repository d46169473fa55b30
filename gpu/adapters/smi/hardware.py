"""The simulated hardware of a node: GPUs, MIG mode and instances in one JSON file.

Writers hold an exclusive lock and replace the file in one rename. `held.json` beside it names the
devices that running Pods hold; a device in it is "in use by another client".
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

type Json = dict[str, Any]

OK = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
IN_USE = 19
INSUFFICIENT_RESOURCES = 23
UNKNOWN = 255

SENTENCES = {
    OK: "Success",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    IN_USE: "In use by another client",
    INSUFFICIENT_RESOURCES: "Insufficient Resources",
    UNKNOWN: "Unknown Error",
}
_ENGINES = ("dec", "enc", "jpeg", "ofa")
_UUID_CUTS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))


class Hardware:
    """One node's GPUs as their driver knows them."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.state: Json = {"gpus": []}
        self.faults: Json = {}
        self._held: frozenset[str] = frozenset()

    def load(self) -> bool:
        """Read what is there; False when there is no driver to ask."""
        state = _read(self._path("state.json"))
        if state is None:
            return False
        self.state = state
        self.faults = _read(self._path("faults.json")) or {}
        self._held = frozenset(_read(self._path("held.json")) or {})
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the writers' lock for the block."""
        with open(self._path("lock"), "w", encoding="utf-8") as lock:  # noqa: PTH123  # no pathlib
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def save(self) -> None:
        """Replace the state file; the caller holds the lock."""
        write_json(self._path("state.json"), self.state)

    def note(self, words: list[str]) -> None:
        """Write a changing command into the node's own history."""
        with open(self._path("history"), "a", encoding="utf-8") as history:  # noqa: PTH123
            history.write(" ".join(words) + "\n")

    @property
    def gpus(self) -> list[Json]:
        """Return the GPUs by index."""
        gpus: list[Json] = self.state["gpus"]
        return gpus

    def is_held(self, uuid: str) -> bool:
        """Say whether some program holds the device."""
        return uuid in self._held

    def is_gpu_held(self, gpu: Json) -> bool:
        """Say whether some program holds the GPU or any of its MIG devices."""
        return self.is_held(gpu["uuid"]) or any(
            self.is_held(compute["uuid"])
            for instance in gpu["instances"]
            for compute in instance["compute"]
        )

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def write_json(path: str, value: object) -> None:
    """Replace a JSON file in one rename."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123  # no pathlib here
        json.dump(value, file)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _read(path: str) -> Json | None:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # no pathlib here
            found: Json = json.load(file)
    except FileNotFoundError:
        return None
    return found


def profile_of(gpu: Json, instance: Json) -> Json:
    """Return the profile of an instance."""
    return next(p for p in gpu["profiles"] if p["name"] == instance["profile"])


def instance_by_id(gpu: Json, gi_id: int) -> Json | None:
    """Return the GPU instance with that id, if there is one."""
    return next((i for i in gpu["instances"] if i["id"] == gi_id), None)


def free_count(gpu: Json, profile: Json) -> int:
    """Return how many more instances of the profile fit now."""
    count = end = 0
    for start in profile["starts"]:
        if start >= end and _is_free(gpu, profile, start):
            count += 1
            end = start + profile["memory_slices"]
    while count and not _has_room(gpu, profile, count):
        count -= 1
    return count


def create_instance(gpu: Json, profile: Json, start: int | None) -> Json | int:
    """Make a GPU instance at `start`, or where the driver likes; an int is the refusal's code."""
    if start is not None and start not in profile["starts"]:
        return INVALID_ARGUMENT
    if not _has_room(gpu, profile, 1):
        return INSUFFICIENT_RESOURCES
    starts = profile["starts"] if start is None else [start]
    place = next((s for s in starts if _is_free(gpu, profile, s)), None)
    if place is None:
        return INSUFFICIENT_RESOURCES
    instance: Json = {
        "id": _free_id(gpu, profile),
        "profile": profile["name"],
        "start": place,
        "compute": [],
    }
    gpu["instances"].append(instance)
    gpu["instances"].sort(key=lambda item: item["id"])
    return instance


def create_compute(gpu: Json, instance: Json) -> Json | int:
    """Make the compute instance that fills a GPU instance; an int is the refusal's code."""
    if instance["compute"]:
        return INSUFFICIENT_RESOURCES
    compute = {"id": 0, "uuid": _mig_uuid(gpu, instance)}
    instance["compute"].append(compute)
    return compute


def switch_mig(hardware: Hardware, gpu: Json, *, on: bool) -> tuple[bool, int]:
    """Ask for MIG mode; return whether it waits for a reset, and the driver's code."""
    if not gpu["profiles"]:
        return False, NOT_SUPPORTED
    if gpu["mig"] == on:
        gpu["mig_pending"] = on
        return False, OK
    if gpu["instances"]:
        return False, IN_USE
    gpu["mig_pending"] = on
    if hardware.is_gpu_held(gpu):
        return True, IN_USE
    if gpu["mode_needs_reset"]:
        return True, NOT_SUPPORTED
    gpu["mig"] = on
    return False, OK


def reset_gpu(gpu: Json) -> None:
    """Take a pending mode into force and forget all instances."""
    if gpu["profiles"]:
        gpu["mig"] = gpu["mig_pending"]
    gpu["instances"] = []


def _is_free(gpu: Json, profile: Json, start: int) -> bool:
    end = start + profile["memory_slices"]
    return all(
        end <= other["start"] or other["start"] + profile_of(gpu, other)["memory_slices"] <= start
        for other in gpu["instances"]
    )


def _has_room(gpu: Json, profile: Json, more: int) -> bool:
    others = [profile_of(gpu, instance) for instance in gpu["instances"]]
    same = sum(other["id"] == profile["id"] for other in others)
    return same + more <= profile["max_instances"] and all(
        sum(other[engine] for other in others) + more * profile[engine] <= gpu["engines"][engine]
        for engine in _ENGINES
    )


def _free_id(gpu: Json, profile: Json) -> int:
    # Ids go by size as drivers give them: 0 for all, 1 and 2 for halves, 3 to 6, then 7 on.
    found, part = 0, gpu["memory_slices"]
    while part // 2 >= profile["memory_slices"]:
        found, part = 2 * found + 1, part // 2
    while instance_by_id(gpu, found) is not None:
        found += 1
    return found


def _mig_uuid(gpu: Json, instance: Json) -> str:
    name = f"{gpu['uuid']}/{instance['profile']}@{instance['start']}/{instance['id']}/0"
    digest = bytearray(hashlib.sha1(name.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return "MIG-" + "-".join(digest[start:end].hex() for start, end in _UUID_CUTS)
