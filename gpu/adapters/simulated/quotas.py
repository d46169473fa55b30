"""ResourceQuota: the admission check, in Kubernetes' own words, and the controller that counts."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpu.adapters.simulated.quantities import amount, has_ended, pod_limits, pod_requests, quantity
from gpu.adapters.simulated.store import Transaction, hidden
from gpu.adapters.simulated.world import World
from gpu.ports import POD, RESOURCE_QUOTA, Manifest, RefusedError

TAKEN_UP_S = 0.3
_LONGEST_TAKING_UP_S = 1.0
_MUST_BE_NAMED = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}


def check_quota(tx: Transaction, pod: Manifest) -> None:
    """Refuse a Pod that would exceed a quota of its namespace, as the quota's status has it.

    A quota that was changed a moment ago still counts as it was; one that is new refuses all.
    """
    for quota in tx.select(RESOURCE_QUOTA, pod["metadata"]["namespace"]):
        problem = _problem(tx, pod, quota)
        if problem:
            msg = f'pods "{pod["metadata"]["name"]}" is forbidden: {problem}'
            raise RefusedError(msg)


def _problem(tx: Transaction, pod: Manifest, quota: Manifest) -> str:
    name, hard = quota["metadata"]["name"], quota["spec"].get("hard") or {}
    wanted = pod_usage(pod)
    counted = (quota.get("status") or {}).get("hard") or {}
    unknown = sorted(key for key in hard if wanted.get(key) and key not in counted)
    if unknown:
        return f"status unknown for quota: {name}, resources: {','.join(unknown)}"
    unnamed = _unnamed(pod, counted)
    if unnamed:
        return f"failed quota: {name}: must specify {'; '.join(unnamed)}"
    used = namespace_usage(tx.select(POD, pod["metadata"]["namespace"]), counted)
    over = [
        key
        for key in sorted(counted)
        if wanted.get(key) and used[key] + wanted[key] > amount(key, counted[key])
    ]
    if not over:
        return ""
    return (
        f"exceeded quota: {name}, requested: {_words(over, wanted)}, used: {_words(over, used)},"
        f" limited: {','.join(f'{key}={counted[key]}' for key in over)}"
    )


def _unnamed(pod: Manifest, hard: Mapping[str, Any]) -> list[str]:
    found = []
    for key in sorted(hard):
        if key in _MUST_BE_NAMED:
            part, resource = _MUST_BE_NAMED[key]
            missing = [
                container["name"]
                for container in pod["spec"]["containers"]
                if resource not in ((container.get("resources") or {}).get(part) or {})
            ]
            if missing:
                found.append(f"{key} for: {','.join(missing)}")
    return found


def namespace_usage(pods: Iterable[Manifest], keys: Iterable[str]) -> dict[str, int]:
    """Return what those Pods ask for that have not ended, by quota key."""
    used = dict.fromkeys(keys, 0)
    for pod in pods:
        if has_ended(pod):
            continue
        for key, value in pod_usage(pod).items():
            if key in used:
                used[key] += value
    return used


def pod_usage(pod: Manifest) -> dict[str, int]:
    """Return what a Pod counts, by quota key; CPU in millicores, memory and storage in bytes."""
    requests, limits = pod_requests(pod), pod_limits(pod)
    found = {"pods": 1, "count/pods": 1}
    found |= {key: value for key, value in requests.items() if key in {"cpu", "memory"}}
    found |= {f"requests.{key}": value for key, value in requests.items()}
    return found | {f"limits.{key}": limits[key] for key in limits if not key.startswith("nvidia")}


def count_quotas(world: World) -> None:
    """Write the status of every quota; a change of its limits is taken up a little later."""
    spaces: dict[str, list[Manifest]] = {}
    for pod in world.pods:
        spaces.setdefault(pod["metadata"]["namespace"], []).append(pod)
    for quota in world.tx.select(RESOURCE_QUOTA):
        status = quota.get("status") or {}
        hard: dict[str, Any] = dict(quota["spec"].get("hard") or {})
        if status.get("hard") != hard and not _is_taken_up(world, quota):
            if "hard" not in status:
                continue
            hard = status["hard"]
        used = namespace_usage(spaces.get(quota["metadata"]["namespace"], ()), hard)
        words = {key: quantity(key, used[key]) for key in hard}
        if status != {"hard": hard, "used": words}:
            quota["status"] = {"hard": hard, "used": words}
            world.put(quota)


def _is_taken_up(world: World, quota: Manifest) -> bool:
    due = hidden(quota).setdefault(
        "taken_up_at", min(world.after(TAKEN_UP_S), world.now + _LONGEST_TAKING_UP_S)
    )
    if due > world.now:
        world.put(quota)
        return False
    hidden(quota).pop("taken_up_at")
    world.put(quota)
    return True


def _words(keys: Iterable[str], amounts: Mapping[str, int]) -> str:
    return ",".join(f"{key}={quantity(key, amounts[key])}" for key in keys)
