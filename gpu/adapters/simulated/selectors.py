"""Label and field selectors, as the API server reads them."""

import re
from collections.abc import Mapping
from typing import Any

from gpu.ports import Manifest, RefusedError, Scope

_TERMS = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"([^!=]+)(!=|==|=)(.*)")
_SET = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_KEY = re.compile(r"!?[A-Za-z0-9][-A-Za-z0-9_./]*")
_FIELDS_OF_ALL = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS = {
    "Pod": {"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase"},
    "Node": {"spec.unschedulable"},
    "Namespace": {"status.phase"},
    "Job": {"status.successful"},
    "Event": {
        "involvedObject.apiVersion",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
}


def in_scope(body: Manifest, scope: Scope) -> bool:
    """Say whether an object is of the namespace and matches both selectors."""
    meta = body["metadata"]
    if scope.namespace and meta.get("namespace", "") != scope.namespace:
        return False
    labels = meta.get("labels") or {}
    return matches_labels(labels, scope.label_selector) and _matches_fields(
        body, scope.field_selector
    )


def check_scope(kind_name: str, scope: Scope) -> None:
    """Refuse selectors that cannot be read or that the kind does not know."""
    for term in filter(None, (part.strip() for part in _TERMS.split(scope.label_selector))):
        is_set = _SET.fullmatch(term)
        key = is_set[1] if is_set else term
        for sign in ("!=", "="):
            key = key.partition(sign)[0].strip()
        if not _KEY.fullmatch(key):
            msg = f"unable to parse requirement: {term!r} is no label selector"
            raise RefusedError(msg)
    for term in filter(None, (part.strip() for part in scope.field_selector.split(","))):
        match = _FIELD.fullmatch(term)
        if match is None:
            msg = f"invalid selector: {term!r}; can't understand it"
            raise RefusedError(msg)
        if match[1] not in _FIELDS_OF_ALL | _FIELDS.get(kind_name, set()):
            msg = f'field label not supported: "{match[1]}" of {kind_name}'
            raise RefusedError(msg)


def matches_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Say whether labels match a selector; an empty one matches everything."""
    return all(_label_term(labels, term.strip()) for term in _TERMS.split(selector) if term.strip())


def matches_selector(labels: Mapping[str, str], selector: Mapping[str, Any]) -> bool:
    """Say whether labels match the selector of an object: `matchLabels` and `matchExpressions`."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        matches_term(labels, term) for term in selector.get("matchExpressions") or ()
    )


def matches_term(values: Mapping[str, Any], term: Mapping[str, Any]) -> bool:
    """Say whether values match one `matchExpressions` term; `Gt` and `Lt` are for node affinity."""
    value, wanted = values.get(term["key"]), term.get("values") or []
    match term["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not str(value).isdecimal():
                return False
            limit = int(wanted[0])
            return int(value) > limit if operator == "Gt" else int(value) < limit
        case operator:
            msg = f'"{operator}" is not a valid label selector operator'
            raise RefusedError(msg)


def _label_term(labels: Mapping[str, str], term: str) -> bool:
    if match := _SET.fullmatch(term):
        key, verb, values = match.groups()
        among = labels.get(key) in {value.strip() for value in values.split(",")}
        return among if verb == "in" else not among
    for sign, wanted in (("!=", False), ("==", True), ("=", True)):
        key, found, value = term.partition(sign)
        if found:
            return (labels.get(key.strip()) == value.strip()) is wanted
    return term[1:] not in labels if term.startswith("!") else term in labels


def _matches_fields(body: Manifest, selector: str) -> bool:
    for term in filter(None, (part.strip() for part in selector.split(","))):
        match = _FIELD.fullmatch(term)
        if match is None:
            return False
        path, sign, value = match.groups()
        if (_field(body, path) == value) is (sign == "!="):
            return False
    return True


def _field(body: Manifest, path: str) -> str:
    found: Any = body
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)
