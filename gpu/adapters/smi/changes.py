"""What `nvidia-smi` changes: MIG mode, resets, GPU and compute instances."""

from collections.abc import Callable

from gpu.adapters.smi import hardware as hw
from gpu.adapters.smi.call import Call
from gpu.adapters.smi.hardware import Json

_BUSY = (
    "currently being used by one or more other processes (e.g. CUDA application or a monitoring "
    "application such as another instance of nvidia-smi). Please first kill all processes using "
    "the device and retry the command or reboot the system to make MIG mode effective."
)


def switch_mode(call: Call, word: str) -> int:
    """Do `-mig 0|1`."""
    if word.upper() not in {"0", "1", "ENABLED", "DISABLED"}:
        call.say(f"Invalid value for MIG mode: {word}")
        return hw.INVALID_ARGUMENT
    on = word.upper() in {"1", "ENABLED"}
    verb, done = ("enable", "Enabled") if on else ("disable", "Disabled")
    for _index, gpu in call.chosen:
        bus = gpu["bus_id"]
        pending, code = hw.switch_mig(call.hardware, gpu, on=on)
        sentence = hw.SENTENCES[code]
        if pending:
            call.say(f"Warning: MIG mode is in pending {verb} state for GPU {bus}:{sentence}")
            call.say(
                f"{bus} is {_BUSY}"
                if code == hw.IN_USE
                else "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective"
                f" on GPU {bus}"
            )
        elif code == hw.NOT_SUPPORTED:
            call.say(f"Unable to {verb} MIG Mode for GPU {bus}: {sentence}")
            call.say("Treating as warning and moving on.")
        elif code != hw.OK:
            call.say(f"Unable to {verb} MIG Mode for GPU {bus}: {sentence}")
            call.say("Terminating early due to previous errors.")
            return code
        else:
            call.say(f"{done} MIG Mode for GPU {bus}")
    call.say("All done.")
    return hw.OK


def reset_gpus(call: Call) -> int:
    """Do `--gpu-reset`."""
    busy = [
        gpu
        for _index, gpu in call.chosen
        if call.hardware.is_gpu_held(gpu) or call.hardware.faults.get("reset_refused")
    ]
    if busy:
        call.say("The following GPUs could not be reset:")
        for gpu in busy:
            call.say(f"  GPU {gpu['bus_id']}: {hw.SENTENCES[hw.IN_USE]}")
        call.say(
            f"\n{len(busy)} device is currently being used by one or more other processes (e.g.,"
            " Fabric Manager, CUDA application, graphics application such as an X server, or a"
            " monitoring application such as another instance of nvidia-smi). Please first kill"
            " all processes using this device and all compute applications running in the system."
        )
        return hw.UNKNOWN
    for _index, gpu in call.chosen:
        hw.reset_gpu(gpu)
        call.say(f"GPU {gpu['bus_id']} was successfully reset.")
    call.say("All done.")
    return hw.OK


def create_instances(call: Call, words: str) -> int:
    """Do `mig -cgi`, in order; stop at the first that does not fit."""
    for index, gpu in call.mig_gpus():
        for word in words.split(","):
            code = _create(call, index, gpu, word)
            if code != hw.OK:
                sentence = hw.SENTENCES[code]
                call.say(
                    f"Unable to create a GPU instance on GPU {index:2} using profile {word}:"
                    f" {sentence}"
                )
                call.say(f"Failed to create GPU instances: {sentence}")
                return code
    return hw.OK


def _create(call: Call, index: int, gpu: Json, word: str) -> int:
    key, _colon, place = word.partition(":")
    profile = next((p for p in gpu["profiles"] if str(p["id"]) == key or p["name"] == key), None)
    if profile is None or (place and not place.isdecimal()):
        return hw.INVALID_ARGUMENT
    if call.hardware.faults.get("create_fails"):
        return hw.INSUFFICIENT_RESOURCES
    made = hw.create_instance(gpu, profile, int(place) if place else None)
    if isinstance(made, int):
        return made
    call.say(
        f"Successfully created GPU instance ID {made['id']:2} on GPU {index:2} using profile MIG"
        f" {profile['name']} (ID {profile['id']:2})"
    )
    return _create_compute(call, index, gpu, made) if call.options["-C"] else hw.OK


def _create_compute(call: Call, index: int, gpu: Json, instance: Json) -> int:
    made = hw.create_compute(gpu, instance)
    if isinstance(made, int):
        return made
    slices = hw.profile_of(gpu, instance)["compute_slices"]
    call.say(
        f"Successfully created compute instance ID {made['id']:2} on GPU {index:2} GPU instance ID"
        f" {instance['id']:2} using profile MIG {instance['profile']}"
        f" (ID {compute_profile_id(slices):2})"
    )
    return hw.OK


def compute_profile_id(slices: int) -> int:
    """Return the id of a compute instance profile, which counts by slices."""
    return 4 if slices == 7 else slices - 1  # noqa: PLR2004  # the largest there is


def create_compute_instances(call: Call) -> int:
    """Do `mig -cci`: the default compute instance for each chosen GPU instance."""
    return _each(
        call,
        "Failed to create compute instances",
        lambda index, gpu, item: _create_compute(call, index, gpu, item),
    )


def destroy_instances(call: Call) -> int:
    """Do `mig -dgi`."""

    def destroy(index: int, gpu: Json, instance: Json) -> int:
        gi_id = instance["id"]
        if instance["compute"] or call.hardware.faults.get("destroy_in_use"):
            call.say(
                f"Unable to destroy GPU instance ID {gi_id:2} from GPU {index:2}:"
                f" {hw.SENTENCES[hw.IN_USE]}"
            )
            return hw.IN_USE
        gpu["instances"].remove(instance)
        call.say(f"Successfully destroyed GPU instance ID {gi_id:2} from GPU {index:2}")
        return hw.OK

    return _each(call, "Failed to destroy GPU instances", destroy)


def destroy_compute_instances(call: Call) -> int:
    """Do `mig -dci`."""

    def destroy(index: int, _gpu: Json, instance: Json) -> int:
        if not instance["compute"] and call.options["-gi"] is not None:
            return hw.NOT_FOUND
        for compute in list(instance["compute"]):
            place = f"from GPU {index:2} GPU instance ID {instance['id']:2}"
            if call.hardware.is_held(compute["uuid"]):
                call.say(
                    f"Unable to destroy compute instance ID {compute['id']:2} {place}:"
                    f" {hw.SENTENCES[hw.IN_USE]}"
                )
                return hw.IN_USE
            instance["compute"].remove(compute)
            call.say(f"Successfully destroyed compute instance ID {compute['id']:2} {place}")
        return hw.OK

    return _each(call, "Failed to destroy compute instances", destroy)


def _each(call: Call, failure: str, do: Callable[[int, Json, Json], int]) -> int:
    found = False
    for index, gpu in call.mig_gpus():
        for instance in list(gpu["instances"]):
            if not call.is_chosen(instance):
                continue
            found = True
            code = do(index, gpu, instance)
            if code != hw.OK:
                call.say(f"{failure}: {hw.SENTENCES[code]}")
                return code
    if not found:
        call.say(f"No GPU instances found: {hw.SENTENCES[hw.NOT_FOUND]}")
        return hw.NOT_FOUND
    return hw.OK
