"""Who gets what at each address: the table that `test_access` checks against the URLconf.

A row gives the outcome for each actor, in the order of `ACTORS`:

    ok   the page or the action is there for this person (any answer below 400, or 405, 409, 422)
    in   sent to the sign-in page
    no   403: you may not
    --   404: there is no such thing for you
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ACTORS = ("anonymous", "mallory", "bob", "alice", "charlie", "grace")
"""Nobody; a stranger of another tenant; researcher and lead of the tenant; manager; admin."""

type Row = tuple[str, ...]
type World = Mapping[str, Any]  # the things that addresses name, all of bob's tenant


def row(outcomes: str) -> Row:
    """Read a row such as `in no no no ok ok`."""
    parts = tuple(outcomes.split())
    if len(parts) != len(ACTORS) or not set(parts) <= {"ok", "in", "no", "--"}:
        message = f"{outcomes!r} is no row: give one of ok, in, no, -- for each of {ACTORS}"
        raise ValueError(message)
    return parts


PUBLIC = row("ok ok ok ok ok ok")
EVERYBODY = row("in ok ok ok ok ok")
REQUESTERS = row("in ok ok ok no no")
INVOLVED = row("in -- ok ok ok ok")
DECIDERS = row("in no no ok no ok")
OVERSEERS = row("in no no no ok ok")
ADMINS = row("in no no no no ok")


def of_request(world: World) -> Mapping[str, Any]:
    """Name bob's request that waits for a decision."""
    return {"request_id": world["request"]}


def of_slice(world: World) -> Mapping[str, Any]:
    """Name bob's request whose slice is ready."""
    return {"request_id": world["slice"]}


def of_gpu(world: World) -> Mapping[str, Any]:
    """Name a GPU of the cluster."""
    return {"gpu_id": world["gpu"]}


def of_node(world: World) -> Mapping[str, Any]:
    """Name the node of that GPU."""
    return {"name": world["node"]}


def of_operation(world: World) -> Mapping[str, Any]:
    """Name a change that was done to that GPU."""
    return {"operation_id": world["operation"]}


@dataclass(frozen=True, slots=True)
class Address:
    """One URL name: who gets what, how it is asked, and what stands in its path."""

    outcomes: Row
    method: str = "get"
    arguments: Callable[[World], Mapping[str, Any]] = field(default=lambda _world: {})
    data: Callable[[World], Mapping[str, Any]] = field(default=lambda _world: {})


TABLE: dict[str, Address] = {
    "healthz": Address(PUBLIC),
    "readyz": Address(PUBLIC),
    "sign-in": Address(PUBLIC),
    "sign-out": Address(row("in in in in in in"), method="post"),
    "set-language": Address(PUBLIC, method="post", data=lambda _world: {"language": "en"}),
    "admin-sign-in": Address(row("in no no no no no")),
    # --- researchers
    "gpu:home": Address(EVERYBODY),
    "gpu:offering-list": Address(EVERYBODY),
    "gpu:request-list": Address(EVERYBODY),
    "gpu:request-new": Address(REQUESTERS),
    "gpu:request-fit": Address(REQUESTERS),
    "gpu:request-detail": Address(INVOLVED, arguments=of_request),
    "gpu:request-pod": Address(INVOLVED, arguments=of_slice),
    "gpu:request-kubeconfig": Address(row("in -- ok ok no no"), "post", arguments=of_slice),
    "gpu:request-withdraw": Address(row("in -- ok no no no"), "post", arguments=of_request),
    "gpu:request-release": Address(row("in -- ok ok no ok"), "post", arguments=of_slice),
    # --- managers
    "gpu:overview": Address(OVERSEERS),
    "gpu:overview-csv": Address(OVERSEERS, arguments=lambda _world: {"table": "tenants"}),
    # --- leads decide, managers look, admins change
    "gpu:inbox": Address(DECIDERS),
    "gpu:request-approve": Address(DECIDERS, "post", arguments=of_request),
    "gpu:request-decline": Address(DECIDERS, "post", arguments=of_request),
    "gpu:gpu-map": Address(OVERSEERS),
    "gpu:gpu-detail": Address(OVERSEERS, arguments=of_gpu),
    "gpu:layout-edit": Address(ADMINS, arguments=of_gpu),
    "gpu:layout-preview": Address(ADMINS, arguments=of_gpu),
    "gpu:layout-confirm": Address(ADMINS, arguments=of_gpu),
    "gpu:layout-apply": Address(ADMINS, "post", arguments=of_gpu),
    "gpu:gpu-accept": Address(ADMINS, "post", arguments=of_gpu),
    "gpu:gpu-service": Address(ADMINS, arguments=of_gpu),
    "gpu:freeze-list": Address(ADMINS),
    "gpu:freeze-lift": Address(
        ADMINS, "post", arguments=lambda world: {"freeze_id": world["freeze"]}
    ),
    "gpu:operation-list": Address(OVERSEERS),
    "gpu:operation-detail": Address(OVERSEERS, arguments=of_operation),
    "gpu:operation-undo": Address(ADMINS, arguments=of_operation),
    "gpu:operation-call-off": Address(ADMINS, "post", arguments=of_operation),
    "gpu:node-list": Address(OVERSEERS),
    "gpu:node-detail": Address(OVERSEERS, arguments=lambda world: {"name": world["node"]}),
    "gpu:sharing-edit": Address(ADMINS, arguments=of_node),
    "gpu:sharing-confirm": Address(ADMINS, arguments=of_node),
    "gpu:sharing-apply": Address(ADMINS, "post", arguments=of_node),
    "gpu:audit-list": Address(ADMINS),
}

WITHOUT_ROW: dict[str, str] = {
    "live": "answered by portal.stream before Django, which looks at the signed token alone",
    "admin:*": "Django's own site: `is_staff` and nothing else, see the test below",
}
