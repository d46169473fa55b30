"""What the API server checks before it takes an object: names, defaults of limits, quotas."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpu.adapters.simulated.store import Transaction
from gpu.objects import parse_bytes, parse_milli_cpu
from gpu.ports import (
    LIMIT_RANGE,
    NAMESPACE,
    POD,
    RESOURCE_QUOTA,
    Kind,
    Manifest,
    NotFoundError,
    RefusedError,
)

FINAL_PHASES = frozenset({"Succeeded", "Failed"})
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def check_identity(kind: Kind, name: str, namespace: str) -> None:
    """Refuse names that are none, and a namespaced kind without a namespace."""
    if not _NAME.fullmatch(name) or len(name) > 253:  # noqa: PLR2004  # Kubernetes' own limit
        msg = (
            f"{kind.name} {name!r} is invalid: a lowercase RFC 1123 subdomain consists of lower"
            " case alphanumeric characters, '-' or '.'"
        )
        raise RefusedError(msg)
    if kind.is_namespaced and not namespace:
        msg = f"{kind.plural} {name!r}: an empty namespace may not be set"
        raise RefusedError(msg)


def check_namespace(tx: Transaction, namespace: str) -> None:
    """Refuse an object in a namespace that is not there."""
    if namespace and tx.get(NAMESPACE, namespace) is None:
        msg = f'namespaces "{namespace}" not found'
        raise NotFoundError(msg)


def with_defaults(tx: Transaction, pod: Manifest) -> Manifest:
    """Fill in what the namespace's limit ranges say for containers that name no amount."""
    defaults: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for body in tx.select(LIMIT_RANGE, pod["metadata"]["namespace"]):
        for item in body["spec"]["limits"]:
            if item["type"] == "Container":
                defaults["limits"] |= item.get("default") or {}
                defaults["requests"] |= item.get("defaultRequest") or {}
    for container in pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        given = dict(resources.get("limits") or {})
        requests = {**given, **(resources.get("requests") or {})}
        resources["requests"] = {**defaults["requests"], **requests}
        resources["limits"] = {**defaults["limits"], **given}
    return pod


def check_quota(tx: Transaction, pod: Manifest) -> None:
    """Refuse a Pod that would exceed a quota of its namespace, in Kubernetes' own words."""
    meta = pod["metadata"]
    wanted = pod_usage(pod)
    for quota in tx.select(RESOURCE_QUOTA, meta["namespace"]):
        hard = quota["spec"]["hard"]
        used = namespace_usage(tx, meta["namespace"], hard)
        over = [
            key
            for key in sorted(hard)
            if wanted.get(key, 0) and used[key] + wanted[key] > amount(key, hard[key])
        ]
        if over:
            name = quota["metadata"]["name"]
            msg = (
                f'pods "{meta["name"]}" is forbidden: exceeded quota: {name},'
                f" requested: {_words(over, wanted)}, used: {_words(over, used)},"
                f" limited: {','.join(f'{key}={hard[key]}' for key in over)}"
            )
            raise RefusedError(msg)


def namespace_usage(tx: Transaction, namespace: str, keys: Iterable[str]) -> dict[str, int]:
    """Return what the Pods of a namespace ask for that have not ended, by quota key."""
    used = dict.fromkeys(keys, 0)
    for pod in tx.select(POD, namespace):
        if pod.get("status", {}).get("phase") in FINAL_PHASES:
            continue
        for key, value in pod_usage(pod).items():
            if key in used:
                used[key] += value
    return used


def pod_usage(pod: Manifest) -> dict[str, int]:
    """Return what a Pod counts, by quota key; CPU in millicores, memory and storage in bytes."""
    total = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for key, value in (container.get("resources", {}).get("requests") or {}).items():
            name = f"requests.{key}"
            total[name] = total.get(name, 0) + amount(name, value)
    return total


def amount(key: str, value: Any) -> int:  # noqa: ANN401  # a quantity as JSON has it
    """Return a quantity as a whole number in the unit that its key is counted in."""
    if key.endswith("cpu"):
        return parse_milli_cpu(value)
    return parse_bytes(value)


def quantity(key: str, value: int) -> str:
    """Return a counted number as a quantity."""
    return f"{value}m" if key.endswith("cpu") and value else str(value)


def _words(keys: Iterable[str], amounts: Mapping[str, int]) -> str:
    return ",".join(f"{key}={quantity(key, amounts[key])}" for key in keys)
