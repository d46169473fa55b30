"""The kubelets: they start Pods, give them devices, end them, and remove them."""

from collections import Counter
from collections.abc import Mapping

from gpu.adapters.simulated import registration, replicas, statuses
from gpu.adapters.simulated.containers import (
    KILLED,
    TIME_LIMIT_S,
    Ended,
    Script,
    environment_of,
    program_of,
)
from gpu.adapters.simulated.events import Said, record
from gpu.adapters.simulated.quantities import amount, has_ended, pod_requests, used_on_nodes
from gpu.adapters.simulated.statuses import Condition
from gpu.adapters.simulated.store import NEVER, hidden
from gpu.adapters.simulated.world import World, controller_of, stamp
from gpu.objects import GPU_PREFIX
from gpu.ports import Manifest

POD_START_S = 0.8
SCRIPT_S = 0.6
RESET_S = 3.0
BACK_OFF_S = 10.0
LONGEST_BACK_OFF_S = 300.0
_UNEXPECTED = "UnexpectedAdmissionError"
_RESET = "was successfully reset"
_SHORTEST_BACK_OFF_S = 1.0
RUNTIME_ANNOTATION = "slicedesk.io/simulated-runtime-seconds"


class AdmissionError(Exception):
    """A kubelet turns a Pod away: `reason` is for machines, the text for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def run_kubelets(world: World) -> None:
    """Let the kubelet of every node that answers do what is due."""
    for pod in list(world.pods):
        node = pod["spec"].get("nodeName", "")
        if _is_to_be_removed(world, pod):
            _remove(world, pod)
            continue
        if not node or world.is_silent(node) or world.node(node) is None or has_ended(pod):
            continue
        _keep_deadline(world, pod)
        if pod["status"]["phase"] == "Pending":
            _start_when_due(world, pod)
        if pod["status"]["phase"] == "Running":
            _let_run(world, pod)


def back_off_s(restarts: int) -> float:
    """Return how long a kubelet waits before it starts a container again."""
    return float(min(BACK_OFF_S * 2 ** (restarts - 1), LONGEST_BACK_OFF_S))


def begin_back_off(world: World, pod: Manifest, message: str) -> None:
    """Take down a container that crashed, to be started again later."""
    secret, node = hidden(pod), pod["spec"]["nodeName"]
    secret["restarts"] = secret.get("restarts", 0) + 1
    # Never at once, or a lab without delays would start it again for ever.
    seconds = world.after(back_off_s(secret["restarts"]), node)
    secret["retry_at"] = max(seconds, world.now + _SHORTEST_BACK_OFF_S)
    statuses.set_waiting(pod, "CrashLoopBackOff", message)
    at = stamp(world.now)
    statuses.set_ready(pod, Condition("Ready", "False", "ContainersNotReady"), at)
    world.put(pod)
    text = f"Back-off restarting failed container in pod {pod['metadata']['name']}"
    record(world, pod, Said("kubelet", "BackOff", text, is_warning=True))


def take_result(world: World, pod: Manifest, ended: Ended) -> float:
    """Take over how a script ended, and return when its container ends: real work takes time."""
    secret, node, program = hidden(pod), pod["spec"]["nodeName"], program_of(pod)
    seconds = SCRIPT_S + RESET_S * ended.output.count(_RESET)
    ends_at = secret.pop("ran_at", world.now) + world.after(seconds, node) - world.now
    code = ended.code
    if program is not None and not (program.needs_success and code):
        # A sleep is as long as it says, whatever the pace.
        sleeps_s = NEVER if program.sleeps_s is None else program.sleeps_s
        ends_at += sleeps_s
        code = 0 if sleeps_s else code
    secret |= {"script": "done", "finish_at": ends_at, "exit_code": code}
    secret.pop("limit_at", None)
    world.tx.set_log(pod["metadata"]["uid"], ended.output)
    world.put(pod)
    registration.look_soon(world, node)
    return float(ends_at)


def give_devices(
    pod: Manifest, registered: Mapping[str, list[str]], others: list[Manifest]
) -> dict[str, list[str]]:
    """Return distinct free devices for a Pod; `AdmissionError` says which resource is short."""
    taken = {
        device
        for other in others
        if not has_ended(other)
        for ids in hidden(other).get("devices", {}).values()
        for device in ids
    }
    given: dict[str, list[str]] = {}
    for key, count in pod_requests(pod).items():
        if not key.startswith(GPU_PREFIX) or not count:
            continue
        free = [device for device in registered.get(key, []) if device not in taken]
        # Shares go to the GPU that fewest have so far; the sort keeps the order of whole devices.
        free.sort(key=lambda device: _sharers(device, taken))
        if len(free) < count:
            msg = (
                "Pod was rejected: Allocate failed due to requested number of devices unavailable"
                f" for {key}. Requested: {count}, Available: {len(free)}, which is unexpected"
            )
            raise AdmissionError(_UNEXPECTED, msg)
        given[key] = free[:count]
    return given


def _sharers(device: str, taken: set[str]) -> int:
    gpu, _mark, share = device.partition("::")
    return sum(other.startswith(f"{gpu}::") for other in taken) if share else 0


def _is_to_be_removed(world: World, pod: Manifest) -> bool:
    due = hidden(pod).get("delete_at")
    if due is None or due > world.now:
        return False
    # A kubelet that does not answer confirms no end, unless the Pod was deleted by force.
    node = pod["spec"].get("nodeName", "")
    return bool(not world.is_silent(node) or hidden(pod).get("is_forced"))


def _remove(world: World, pod: Manifest) -> None:
    world.remove_pod(pod)
    registration.forget_plugin(world, pod)
    replicas.replace(world, pod)


def _keep_deadline(world: World, pod: Manifest) -> None:
    if hidden(pod).get("deadline_at", world.now + 1) > world.now:
        return
    message = "Pod was active on the node longer than the specified deadline"
    statuses.set_failed(pod, "DeadlineExceeded", message, stamp(world.now))
    world.ended.append(pod["metadata"]["uid"])
    world.put(pod)
    record(world, pod, Said("kubelet", "DeadlineExceeded", message))


def _start_when_due(world: World, pod: Manifest) -> None:
    secret, node = hidden(pod), pod["spec"]["nodeName"]
    if "start_at" not in secret:
        secret["start_at"] = world.after(POD_START_S, node)
        pod["status"].setdefault("startTime", stamp(world.now))
        seconds = pod["spec"].get("activeDeadlineSeconds")
        if seconds is not None:
            secret["deadline_at"] = world.now + float(seconds)
        statuses.set_waiting(pod, "ContainerCreating")
        not_ready = Condition("Ready", "False", "ContainersNotReady")
        statuses.set_ready(pod, not_ready, stamp(world.now))
        world.put(pod)
    if secret["start_at"] > world.now:
        return
    if world.has_fault(node, "job_never_starts") and controller_of(pod).get("kind") == "Job":
        image = pod["spec"]["containers"][0].get("image", "")
        statuses.set_waiting(pod, "ImagePullBackOff", f'Back-off pulling image "{image}"')
        world.put(pod)
        return
    _start(world, pod, node)


def _start(world: World, pod: Manifest, node: str) -> None:
    others = [other for other in world.pods_on(node) if other is not pod]
    try:
        _check_room(world, pod, others)
        hidden(pod)["devices"] = give_devices(pod, _registered(world, node), others)
        _refuse_many(world, pod, node)
    except AdmissionError as error:
        statuses.set_failed(pod, error.reason, str(error), stamp(world.now))
        world.put(pod)
        record(world, pod, Said("kubelet", error.reason, str(error), is_warning=True))
        return
    hidden(pod).pop("start_at")
    record(world, pod, Said("kubelet", "Started", "Started container"))
    _run_container(world, pod)


def _check_room(world: World, pod: Manifest, others: list[Manifest]) -> None:
    """Refuse a Pod that was put on the node past the scheduler and does not fit there."""
    node = world.node(pod["spec"]["nodeName"])
    if hidden(pod).get("was_scheduled") or node is None:
        return
    used = used_on_nodes(others).get(pod["spec"]["nodeName"], Counter())
    for key, wanted in sorted(pod_requests(pod).items()):
        capacity = amount(key, node["status"].get("allocatable", {}).get(key, 0))
        if wanted > capacity - used[key]:
            msg = (
                f"Pod was rejected: Node didn't have enough resource: {key}, requested: {wanted},"
                f" used: {used[key]}, capacity: {capacity}"
            )
            reason = f"OutOf{key}"
            raise AdmissionError(reason, msg)


def _registered(world: World, node: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = hidden(world.node(node) or {}).get("registered", {})
    return found


def _refuse_many(world: World, pod: Manifest, node: str) -> None:
    """Turn away a Pod that asks for several shares where the plugin gives one at most."""
    single = hidden(world.node(node) or {}).get("one_at_most", ())
    for key, count in pod_requests(pod).items():
        if key in single and count > 1:
            hidden(pod).pop("devices")
            msg = (
                "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = invalid"
                f' allocation request for "{key}": invalid request: maximum request size for'
                f" shared resources is 1; found {count}, which is unexpected"
            )
            raise AdmissionError(_UNEXPECTED, msg)


def _run_container(world: World, pod: Manifest) -> None:
    secret = hidden(pod)
    secret.pop("retry_at", None)
    statuses.set_running(pod, secret.get("devices", {}), stamp(world.now))
    program = program_of(pod)
    runtime = (pod["metadata"].get("annotations") or {}).get(RUNTIME_ANNOTATION)
    crash = registration.crash_of(world, pod, is_starting=True)
    if crash:
        _crash(world, pod, crash)
        return
    if registration.is_plugin(pod):
        registration.start_plugin(world, pod)
    elif program is not None and program.text:
        secret |= {"script": "wanted", "ran_at": world.now, "limit_at": world.now + TIME_LIMIT_S}
    elif program is not None and program.sleeps_s is not None:
        # A sleep is as long as it says, whatever the pace.
        secret |= {"finish_at": world.now + program.sleeps_s, "exit_code": 0}
    elif program is None and runtime:
        secret |= {"finish_at": world.after(float(runtime)), "exit_code": 0}
    world.put(pod)


def _let_run(world: World, pod: Manifest) -> None:
    secret = hidden(pod)
    if "retry_at" in secret:
        if secret["retry_at"] <= world.now:
            _run_container(world, pod)
        return
    if crash := registration.crash_of(world, pod, is_starting=False):
        _crash(world, pod, crash)
    elif secret.get("script") == "wanted":
        if secret.get("limit_at", world.now + 1) <= world.now:
            world.ended.append(pod["metadata"]["uid"])
            secret |= {"script": "done", "finish_at": world.now, "exit_code": KILLED}
            world.put(pod)
        else:
            world.scripts.append(_script(world, pod))
    if secret.get("finish_at", world.now + 1) <= world.now:
        _end(world, pod, secret.pop("exit_code", 0))


def _crash(world: World, pod: Manifest, why: str) -> None:
    registration.forget_plugin(world, pod)
    begin_back_off(world, pod, why)


def _script(world: World, pod: Manifest) -> Script:
    container, program = pod["spec"]["containers"][0], program_of(pod)
    is_host = bool((container.get("securityContext") or {}).get("privileged"))
    ids = [d for given in hidden(pod).get("devices", {}).values() for d in given]
    # Without a device of its own a container sees nothing, whatever its environment asks for.
    visible = ",".join(device.split("::")[0] for device in ids) or "void"
    return Script(
        uid=pod["metadata"]["uid"],
        text=program.text if program else "",
        gpus=world.files.of(pod["spec"]["nodeName"]),
        visible=None if is_host else visible,
        environment=environment_of(pod),
    )


def _end(world: World, pod: Manifest, code: int) -> None:
    secret, policy = hidden(pod), pod["spec"].get("restartPolicy", "Always")
    for key in ("finish_at", "script", "limit_at"):
        secret.pop(key, None)
    if policy == "Always" or (policy == "OnFailure" and code):
        begin_back_off(world, pod, f"container ended with exit code {code}")
        return
    statuses.set_ended(pod, code, stamp(world.now))
    world.put(pod)
