"""Placement where it is known when every instance ends, as the portal knows of its rights."""

from bench.model import PROFILES, Arrival, table
from gpu.planning.geometry import Instance, Layout
from gpu.planning.placing import Move, Patiences, Worth, patience_with

_LATELY = 200  # arrivals over which the mean time left is taken

type Held = tuple[int, Instance]


class EndsKnown:
    """Looks at every GPU: what a placement costs depends on who leaves soon."""

    def __init__(self, gpus: int) -> None:
        self._worth = Worth(table())
        self._layouts: list[Layout] = [()] * gpus
        self._ends: list[dict[Instance, float]] = [{} for _gpu in range(gpus)]
        self._mean_left = 0.0

    def place_until(self, arrival: Arrival) -> Held | None:
        """Put an instance that ends when it says, or refuse."""
        self._mean_left += (arrival.life - self._mean_left) / _LATELY
        found = self._cheapest(PROFILES[arrival.kind], arrival)
        if found is None:
            return None
        gpu, move = found
        self._layouts[gpu] = move.after
        self._ends[gpu][move.instance] = arrival.at + arrival.life
        return gpu, move.instance

    def release(self, held: Held) -> None:
        """Take the instance away."""
        gpu, instance = held
        del self._ends[gpu][instance]
        self._layouts[gpu] = tuple(item for item in self._layouts[gpu] if item != instance)

    def _cheapest(self, profile: str, arrival: Arrival) -> tuple[int, Move] | None:
        patience = patience_with(arrival.life, self._mean_left)
        best: tuple[float, int] | None = None
        found: tuple[int, Move] | None = None
        for gpu, layout in enumerate(self._layouts):
            moves = self._worth.moves(layout, profile)
            patiences = self._patiences(gpu, arrival.at) if moves else ()
            for move in moves:
                cost = round(self._worth.cost(move, patiences, patience), 6)
                if best is None or (cost, -move.used) < best:
                    best, found = (cost, -move.used), (gpu, move)
        return found

    def _patiences(self, gpu: int, now: float) -> Patiences:
        ends = self._ends[gpu]
        return tuple(
            patience_with(ends[item] - now, self._mean_left) for item in self._layouts[gpu]
        )
