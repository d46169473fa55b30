"""Lets the time pass: whoever calls the lab first lets everything happen that is due."""

import time
from collections.abc import Callable

from gpu.adapters.simulated import clockwork, kubelet
from gpu.adapters.simulated.containers import Containers, Ended, Script
from gpu.adapters.simulated.faults import EVERYWHERE
from gpu.adapters.simulated.plugin import NodeFiles
from gpu.adapters.simulated.store import Store, Transaction, hidden
from gpu.adapters.simulated.world import World
from gpu.ports import POD, Manifest, UnreachableError

_MAX_STEPS = 300
_SLOW_CALL_S = 1.0


class Timekeeper:
    """Advances one lab; `clock` returns seconds since the epoch, `pace` scales every delay.

    Scripts of Pods run outside transactions, so that nobody waits for them but who started them.
    """

    def __init__(
        self, store: Store, files: NodeFiles, *, clock: Callable[[], float], pace: float
    ) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._pace = pace
        self.containers = Containers(store.path.with_suffix(".run"))

    def arrive(self) -> None:
        """Be in front of the API server; `UnreachableError` while it does not answer."""
        with self._store.reading() as tx:
            due = tx.due()
            faults = (tx.fact("faults") or {}).get(EVERYWHERE, ())
        if "api_unreachable" in faults:
            msg = "the simulated API server does not answer (fault api_unreachable)"
            raise UnreachableError(msg)
        if "slow" in faults:
            time.sleep(_SLOW_CALL_S * self._pace)
        if due <= self._clock():
            self._advance()

    def world(self, tx: Transaction) -> World:
        """Return everything as it is now, within a transaction."""
        world = World(tx, self._files, self._clock(), self._pace)
        world.look()
        return world

    def _advance(self) -> None:
        for _step in range(_MAX_STEPS):
            with self._store.transaction() as tx:
                now, due = self._clock(), tx.due()
                if due > now:
                    return
                # What was due earlier happens as it would have then, one moment after the other.
                world = World(tx, self._files, due or now, self._pace)
                is_moving = clockwork.step(world)
                tx.set_fact("due", world.now if is_moving else clockwork.next_due(world))
            self._kill(world.ended)
            has_result = [self._run(script) for script in world.scripts]
            if world.scripts and not is_moving and not any(has_result):
                self._leave_scripts_to_others()
                return

    def _run(self, script: Script) -> bool:
        ended = self.containers.run(script, lambda: self._is_wanted(script.uid))
        if ended is None:
            return False
        self._take(script.uid, ended)
        self.containers.forget(script.uid)
        return True

    def _leave_scripts_to_others(self) -> None:
        """Let what runs for long hold up nothing else: it is looked at by the clock from now on."""
        with self._store.transaction() as tx:
            tx.wake(0.0)

    def _take(self, uid: str, ended: Ended) -> None:
        with self._store.transaction() as tx:
            world = self.world(tx)
            pod = _waiting(world.pods, uid)
            if pod is not None:
                tx.wake(kubelet.take_result(world, pod, ended))

    def _is_wanted(self, uid: str) -> bool:
        with self._store.reading() as tx:
            return _waiting(tx.select(POD), uid) is not None

    def _kill(self, uids: list[str]) -> None:
        for uid in uids:
            output = self.containers.output(uid)
            self.containers.kill(uid)
            self.containers.forget(uid)
            if output:
                with self._store.transaction() as tx:
                    if any(pod["metadata"]["uid"] == uid for pod in tx.select(POD)):
                        tx.set_log(uid, output)


def _waiting(pods: list[Manifest], uid: str) -> Manifest | None:
    """Return the Pod of that uid if its script has not ended yet."""
    return next(
        (p for p in pods if p["metadata"]["uid"] == uid and hidden(p).get("script") == "wanted"),
        None,
    )
