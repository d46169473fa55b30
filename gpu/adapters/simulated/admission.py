"""What the API server checks and fills in before it takes an object; quotas are apart."""

import re
from typing import Any

from gpu.adapters.simulated.quotas import check_quota
from gpu.adapters.simulated.store import Transaction
from gpu.objects import GPU_PREFIX
from gpu.ports import (
    JOB,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    POD,
    Kind,
    Manifest,
    NotFoundError,
    RefusedError,
    kind_of,
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME = 253
_WITH_STATUS = frozenset(
    {"pods", "nodes", "namespaces", "resourcequotas", "jobs", "daemonsets", "poddisruptionbudgets"}
)
_CHANGEABLE_IN_A_POD = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"}
)


def check_identity(kind: Kind, name: str, namespace: str) -> None:
    """Refuse names that are none, and a namespaced kind without a namespace."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        msg = (
            f"{kind.name} {name!r} is invalid: a lowercase RFC 1123 subdomain consists of lower"
            " case alphanumeric characters, '-' or '.'"
        )
        raise RefusedError(msg)
    if kind.is_namespaced and not namespace:
        msg = f"{kind.plural} {name!r}: an empty namespace may not be set"
        raise RefusedError(msg)


def check_namespace(tx: Transaction, body: Manifest) -> None:
    """Refuse an object in a namespace that is not there, or that is going."""
    namespace = body["metadata"].get("namespace", "")
    if not namespace:
        return
    found = tx.get(NAMESPACE, namespace)
    if found is None:
        msg = f'namespaces "{namespace}" not found'
        raise NotFoundError(msg)
    if "deletionTimestamp" in found["metadata"]:
        msg = (
            f'{kind_of(body).plural} "{body["metadata"]["name"]}" is forbidden: unable to create'
            f" new content in namespace {namespace} because it is being terminated"
        )
        raise RefusedError(msg)


def admit(tx: Transaction, body: Manifest) -> Manifest:
    """Return a new object as the API server would store it; `RefusedError` says why it does not."""
    kind = kind_of(body)
    if kind == POD:
        _check_pod(body)
        body = _with_defaults(tx, body)
        check_quota(tx, body)
        body["status"] = {"phase": "Pending"}
    elif kind == NODE:
        body.setdefault("spec", {})
        body.setdefault("status", {})
    elif kind.plural in _WITH_STATUS:
        body.pop("status", None)
    if kind == NAMESPACE:
        body["status"] = {"phase": "Active"}
    return body


def admit_change(before: Manifest, after: Manifest) -> Manifest:
    """Return a changed object as the API server would store it; refuse what may not change.

    The status has an end point of its own, so a change of it here is lost.
    """
    kind = kind_of(before)
    after["apiVersion"], after["kind"] = kind.api_version, kind.name
    for key in ("name", "namespace", "uid", "creationTimestamp", "resourceVersion"):
        if key in before["metadata"]:
            after["metadata"][key] = before["metadata"][key]
    if kind.plural in _WITH_STATUS:
        after.pop("status", None)
        if "status" in before:
            after["status"] = before["status"]
    name = before["metadata"]["name"]
    if kind == POD and _fixed(before["spec"]) != _fixed(after["spec"]):
        msg = (
            f'Pod "{name}" is invalid: spec: Forbidden: pod updates may not change fields other'
            " than `spec.containers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations`"
        )
        raise RefusedError(msg)
    if kind == JOB and before["spec"]["template"] != after["spec"]["template"]:
        msg = f'Job.batch "{name}" is invalid: spec.template: Invalid value: field is immutable'
        raise RefusedError(msg)
    return after


def _check_pod(pod: Manifest) -> None:
    name = pod["metadata"]["name"]
    containers = (pod.get("spec") or {}).get("containers")
    if not containers:
        msg = f'Pod "{name}" is invalid: spec.containers: Required value'
        raise RefusedError(msg)
    for index, container in enumerate(containers):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for key in sorted({*limits, *requests}):
            if key.startswith(GPU_PREFIX):
                place = f"spec.containers[{index}].resources.limits[{key}]"
                _check_extended(f'Pod "{name}" is invalid: {place}', key, limits, requests)


def _check_extended(place: str, key: str, limits: Manifest, requests: Manifest) -> None:
    if key not in limits:
        msg = f"{place}: Required value: Limit must be set for non overcommitable resources"
        raise RefusedError(msg)
    if not str(limits[key]).isdecimal():
        msg = f'{place}: Invalid value: "{limits[key]}": must be an integer'
        raise RefusedError(msg)
    if key in requests and str(requests[key]) != str(limits[key]):
        msg = f'{place}: Invalid value: "{requests[key]}": must be equal to {key} limit'
        raise RefusedError(msg)


def _with_defaults(tx: Transaction, pod: Manifest) -> Manifest:
    """Fill in what the namespace's limit ranges say for containers that name no amount."""
    spec = pod["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("serviceAccountName", "default")
    defaults = _container_defaults(tx, pod["metadata"]["namespace"])
    for container in spec["containers"]:
        resources = container.setdefault("resources", {})
        given = dict(resources.get("limits") or {})
        requests = {**given, **(resources.get("requests") or {})}
        resources["requests"] = {**defaults["requests"], **requests}
        resources["limits"] = {**defaults["limits"], **given}
    return pod


def _container_defaults(tx: Transaction, namespace: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for body in tx.select(LIMIT_RANGE, namespace):
        for item in body["spec"]["limits"]:
            if item["type"] == "Container":
                found["limits"] |= item.get("default") or {}
                found["requests"] |= item.get("defaultRequest") or item.get("default") or {}
    return found


def _fixed(spec: Manifest) -> Manifest:
    """Return the part of a Pod's spec that nobody may change; quantities as they were written."""
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE_IN_A_POD}
    containers = fixed.get("containers") or ()
    images_aside = [{k: v for k, v in item.items() if k != "image"} for item in containers]
    return {**fixed, "containers": images_aside}
