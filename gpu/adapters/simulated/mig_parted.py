"""What `mig-parted apply` does to a simulated node's GPUs, its silent successes included."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

from gpu.adapters.smi import hardware as hw
from gpu.adapters.smi.hardware import Hardware, Json

type Entries = list[dict[str, Any]]
_IN_USE = "error clearing MIG config: In use by another client"
_MOST_PROFILES = 7


class ApplyError(Exception):
    """mig-parted ended with an error; the text is what it printed."""


def apply(folder: Path, name: str, entries: Entries) -> None:
    """Bring a node's GPUs to one configuration; `ApplyError` when it says that it did not.

    No error does not mean that anything was done: a profile that there is not, a device that there
    is not and a filter that matches nothing all end well.
    """
    hardware = Hardware(str(folder))
    if not hardware.load():
        msg = "error initializing NVML: driver not loaded"
        raise ApplyError(msg)
    with hardware.locked():
        hardware.load()
        try:
            _apply(hardware, entries)
        finally:
            hardware.save()
    hardware.note(["mig-parted", "apply", "-c", name])


def is_applied(folder: Path, entries: Entries) -> bool:
    """Say whether every GPU that a configuration names has its mode and its counts already."""
    hardware = Hardware(str(folder))
    hardware.load()
    return all(
        gpu["mig"] == bool(entry.get("mig-enabled")) and counts_of(gpu) == _counts(entry)
        for gpu, entry in _named(hardware, entries)
    )


def counts_of(gpu: Json) -> Counter[str]:
    """Return how many instances of each profile a GPU has; nothing while MIG is off."""
    return Counter(item["profile"] for item in gpu["instances"] if gpu["mig"])


def _apply(hardware: Hardware, entries: Entries) -> None:
    named = list(_named(hardware, entries))
    capable = [(gpu, entry) for gpu, entry in named if gpu["profiles"]]
    if any(bool(e.get("mig-enabled")) and not g["profiles"] for g, e in named):
        msg = "error setting MIG mode: MIG is not supported by this GPU"
        raise ApplyError(msg)
    if any(_switches(gpu, entry) for gpu, entry in capable):
        _change_modes(hardware, capable)
    for gpu, entry in capable:
        if gpu["mig"] and counts_of(gpu) != _counts(entry):
            _change_layout(hardware, gpu, _counts(entry))


def _change_modes(hardware: Hardware, named: list[tuple[Json, Mapping[str, Any]]]) -> None:
    """Clear the instances of every GPU named, then switch; a reset is one of all of them."""
    busy = [g for g, e in named if hardware.is_gpu_held(g) and (g["instances"] or _switches(g, e))]
    if hardware.faults.get("destroy_in_use") or busy:
        raise ApplyError(_IN_USE)
    for gpu, _entry in named:
        gpu["instances"] = []
    needs_reset = False
    for gpu, entry in named:
        gpu["mig_pending"] = bool(entry.get("mig-enabled"))
        if not _switches(gpu, entry):
            continue
        if hardware.faults.get("mig_mode_needs_reboot"):
            continue  # not returned as an error: the run goes on to the layout step
        needs_reset |= gpu["mode_needs_reset"]
        if not gpu["mode_needs_reset"]:
            gpu["mig"] = gpu["mig_pending"]
    if not needs_reset:
        return
    if hardware.faults.get("reset_refused") or any(hardware.is_gpu_held(g) for g, _e in named):
        msg = "error resetting GPUs: In use by another client"
        raise ApplyError(msg)
    for gpu, _entry in named:
        hw.reset_gpu(gpu)


def _switches(gpu: Json, entry: Mapping[str, Any]) -> bool:
    return bool(gpu["mig"] != bool(entry.get("mig-enabled")))


def _change_layout(hardware: Hardware, gpu: Json, wanted: Counter[str]) -> None:
    if hardware.faults.get("destroy_in_use") or hardware.is_gpu_held(gpu):
        raise ApplyError(_IN_USE)
    gpu["instances"] = []
    known = {profile["name"]: profile for profile in gpu["profiles"]}
    if not wanted.keys() <= known.keys():
        return  # passes validation, has destroyed everything, and ends well
    if hardware.faults.get("create_fails"):
        msg = "error creating GPU instance: Insufficient Resources"
        raise ApplyError(msg)
    for order in _orders(wanted, known):
        gpu["instances"] = []
        if all(_create(gpu, known[name]) for name in order):
            return
    gpu["instances"] = []
    msg = "error setting MIGConfig: all combinations of profiles failed: Insufficient Resources"
    raise ApplyError(msg)


def _orders(wanted: Counter[str], known: Mapping[str, Json]) -> Iterable[tuple[str, ...]]:
    names = sorted(wanted.elements(), key=lambda name: known[name]["memory_slices"])
    if len(names) > _MOST_PROFILES:
        return [tuple(names)]
    return dict.fromkeys(permutations(names))


def _create(gpu: Json, profile: Json) -> bool:
    made = hw.create_instance(gpu, profile, None)
    return not isinstance(made, int) and not isinstance(hw.create_compute(gpu, made), int)


def _named(hardware: Hardware, entries: Entries) -> Iterator[tuple[Json, Mapping[str, Any]]]:
    """Yield each GPU that there is with the last entry that names it."""
    for index, gpu in enumerate(hardware.gpus):
        mine = [e for e in entries if _names(e, index) and _passes_filter(e, gpu)]
        if mine:
            yield gpu, mine[-1]


def _names(entry: Mapping[str, Any], index: int) -> bool:
    devices = entry.get("devices")
    return devices == "all" or (isinstance(devices, list) and index in devices)


def _passes_filter(entry: Mapping[str, Any], gpu: Json) -> bool:
    wanted = entry.get("device-filter")
    if not wanted:
        return True
    return gpu["device_id"].lower() in [
        str(item).lower() for item in (wanted if isinstance(wanted, list) else [wanted])
    ]


def _counts(entry: Mapping[str, Any]) -> Counter[str]:
    if not entry.get("mig-enabled"):
        return Counter()
    return Counter({name: int(n) for name, n in (entry.get("mig-devices") or {}).items() if n})
