"""The limit of every policy: everything may be packed anew at each arrival, first come first in."""

from bench.model import PROFILES
from bench.policies import Token


def fits(counts: list[int], gpus: int) -> bool:
    """Say whether instances fit on that many GPUs in some arrangement; exact for these profiles.

    After the 7g, each GPU has a left half (a 4g, a 3g or two pairs of slices) and a right one (a
    3g, or a pair and a single slice). A 3g is best on the right, which holds less.
    """
    one, two, three, four, seven = counts
    left = right = gpus - seven
    if left < 0:
        return False
    on_right = min(three, right)
    right -= on_right
    left -= four + three - on_right
    if left < 0:
        return False
    pairs = 2 * left + right
    return two <= pairs and one <= 2 * (pairs - two) + right


class RepackingBound:
    """Counts alone, for arrangement is free."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._counts = [0] * len(PROFILES)

    def place(self, kind: int) -> Token | None:
        """Let it in if all together still fit."""
        self._counts[kind] += 1
        if fits(self._counts, self._gpus):
            return 0, kind
        self._counts[kind] -= 1
        return None

    def release(self, token: Token) -> None:
        """Let it go."""
        self._counts[token[1]] -= 1
