"""In which order the parts of the simulated cluster act, and when they act again."""

from gpu.adapters.simulated.budgets import count_budgets
from gpu.adapters.simulated.daemon_sets import run_daemon_sets
from gpu.adapters.simulated.events import forget_old
from gpu.adapters.simulated.jobs import run_jobs
from gpu.adapters.simulated.kubelet import run_kubelets
from gpu.adapters.simulated.mig_manager import run_mig_managers
from gpu.adapters.simulated.node_lifecycle import keep_namespaces, watch_nodes
from gpu.adapters.simulated.quotas import count_quotas
from gpu.adapters.simulated.registration import hold_devices, run_plugins
from gpu.adapters.simulated.replicas import make_owed
from gpu.adapters.simulated.scheduling import schedule_pods
from gpu.adapters.simulated.store import NEVER, hidden
from gpu.adapters.simulated.world import World
from gpu.ports import DAEMON_SET, JOB, RESOURCE_QUOTA

_TIMED = (JOB, DAEMON_SET, RESOURCE_QUOTA)

_PARTS = (
    keep_namespaces,
    watch_nodes,
    run_jobs,
    run_daemon_sets,
    make_owed,
    schedule_pods,
    run_kubelets,
    run_plugins,
    run_mig_managers,
    count_quotas,
    count_budgets,
    hold_devices,
)


def step(world: World) -> bool:
    """Let everything happen that is due; return whether more may follow at once."""
    world.look()
    before = world.tx.writes
    for act in _PARTS:
        act(world)
    is_moving = world.tx.writes > before
    forget_old(world.tx, world.now)
    return is_moving


def next_due(world: World) -> float:
    """Return when something happens next by itself; now while a script has not ended."""
    if world.scripts:
        return world.now  # the results come at once, or somebody else waits for them
    bodies = [*world.pods, *world.nodes, *(world.tx.fact("owed_pods") or ())]
    bodies += [body for kind in _TIMED for body in world.tx.select(kind)]
    times = [
        value
        for body in bodies
        for key, value in hidden(body).items()
        if key.endswith("_at") and value > world.now
    ]
    return min(times, default=NEVER)
