"""Judging what verification Pods saw: from their logs to a verdict with evidence."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop as _

from gpu.executors.probing import UnreadableProbeError, read_details
from gpu.planning.nvidia_smi import UnreadableOutputError, read_listing
from gpu.planning.tables import GpuTable

# Drivers differ by some tens of MiB in what they keep for themselves.
_MEMORY_TOLERANCE = 0.05

type Problem = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as a process inside a Pod sees it; an empty profile means a whole GPU."""

    uuid: str
    profile: str = ""
    memory_mib: int | None = None


def devices_seen(log: str) -> tuple[SeenDevice, ...]:
    """Return the devices that a verification Pod's log shows; none when it saw no GPU."""
    try:
        gpus = read_listing(log)
    except UnreadableOutputError:
        return ()
    try:
        details = read_details(log)
    except UnreadableProbeError:
        details = ()
    seen: list[SeenDevice] = []
    for gpu in gpus:
        if not gpu.devices:
            seen.append(SeenDevice(gpu.uuid))
        memory = {d.index: d.memory_mib for d in details if d.gpu_uuid == gpu.uuid}
        seen += [
            SeenDevice(device.uuid, device.profile, memory.get(device.index))
            for device in gpu.devices
        ]
    return tuple(seen)


def row(pod: str, resource: str, log: str) -> dict[str, Any]:
    """Return one line of evidence: which Pod asked for what and saw what."""
    seen = devices_seen(log)
    return {
        "pod": pod,
        "resource": resource,
        "devices": [
            {"uuid": d.uuid, "profile": d.profile, "memory_mib": d.memory_mib} for d in seen
        ],
    }


def problem(
    rows: Iterable[Mapping[str, Any]],
    new: Iterable[Mapping[str, Any]],
    table: GpuTable | None,
    shares: Mapping[str, int] | None = None,
) -> Problem | None:
    """Return what is wrong with the evidence, or None when it proves the change.

    Each Pod must see exactly one device, no instance may be seen more often than its resource has
    shares (one where `shares` names it not), and each new instance must be seen with the planned
    profile and its memory.
    """
    seen: dict[str, Mapping[str, Any]] = {}
    times: Counter[str] = Counter()
    for line in rows:
        devices = line["devices"]
        if len(devices) != 1:
            message = _("Verification Pod %(pod)s sees %(count)s devices instead of one.")
            return message, {"pod": line["pod"], "count": len(devices)}
        device = devices[0]
        # A Pod on a whole GPU names the GPU; shares of one GPU all do, and are told by count.
        times[device["uuid"]] += 1
        each = (shares or {}).get(line["resource"], 1)
        if device["profile"] and times[device["uuid"]] > each:
            return _too_often(device["uuid"], times[device["uuid"]], each)
        seen[device["uuid"]] = device
    for instance in new:
        wrong = _wrong(instance, seen.get(instance["uuid"]), table)
        if wrong:
            return wrong
    return None


def _too_often(uuid: str, count: int, each: int) -> Problem:
    if each == 1:
        return _("Device %(uuid)s is seen by two Pods."), {"uuid": uuid}
    message = _("Device %(uuid)s is seen by %(count)s Pods instead of %(each)s.")
    return message, {"uuid": uuid, "count": count, "each": each}


def sharing_problem(
    rows: Iterable[Mapping[str, Any]], shares: Mapping[str, int], devices: Mapping[str, int]
) -> Problem | None:
    """Return what is wrong with the evidence of a node's sharing, or None when it proves it.

    `shares` and `devices` say, by advertised resource, how many Pods are to see each device and how
    many devices there are. With fewer Pods than shares, as where a node cannot hold so many, no
    device may be seen too often and none not at all.
    """
    seen: dict[str, Counter[str]] = {name: Counter() for name in shares}
    for line in rows:
        if len(line["devices"]) != 1:
            message = _("Verification Pod %(pod)s sees %(count)s devices instead of one.")
            return message, {"pod": line["pod"], "count": len(line["devices"])}
        seen[line["resource"]][line["devices"][0]["uuid"]] += 1
    for name, each in shares.items():
        counts = seen[name]
        if len(counts) != devices[name]:
            message = _("%(key)s: the Pods saw %(seen)s different devices instead of %(all)s.")
            return message, {"key": name, "seen": len(counts), "all": devices[name]}
        is_complete = counts.total() == each * devices[name]
        for uuid, count in counts.items():
            if count > each or (is_complete and count != each):
                return _too_often(uuid, count, each)
    return None


def _wrong(
    instance: Mapping[str, Any], device: Mapping[str, Any] | None, table: GpuTable | None
) -> Problem | None:
    if device is None:
        message = _("New device %(uuid)s (%(profile)s) was not seen by any Pod.")
        return message, {"uuid": instance["uuid"], "profile": instance["profile"]}
    if device["profile"] != instance["profile"]:
        message = _("Device %(uuid)s is a %(seen)s instead of the planned %(profile)s.")
        return message, {
            "uuid": instance["uuid"],
            "seen": device["profile"] or "whole GPU",
            "profile": instance["profile"],
        }
    planned = table.profile(instance["profile"]).memory_mib if table else None
    memory = device["memory_mib"]
    if planned and memory and abs(memory - planned) > planned * _MEMORY_TOLERANCE:
        message = _("Device %(uuid)s has %(seen)s MiB instead of %(planned)s MiB.")
        return message, {"uuid": instance["uuid"], "seen": memory, "planned": planned}
    return None
