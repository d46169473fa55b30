"""The Job controller."""

import copy

from gpu.adapters.simulated.events import Said, record
from gpu.adapters.simulated.quantities import has_ended
from gpu.adapters.simulated.replicas import RETRY_S, create_pod
from gpu.adapters.simulated.statuses import Condition, set_condition
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, name_suffix, owned_by, stamp
from gpu.ports import JOB, Manifest

_BACK_OFF_S = 10.0
_LONGEST_BACK_OFF_S = 360.0
_MAX_STEM = 57


def run_jobs(world: World) -> None:
    """Make the Pods that Jobs want, count those that have ended, and end the Jobs."""
    for job in world.tx.select(JOB):
        if _is_finished(job):
            if hidden(job).get("forget_at", world.now + 1) <= world.now:
                delete_job(world, job)
            continue
        _run_job(world, job)


def delete_job(world: World, job: Manifest) -> None:
    """Remove a Job and, in the background, its Pods."""
    world.tx.remove(job)
    world.delete_dependants(job)


def _run_job(world: World, job: Manifest) -> None:
    secret, spec = hidden(job), job["spec"]
    if "deadline_at" not in secret and "activeDeadlineSeconds" in spec:
        secret["deadline_at"] = world.now + float(spec["activeDeadlineSeconds"])
    mine = _pods(world, job)
    succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in mine)
    active = [p for p in mine if not has_ended(p) and "deletionTimestamp" not in p["metadata"]]
    failed = secret.get("made", len(mine)) - succeeded - len(active)
    wanted = spec.get("completions", 1)
    _write_counts(world, job, active=len(active), succeeded=succeeded, failed=failed)
    if succeeded >= wanted:
        _finish(world, job, Condition("Complete", "True", "CompletionsReached"))
    elif secret.get("deadline_at", world.now + 1) <= world.now:
        text = "Job was active longer than specified deadline"
        _finish(world, job, Condition("Failed", "True", "DeadlineExceeded", text))
    elif failed > spec.get("backoffLimit", 6):
        text = "Job has reached the specified backoff limit"
        _finish(world, job, Condition("Failed", "True", "BackoffLimitExceeded", text))
    elif len(active) < min(spec.get("parallelism", 1), wanted - succeeded):
        _make_pod(world, job, failed)


def _make_pod(world: World, job: Manifest, failed: int) -> None:
    secret, meta = hidden(job), job["metadata"]
    if failed and secret.get("tried") != failed:
        seconds = min(_BACK_OFF_S * 2 ** (failed - 1), _LONGEST_BACK_OFF_S)
        secret |= {"tried": failed, "retry_at": world.after(seconds)}
        world.put(job)
    if secret.get("retry_at", 0) > world.now:
        return
    template = copy.deepcopy(job["spec"]["template"])
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "job-name": meta["name"],
        "batch.kubernetes.io/job-name": meta["name"],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name'][:_MAX_STEM]}-{name_suffix()}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": owned_by(job),
        },
        "spec": template["spec"],
        "simulated": {"job": meta["uid"]},
    }
    secret.pop("retry_at", None)
    if create_pod(world, pod, job):
        secret["made"] = secret.get("made", 0) + 1
    else:
        secret["retry_at"] = max(world.after(RETRY_S), world.now + 1)
    world.put(job)


def _finish(world: World, job: Manifest, condition: Condition) -> None:
    at = stamp(world.now)
    set_condition(job, condition, at)
    job["status"] |= {"active": 0} | (
        {"completionTime": at} if condition.type == "Complete" else {}
    )
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is not None:
        hidden(job)["forget_at"] = world.now + float(seconds)
    hidden(job).pop("deadline_at", None)
    world.put(job)
    is_failed = condition.type == "Failed"
    text = condition.message or "Job completed"
    record(world, job, Said("job-controller", condition.reason, text, is_warning=is_failed))
    for pod in _pods(world, job):
        if not has_ended(pod):
            world.delete_pod(pod)


def _write_counts(world: World, job: Manifest, **counts: int) -> None:
    status = job.setdefault("status", {})
    if {key: status.get(key) for key in counts} != counts:
        status |= {"startTime": status.get("startTime", stamp(world.now)), **counts}
        world.put(job)


def _is_finished(job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions)


def _pods(world: World, job: Manifest) -> list[Manifest]:
    uid = job["metadata"]["uid"]
    return [pod for pod in world.pods if hidden(pod).get("job") == uid]
