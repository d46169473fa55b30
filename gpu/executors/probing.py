"""From a probe's log to what is on a node's GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass

from defusedxml import ElementTree

from gpu.executors.scripts import PROBE_COMMANDS, Section, sections
from gpu.planning.driver_tables import driver_table
from gpu.planning.nvidia_smi import (
    ComputeInstanceRow,
    GpuInstanceRow,
    GpuRow,
    ListedGpu,
    read_compute_instances,
    read_gpu_instances,
    read_gpus,
    read_listing,
    read_profiles,
)
from gpu.planning.observed import ObservedGpu, ObservedInstance, ObservedNode
from gpu.planning.profiles import MigProfile

# nvidia-smi answers these with a status of their own; they are findings, not failures.
_NONE = (
    "No MIG-enabled devices found",
    "No MIG-supported devices found",
    "No GPU instances found",
    "No compute instances found",
)


class UnreadableProbeError(ValueError):
    """The probe did not print what was asked of it; the text says which command and why."""


@dataclass(frozen=True, slots=True)
class MigDeviceDetail:
    """A MIG device as `-q -x` ties it to its instances; memory in MiB."""

    gpu_uuid: str
    index: int
    gi_id: int
    ci_id: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class _Texts:
    listing: tuple[ListedGpu, ...]
    instances: tuple[GpuInstanceRow, ...]
    compute: tuple[ComputeInstanceRow, ...]
    profiles: dict[int, tuple[MigProfile, ...]]
    details: tuple[MigDeviceDetail, ...]


def read_probe(log: str) -> ObservedNode:
    """Return what the probe saw; `UnreadableProbeError` when a command that must work did not."""
    found = sections(log)
    listing, query, gi, ci = (_required(found, PROBE_COMMANDS[index]) for index in (0, 1, 4, 5))
    texts = _Texts(
        read_listing(listing),
        read_gpu_instances(gi),
        read_compute_instances(ci),
        _profiles(found),
        read_details(_required(found, PROBE_COMMANDS[6])),
    )
    return ObservedNode(tuple(_gpu(row, texts) for row in read_gpus(query)))


def read_details(xml: str) -> tuple[MigDeviceDetail, ...]:
    """Read the MIG devices out of `nvidia-smi -q -x`, which alone names their instances."""
    start = xml.find("<nvidia_smi_log")
    end = xml.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0:
        msg = "`nvidia-smi -q -x` printed no report."
        raise UnreadableProbeError(msg)
    try:
        root = ElementTree.fromstring(xml[start : end + len("</nvidia_smi_log>")])
    except ElementTree.ParseError as error:
        msg = f"`nvidia-smi -q -x` printed a report that cannot be read ({error})."
        raise UnreadableProbeError(msg) from error
    return tuple(
        MigDeviceDetail(
            gpu_uuid=gpu.findtext("uuid", "").strip(),
            index=int(device.findtext("index", "-1")),
            gi_id=int(device.findtext("gpu_instance_id", "-1")),
            ci_id=int(device.findtext("compute_instance_id", "-1")),
            memory_mib=_mib(device.findtext("fb_memory_usage/total")),
        )
        for gpu in root.iter("gpu")
        for device in gpu.iter("mig_device")
    )


def _mib(text: str | None) -> int | None:
    number = (text or "").partition(" ")[0]
    return int(number) if number.isdigit() else None


def _required(found: dict[str, Section], command: str) -> str:
    section = found.get(command)
    if section is None:
        msg = f"The probe ended before `nvidia-smi {command}`."
        raise UnreadableProbeError(msg)
    if section.return_code != 0 and not _says_none(section.text):
        words = " ".join(section.text.split())[:300] or "no output"
        msg = f"`nvidia-smi {command}` failed with status {section.return_code}: {words}"
        raise UnreadableProbeError(msg)
    return section.text


def _says_none(text: str) -> bool:
    return any(words in text for words in _NONE)


def _profiles(found: dict[str, Section]) -> dict[int, tuple[MigProfile, ...]]:
    """Read the driver's own tables; old drivers keep them to themselves while MIG is off."""
    texts = [found[c].text for c in PROBE_COMMANDS[2:4] if c in found and found[c].return_code == 0]
    if len(texts) < 2 or any(_says_none(text) for text in texts):  # noqa: PLR2004  # both of two
        return {}
    return read_profiles("\n".join(texts))


def _gpu(row: GpuRow, texts: _Texts) -> ObservedGpu:
    profiles = texts.profiles.get(row.index)
    table = None
    if profiles:
        table = driver_table(profiles, product=row.name, memory_mib=row.memory_mib)
    return ObservedGpu(
        index=row.index,
        uuid=row.uuid,
        name=row.name,
        memory_mib=row.memory_mib or 0,
        driver_version=row.driver_version,
        is_mig_enabled=bool(row.is_mig_enabled),
        is_mig_pending=bool(row.is_mig_pending),
        instances=tuple(
            _instance(item, row, texts) for item in texts.instances if item.gpu == row.index
        ),
        table=table,
    )


def _instance(item: GpuInstanceRow, gpu: GpuRow, texts: _Texts) -> ObservedInstance:
    compute = [c for c in texts.compute if (c.gpu, c.gi_id) == (item.gpu, item.gi_id)]
    full = [c.ci_id for c in compute if c.fills]
    return ObservedInstance(
        gi_id=item.gi_id,
        profile=item.profile,
        profile_id=item.profile_id,
        placement=item.placement,
        ci_ids=tuple(c.ci_id for c in compute),
        mig_uuid=_uuid(texts, gpu.uuid, item.gi_id, full) if full else "",
    )


def _uuid(texts: _Texts, gpu_uuid: str, gi_id: int, ci_ids: Iterable[int]) -> str:
    wanted = set(ci_ids)
    index = next(
        (
            detail.index
            for detail in texts.details
            if detail.gpu_uuid == gpu_uuid and detail.gi_id == gi_id and detail.ci_id in wanted
        ),
        None,
    )
    devices = next((gpu.devices for gpu in texts.listing if gpu.uuid == gpu_uuid), ())
    return next((device.uuid for device in devices if device.index == index), "")
