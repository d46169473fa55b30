"""What an account has asked of the API server, and what its roles let it ask."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Permission(NamedTuple):
    """One verb on one resource (`pods`, `pods/log`) of an API group; "" is every namespace."""

    verb: str
    group: str
    resource: str
    namespace: str = ""


def asked(log: Path, account: str) -> set[Permission]:
    """Return what a service account (`namespace:name`) has asked, each in its namespace."""
    found = set()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] != f"system:serviceaccount:{account}":
            continue
        reference = event.get("objectRef")
        if reference:
            found.add(_asked(event["verb"], reference))
    return found


def _asked(verb: str, reference: Mapping[str, str]) -> Permission:
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    # The log gives a namespace object's own name as its namespace.
    namespace = "" if resource == "namespaces" else reference.get("namespace", "")
    return Permission(verb, reference.get("apiGroup", ""), resource, namespace)


def granted(roles: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """Return what ClusterRoles and Roles grant, one verb and resource at a time."""
    return {
        Permission(verb, group, resource, role["metadata"].get("namespace", ""))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def unused(grants: set[Permission], asked_for: set[Permission]) -> set[Permission]:
    """Return the grants that nothing asked needed."""
    return {
        grant
        for grant in grants
        if not any(
            each[:3] == grant[:3] and grant.namespace in ("", each.namespace) for each in asked_for
        )
    }
