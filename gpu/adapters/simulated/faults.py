"""What can be made to go wrong in the lab, on one node or in front of all of it.

Faults are kept in the lab's own file, so that every process meets them, and stay until they are
switched off.
"""

from collections.abc import Mapping

from gpu.adapters.simulated.store import Transaction, hidden
from gpu.ports import NODE, POD

EVERYWHERE = "*"
"""Stands for the API server, in place of a node's name."""

NODE_FAULTS: Mapping[str, str] = {
    "plugin_never_registers": "the device plugin, once restarted, reports no devices",
    "plugin_crash_loop": "the device plugin crashes at once and again; the node offers no GPU",
    "create_fails": "nvidia-smi creates no GPU instance: Insufficient Resources",
    "destroy_in_use": "nvidia-smi destroys no GPU instance: In use by another client",
    "reset_refused": "nvidia-smi resets no GPU",
    "gpu_lost": "the driver has lost a GPU; the device plugin notices when it restarts",
    "mig_manager_client_stays": "mig-manager waits for a client Pod in vain: pending for ever",
    "mig_manager_deaf": "mig-manager notices a changed label, and does and says nothing",
    "mig_manager_lies": "mig-manager reports success without having done anything",
    "mig_mode_needs_reboot": "MIG mode changes only at a reboot, which mig-manager does not say",
    "job_never_starts": "Pods of Jobs wait for their image for ever",
    "node_not_ready": "the kubelet stops answering; the node is NotReady",
    "slow": "everything on the node takes five times as long",
}
CLUSTER_FAULTS: Mapping[str, str] = {
    "api_unreachable": "the API server does not answer",
    "slow": "every call of the API server takes a second",
}


class FaultError(ValueError):
    """There is no such fault or node; the text names those that there are."""


def switch(tx: Transaction, node: str, fault: str, *, on: bool) -> list[str]:
    """Switch a fault on or off and return those that are on there now."""
    _check(tx, node, fault)
    faults: dict[str, list[str]] = tx.fact("faults") or {}
    names = set(faults.get(node, ()))
    names = names | {fault} if on else names - {fault}
    faults[node] = sorted(names)
    tx.set_fact("faults", faults)
    if not on:
        _try_again_now(tx, node)
    return faults[node]


def switched_on(tx: Transaction) -> dict[str, list[str]]:
    """Return the faults that are on, by node; `EVERYWHERE` stands for the API server."""
    found: dict[str, list[str]] = tx.fact("faults") or {}
    return {node: names for node, names in found.items() if names}


def _check(tx: Transaction, node: str, fault: str) -> None:
    known = CLUSTER_FAULTS if node == EVERYWHERE else NODE_FAULTS
    if fault not in known:
        where = "the API server" if node == EVERYWHERE else "a node"
        msg = f"{fault!r} is no fault of {where}; there are: {', '.join(sorted(known))}."
        raise FaultError(msg)
    if node == EVERYWHERE:
        return
    names = [body["metadata"]["name"] for body in tx.select(NODE)]
    if node not in names:
        msg = f"The lab has no node {node!r}; there are: {', '.join(names) or 'none yet'}."
        raise FaultError(msg)


def _try_again_now(tx: Transaction, node: str) -> None:
    """End the back-off of what the fault had kept down, so that nobody waits five minutes."""
    for pod in tx.select(POD):
        if pod["spec"].get("nodeName") == node and "retry_at" in hidden(pod):
            hidden(pod)["retry_at"] = 0
            tx.put(pod)
