"""PodDisruptionBudgets: what an eviction asks, and the controller that counts."""

from collections.abc import Iterable
from math import ceil
from typing import Any

from gpu.adapters.simulated.quantities import has_ended
from gpu.adapters.simulated.selectors import matches_selector
from gpu.adapters.simulated.store import Transaction
from gpu.adapters.simulated.world import World
from gpu.ports import POD, POD_DISRUPTION_BUDGET, BlockedError, Manifest


def check_eviction(tx: Transaction, pod: Manifest) -> None:
    """Refuse an eviction that a budget forbids just now; a Pod that does not run never counts."""
    meta = pod["metadata"]
    if pod["status"]["phase"] != "Running" or "deletionTimestamp" in meta:
        return
    for budget in tx.select(POD_DISRUPTION_BUDGET, meta["namespace"]):
        if not _covers(budget, pod):
            continue
        status = _count(budget, tx.select(POD, meta["namespace"]))
        if status["disruptionsAllowed"] < 1:
            msg = (
                f"Cannot evict pod {meta['namespace']}/{meta['name']} as it would violate the"
                f" pod's disruption budget. The disruption budget {budget['metadata']['name']}"
                f" needs {status['desiredHealthy']} healthy pods and has"
                f" {status['currentHealthy']} currently"
            )
            raise BlockedError(msg)


def count_budgets(world: World) -> None:
    """Write the status of every budget."""
    for budget in world.tx.select(POD_DISRUPTION_BUDGET):
        namespace = budget["metadata"]["namespace"]
        pods = [pod for pod in world.pods if pod["metadata"]["namespace"] == namespace]
        status = _count(budget, pods)
        if budget.get("status") != status:
            budget["status"] = status
            world.put(budget)


def _covers(budget: Manifest, pod: Manifest) -> bool:
    return matches_selector(pod["metadata"].get("labels") or {}, budget["spec"]["selector"])


def _count(budget: Manifest, pods: Iterable[Manifest]) -> dict[str, int]:
    spec = budget["spec"]
    covered = [pod for pod in pods if _covers(budget, pod) and not has_ended(pod)]
    healthy = sum(
        pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        for pod in covered
    )
    if "maxUnavailable" in spec:
        desired = len(covered) - _share(spec["maxUnavailable"], len(covered))
    else:
        desired = _share(spec.get("minAvailable", 1), len(covered))
    return {
        "expectedPods": len(covered),
        "currentHealthy": healthy,
        "desiredHealthy": max(0, desired),
        "disruptionsAllowed": max(0, healthy - max(0, desired)),
    }


def _share(value: Any, of: int) -> int:  # noqa: ANN401  # a number or a percentage
    text = str(value)
    return ceil(of * int(text[:-1]) / 100) if text.endswith("%") else int(text)
