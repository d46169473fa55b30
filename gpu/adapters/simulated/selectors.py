"""Label and field selectors, as the API server reads them."""

import re
from collections.abc import Mapping
from typing import Any

from gpu.ports import Manifest, RefusedError, Scope

_TERMS = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"([^!=]+)(!=|==|=)(.*)")
_SET = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*")


def in_scope(body: Manifest, scope: Scope) -> bool:
    """Say whether an object is of the namespace and matches both selectors."""
    meta = body["metadata"]
    if scope.namespace and meta.get("namespace", "") != scope.namespace:
        return False
    labels = meta.get("labels") or {}
    return matches_labels(labels, scope.label_selector) and _matches_fields(
        body, scope.field_selector
    )


def matches_labels(labels: Mapping[str, str], selector: str) -> bool:
    """Say whether labels match a selector; an empty one matches everything."""
    return all(_label_term(labels, term.strip()) for term in _TERMS.split(selector) if term.strip())


def matches_selector(labels: Mapping[str, str], selector: Mapping[str, Any]) -> bool:
    """Say whether labels match a `matchLabels` selector of an object."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


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
            msg = f"invalid selector: {selector!r}"
            raise RefusedError(msg)
        path, sign, value = match.groups()
        if (str(_field(body, path)) == value) is (sign == "!="):
            return False
    return True


def _field(body: Manifest, path: str) -> Any:  # noqa: ANN401  # JSON values
    found: Any = body
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return found
