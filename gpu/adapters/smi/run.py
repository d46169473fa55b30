"""Answers one call of the stand-in and ends with its exit status."""

import os
import sys

from gpu.adapters.smi import changes, query, tables
from gpu.adapters.smi import hardware as hw
from gpu.adapters.smi.call import Call, UsageError
from gpu.adapters.smi.hardware import Hardware

DIRECTORY = "SIMULATED_GPUS"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_GPU_IS_LOST = 15


def answer(arguments: list[str], directory: str, visible: str | None) -> tuple[int, str]:
    """Return the exit status and the text; `visible` is None on the host, which sees all."""
    hardware = Hardware(directory)
    try:
        call = Call(arguments, hardware)
    except UsageError as error:
        return hw.INVALID_ARGUMENT, f"{error}\n"
    if not call.changes:
        return _answer(call, visible), call.text
    if visible is not None:
        return hw.NO_PERMISSION, f"{hw.SENTENCES[hw.NO_PERMISSION]}\n"
    with hardware.locked():
        code = _answer(call, visible)
        hardware.save()
        if code == hw.OK:
            hardware.note(arguments)
    return code, call.text


def main() -> None:
    """Run as a program: the directory and what is visible come from the environment."""
    code, text = answer(sys.argv[1:], os.environ[DIRECTORY], os.environ.get(VISIBLE))
    sys.stdout.write(text)
    sys.stdout.flush()
    os._exit(code)


def _answer(call: Call, visible: str | None) -> int:
    if not call.hardware.load():
        call.say("Failed to initialize NVML: Unknown Error")
        return hw.UNKNOWN
    if call.hardware.faults.get("gpu_lost"):
        call.say("Unable to determine the device handle for GPU 0000:06:00.0: GPU is lost.")
        return _GPU_IS_LOST
    if not call.choose(visible):
        call.say("No devices were found")
        return hw.NOT_FOUND
    if call.options["mig"]:
        return _mig(call, is_host=visible is None)
    return _plain(call)


def _plain(call: Call) -> int:
    options = call.options
    code = hw.OK
    if options["-mig"] is not None:
        code = changes.switch_mode(call, options["-mig"])
    elif options["-r"]:
        code = changes.reset_gpus(call)
    elif options["--query-gpu"] is not None:
        code = query.print_query(call, options["--query-gpu"])
    elif call.verbs == ["-q"] and options["-x"]:
        code = query.print_report(call)
    elif call.verbs in ([], ["-L"]):
        code = query.print_list(call)
    else:
        code = _bad_combination(call)
    return code


def _mig(call: Call, *, is_host: bool) -> int:
    if not is_host:
        call.say(hw.SENTENCES[hw.NO_PERMISSION])
        return hw.NO_PERMISSION
    verb = call.verbs[0] if len(call.verbs) == 1 else ""
    if verb in {"-lgip", "-lgipp"}:
        if not any(gpu["profiles"] for _index, gpu in call.chosen):
            call.say("No MIG-supported devices found.")
            return hw.NOT_FOUND
        return tables.print_profiles(call) if verb == "-lgip" else tables.print_placements(call)
    if not any(True for _gpu in call.mig_gpus()):
        call.say("No MIG-enabled devices found.")
        return hw.NOT_FOUND if call.changes else hw.OK
    if call.options["-cgi"] is not None:
        return changes.create_instances(call, call.options["-cgi"])
    return _MIG_VERBS.get(verb, _bad_combination)(call)


def _bad_combination(call: Call) -> int:
    call.say("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
    return hw.INVALID_ARGUMENT


_MIG_VERBS = {
    "-cci": changes.create_compute_instances,
    "-dgi": changes.destroy_instances,
    "-dci": changes.destroy_compute_instances,
    "-lgi": tables.print_instances,
    "-lci": tables.print_compute_instances,
}
