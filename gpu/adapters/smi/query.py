"""What `nvidia-smi` tells without changing anything: `-L`, `--query-gpu`, `-q -x`."""

from collections.abc import Callable

from gpu.adapters.smi import hardware as hw
from gpu.adapters.smi.call import Call
from gpu.adapters.smi.hardware import Json

type Column = tuple[str, Callable[[Call, int, Json], str]]


def _mode(gpu: Json, key: str, none: str) -> str:
    if not gpu["profiles"]:
        return none
    return "Enabled" if gpu[key] else "Disabled"


_COLUMNS: dict[str, Column] = {
    "index": ("", lambda _call, index, _gpu: str(index)),
    "uuid": ("", lambda _call, _index, gpu: gpu["uuid"]),
    "gpu_uuid": ("", lambda _call, _index, gpu: gpu["uuid"]),
    "name": ("", lambda _call, _index, gpu: gpu["name"]),
    "gpu_name": ("", lambda _call, _index, gpu: gpu["name"]),
    "pci.bus_id": ("", lambda _call, _index, gpu: gpu["bus_id"]),
    "pci.device_id": ("", lambda _call, _index, gpu: gpu["device_id"]),
    "compute_cap": ("", lambda _call, _index, gpu: gpu["compute_capability"]),
    "driver_version": ("", lambda call, _index, _gpu: call.hardware.state["driver_version"]),
    "count": ("", lambda call, _index, _gpu: str(len(call.chosen))),
    "memory.total": ("MiB", lambda _call, _index, gpu: str(gpu["memory_mib"])),
    "mig.mode.current": ("", lambda _call, _index, gpu: _mode(gpu, "mig", "[N/A]")),
    "mig.mode.pending": ("", lambda _call, _index, gpu: _mode(gpu, "mig_pending", "[N/A]")),
}


def print_list(call: Call) -> int:
    """Print `-L`."""
    for index, gpu in call.chosen:
        call.say(f"GPU {index}: {gpu['name']} (UUID: {gpu['uuid']})")
        for number, (instance, compute) in enumerate(call.devices_of(gpu)):
            call.say(
                f"  MIG {instance['profile']:<11} Device {number:2}: (UUID: {compute['uuid']})"
            )
    return hw.OK


def print_query(call: Call, words: str) -> int:
    """Print `--query-gpu=… --format=csv[,noheader][,nounits]`."""
    names = [name.strip() for name in words.split(",")]
    for name in names:
        if name not in _COLUMNS:
            call.say(f'Field "{name}" is not a valid field to query.\n')
            return hw.INVALID_ARGUMENT
    style = {word.strip() for word in (call.options["--format"] or "").split(",")}
    if "csv" not in style:
        call.say("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
        return hw.INVALID_ARGUMENT
    units = {name: "" if "nounits" in style else _COLUMNS[name][0] for name in names}
    if "noheader" not in style:
        call.say(", ".join(f"{name} [{units[name]}]" if units[name] else name for name in names))
    for index, gpu in call.chosen:
        values = [(_COLUMNS[name][1](call, index, gpu), units[name]) for name in names]
        call.say(", ".join(f"{value} {unit}" if unit else value for value, unit in values))
    return hw.OK


def print_report(call: Call) -> int:
    """Print `-q -x`, with what people read: identity, MIG mode and devices, memory."""
    call.say('<?xml version="1.0" ?>')
    call.say('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">')
    call.say("<nvidia_smi_log>")
    call.say(f"\t<driver_version>{call.hardware.state['driver_version']}</driver_version>")
    call.say(f"\t<cuda_version>{call.hardware.state['cuda_version']}</cuda_version>")
    call.say(f"\t<attached_gpus>{len(call.chosen)}</attached_gpus>")
    for index, gpu in call.chosen:
        _report_gpu(call, index, gpu)
    call.say("</nvidia_smi_log>")
    return hw.OK


def _report_gpu(call: Call, index: int, gpu: Json) -> None:
    call.say(f'\t<gpu id="{gpu["bus_id"]}">')
    call.say(f"\t\t<product_name>{gpu['name']}</product_name>")
    call.say("\t\t<mig_mode>")
    call.say(f"\t\t\t<current_mig>{_mode(gpu, 'mig', 'N/A')}</current_mig>")
    call.say(f"\t\t\t<pending_mig>{_mode(gpu, 'mig_pending', 'N/A')}</pending_mig>")
    call.say("\t\t</mig_mode>")
    call.say("\t\t<mig_devices>")
    devices = call.devices_of(gpu)
    for number, (instance, compute) in enumerate(devices):
        profile = hw.profile_of(gpu, instance)
        call.say("\t\t\t<mig_device>")
        call.say(f"\t\t\t\t<index>{number}</index>")
        call.say(f"\t\t\t\t<gpu_instance_id>{instance['id']}</gpu_instance_id>")
        call.say(f"\t\t\t\t<compute_instance_id>{compute['id']}</compute_instance_id>")
        _report_memory(call, "\t\t\t\t", profile["memory_mib"])
        call.say("\t\t\t</mig_device>")
    if not devices:
        call.say("\t\t\tNone")
    call.say("\t\t</mig_devices>")
    call.say(f"\t\t<uuid>{gpu['uuid']}</uuid>")
    call.say(f"\t\t<minor_number>{index}</minor_number>")
    _report_memory(call, "\t\t", gpu["memory_mib"])
    call.say("\t\t<compute_mode>Default</compute_mode>")
    call.say("\t</gpu>")


def _report_memory(call: Call, indent: str, mib: int) -> None:
    call.say(f"{indent}<fb_memory_usage>")
    call.say(f"{indent}\t<total>{mib} MiB</total>")
    call.say(f"{indent}\t<reserved>0 MiB</reserved>")
    call.say(f"{indent}\t<used>0 MiB</used>")
    call.say(f"{indent}\t<free>{mib} MiB</free>")
    call.say(f"{indent}</fb_memory_usage>")
