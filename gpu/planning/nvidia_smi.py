"""Readers of what nvidia-smi prints: pure text in, rows out.

Each reader takes a whole log, in which headings, prompts, shell traces, carriage returns and the
output of other commands may stand around what it looks for. A text in which the wanted output does
not appear is an error, never an empty answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from gpu.planning.errors import PlanningError
from gpu.planning.placements import Placement
from gpu.planning.profiles import Engines, InvalidProfileError, MigProfile, ProfileName

_MIB_STEP = 64  # the driver gives instances memory in steps of this many MiB
_CENT = 0.0051  # nvidia-smi prints GiB with two decimals


class UnreadableOutputError(PlanningError):
    """The text is not what nvidia-smi prints; `line` counts from 1, or is 0 for the whole text."""

    def __init__(self, reason: str, line: int = 0) -> None:
        self.reason = reason
        self.line = line
        where = f"Line {line} of" if line else "In"
        super().__init__(f"{where} the nvidia-smi text {reason}.")


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU as ``--query-gpu`` shows it; memory in MiB, ``None`` for what it would not tell.

    `is_mig_enabled` is ``None`` on a GPU that cannot do MIG; `is_mig_pending` is the mode that the
    next reset brings.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_mib: int | None
    driver_version: str
    is_mig_enabled: bool | None
    is_mig_pending: bool | None


@dataclass(frozen=True, slots=True)
class GpuInstanceRow:
    """A GPU instance as ``mig -lgi`` shows it."""

    gpu: int
    profile: str
    profile_id: int
    gi_id: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class ComputeInstanceRow:
    """A compute instance as ``mig -lci`` shows it.

    `fills` says whether it is the whole GPU instance; a smaller one is not offered by Kubernetes.
    """

    gpu: int
    gi_id: int
    profile: str
    profile_id: int
    ci_id: int

    @property
    def fills(self) -> bool:
        """Return whether it takes the whole of its GPU instance."""
        return "c." not in self.profile


@dataclass(frozen=True, slots=True)
class MigDeviceRow:
    """A MIG device of a GPU as ``-L`` shows it, in the driver's order."""

    index: int
    profile: str
    uuid: str


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU as ``-L`` shows it, with its MIG devices."""

    index: int
    name: str
    uuid: str
    devices: tuple[MigDeviceRow, ...] = ()


_GPU = re.compile(r"\bGPU (\d+): (.+?) \(UUID: (GPU-[^\s)]+)\)")
_DEVICE = re.compile(r"\bMIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^\s)]+)\)")
_INSTANCE = re.compile(r"\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s*\|")
_COMPUTE = re.compile(r"\|\s*(\d+)\s+(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)(?:\s+\d+:\d+)?\s*\|")
_PROFILE = re.compile(
    r"\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+\d+/(\d+)\s+([\d.]+)\s+(?:Yes|No)"
    r"\s+(\d+)\s+(\d+)\s+(\d+)\s*\|"
)
_PROFILE_LIKE = re.compile(r"\|\s*\d+\s+MIG\s+\d+g\.\S+\s+\d+\s+\d+/")
_ENGINES = re.compile(r"\|\s+(\d+)\s+(\d+)\s+(\d+)\s*\|")
_PLACEMENTS = re.compile(
    r"\bGPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}:(\d+)"
)
_PLACEMENTS_LIKE = re.compile(r"\bProfile ID\s+\d+\s+Placement")
_HEADING = re.compile(r"\|\s*([A-Za-z ]+:)\s*(?:\||$)")
_LINE_STARTS_LIKE_AN_ITEM = re.compile(r"\|\s*\d+\s+(\d+\s+)?MIG\b")

_NOT_CAPABLE = "No MIG-supported devices found"
_NOT_ENABLED = "No MIG-enabled devices found"
_NO_GPU = "No devices were found"


def read_gpus(text: str) -> tuple[GpuRow, ...]:
    """Read ``--query-gpu=index,uuid,name,… --format=csv``, its columns in any order."""
    rows: dict[int, GpuRow] = {}
    columns: list[str] = []
    is_inside = False
    for number, line in _lines(text):
        cells = [cell.strip() for cell in line.split(",")]
        if "index" in cells and "uuid" in cells:
            columns = [cell.partition(" [")[0] for cell in cells]
            is_inside = True
        elif is_inside and cells[0].isdecimal():
            if len(cells) != len(columns):
                reason = f"a GPU's row has {len(cells)} cells under {len(columns)} headings"
                _refuse(reason, number)
            row = _gpu_row(dict(zip(columns, cells, strict=True)))
            rows[row.index] = row
        else:
            is_inside = False
    if not columns and _NO_GPU not in text:
        reason = "there is no table of GPUs: `nvidia-smi --query-gpu=… --format=csv` prints one"
        _refuse(reason)
    return tuple(rows.values())


def read_listing(text: str) -> tuple[ListedGpu, ...]:
    """Read ``nvidia-smi -L``: each GPU with its MIG devices."""
    gpus: list[ListedGpu] = []
    for number, line in _lines(text):
        if match := _GPU.search(line):
            gpus.append(ListedGpu(int(match[1]), match[2], match[3]))
        elif match := _DEVICE.search(line):
            if not gpus:
                _refuse("there is a MIG device before any GPU", number)
            device = MigDeviceRow(int(match[2]), match[1], match[3])
            gpus[-1] = replace(gpus[-1], devices=(*gpus[-1].devices, device))
    if not gpus and _NO_GPU not in text:
        _refuse("there is no GPU: `nvidia-smi -L` lists them")
    return tuple(gpus)


def read_gpu_instances(text: str) -> tuple[GpuInstanceRow, ...]:
    """Read ``nvidia-smi mig -lgi``; nothing when it says that there are none."""
    rows = []
    _require(text, "GPU instances:", "No GPU instances found", "mig -lgi")
    for number, line in _section(text, "GPU instances:"):
        match = _INSTANCE.search(line)
        if match is None:
            _refuse("a GPU instance's row is cut off", number)
        gpu, profile, profile_id, gi_id, start, size = match.groups()
        place = _placement(int(start), int(size), number)
        name = _profile_name(profile, number)
        rows.append(GpuInstanceRow(int(gpu), name, int(profile_id), int(gi_id), place))
    return tuple(rows)


def read_compute_instances(text: str) -> tuple[ComputeInstanceRow, ...]:
    """Read ``nvidia-smi mig -lci``, of old drivers too; nothing when there are none."""
    rows = []
    _require(text, "Compute instances:", "No compute instances found", "mig -lci")
    for number, line in _section(text, "Compute instances:"):
        match = _COMPUTE.search(line)
        if match is None:
            _refuse("a compute instance's row is cut off", number)
        gpu, gi_id, profile, profile_id, ci_id = match.groups()
        row = ComputeInstanceRow(int(gpu), int(gi_id), profile, int(profile_id), int(ci_id))
        rows.append(row)
    return tuple(rows)


def read_profiles(text: str) -> dict[int, tuple[MigProfile, ...]]:
    """Read ``mig -lgip`` and ``mig -lgipp``: the profiles of each GPU by its index.

    Nothing when nvidia-smi says that no GPU supports MIG.
    """
    profiles = _bare_profiles(text)
    placements = _placements(text)
    if not profiles:
        if _NOT_CAPABLE in text:
            return {}
        _refuse("there are no profiles: `nvidia-smi mig -lgip` lists them")
    result: dict[int, list[MigProfile]] = {}
    for (gpu, profile_id), profile in profiles.items():
        places = placements.get((gpu, profile_id), ())
        if not places:
            reason = (
                f"there are no placements for profile {profile.name} (ID {profile_id}) of GPU"
                f" {gpu}: `nvidia-smi mig -lgipp` lists them"
            )
            _refuse(reason)
        known = replace(profile, placements=places, memory_slices=places[0].size)
        result.setdefault(gpu, []).append(known)
    return {gpu: tuple(items) for gpu, items in sorted(result.items())}


def _bare_profiles(text: str) -> dict[tuple[int, int], MigProfile]:
    profiles: dict[tuple[int, int], MigProfile] = {}
    lines = list(_lines(text))
    for position, (number, line) in enumerate(lines):
        match = _PROFILE.search(line)
        if match is None:
            if _PROFILE_LIKE.search(line):
                _refuse("a profile's row is cut off", number)
            continue
        gpu, name, profile_id, most, memory, sms, decoders, encoders = match.groups()
        below = lines[position + 1][1] if position + 1 < len(lines) else ""
        engines = _ENGINES.search(below)
        if engines is None:
            _refuse("the second row of a profile is missing", number + 1)
        copies, jpeg, ofa = map(int, engines.groups())
        profiles[int(gpu), int(profile_id)] = MigProfile(
            name=_profile_name(name, number),
            gi_profile_id=int(profile_id),
            compute_slices=ProfileName.parse(name).slices,
            memory_slices=None,
            memory_mib=_mib(memory, number),
            max_instances=int(most),
            engines=Engines(copies, int(decoders), int(encoders), jpeg, ofa),
            multiprocessors=int(sms),
        )
    return profiles


def _placements(text: str) -> dict[tuple[int, int], tuple[Placement, ...]]:
    found: dict[tuple[int, int], tuple[Placement, ...]] = {}
    for number, line in _lines(text):
        match = _PLACEMENTS.search(line)
        if match is None:
            if _PLACEMENTS_LIKE.search(line):
                _refuse("a line of placements is cut off", number)
            continue
        gpu, profile_id, starts, size = match.groups()
        found[int(gpu), int(profile_id)] = tuple(
            _placement(int(start), int(size), number) for start in re.findall(r"\d+", starts)
        )
    return found


def _refuse(reason: str, line: int = 0) -> NoReturn:
    raise UnreadableOutputError(reason, line)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.replace("\r", "").split("\n"), start=1)


def _section(text: str, heading: str) -> Iterator[tuple[int, str]]:
    """Yield the rows of the tables under a heading such as ``GPU instances:``."""
    inside = False
    for number, line in _lines(text):
        if "|" not in line and "+--" not in line:
            inside = False
        elif title := _HEADING.search(line):
            inside = title[1] == heading
        elif inside and _LINE_STARTS_LIKE_AN_ITEM.search(line):
            yield number, line


def _require(text: str, heading: str, none_found: str, command: str) -> None:
    """Refuse a text without the wanted output, which must not be read as "there are none"."""
    if heading in text or none_found in text or _NOT_ENABLED in text or _NOT_CAPABLE in text:
        return
    shown = next((line.strip() for _, line in _lines(text) if line.strip()), "")
    reason = f"the output of `nvidia-smi {command}` is missing; the text begins {shown[:80]!r}"
    _refuse(reason)


def _gpu_row(cells: dict[str, str]) -> GpuRow:
    return GpuRow(
        index=int(cells["index"]),
        uuid=cells["uuid"],
        name=cells.get("name", ""),
        pci_bus_id=cells.get("pci.bus_id", ""),
        memory_mib=_whole_mib(cells.get("memory.total", "")),
        driver_version=cells.get("driver_version", ""),
        is_mig_enabled=_mode(cells.get("mig.mode.current", "")),
        is_mig_pending=_mode(cells.get("mig.mode.pending", "")),
    )


def _mode(cell: str) -> bool | None:
    return {"enabled": True, "disabled": False}.get(cell.lower())


def _whole_mib(cell: str) -> int | None:
    digits = cell.removesuffix("MiB").strip()
    return int(digits) if digits.isdecimal() else None


def _mib(gibibytes: str, number: int) -> int:
    """Return MiB for GiB printed with two decimals: the driver's own step where one fits."""
    try:
        value = float(gibibytes)
    except ValueError:
        _refuse(f"{gibibytes} is no amount of memory", number)
    stepped = round(value * 1024 / _MIB_STEP) * _MIB_STEP
    return stepped if abs(stepped / 1024 - value) < _CENT else int(value * 1024)


def _profile_name(text: str, number: int) -> str:
    try:
        return str(ProfileName.parse(text))
    except InvalidProfileError:
        _refuse(f"{text} is no name of a profile", number)


def _placement(start: int, size: int, number: int) -> Placement:
    if size < 1:
        _refuse("a placement has no slices", number)
    return Placement(start, size)
