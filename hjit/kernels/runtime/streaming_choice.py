"""Online choice of streaming stores: measures, while a kernel is in use, whether they make it faster."""

from __future__ import annotations

import logging
import math
from time import perf_counter

log = logging.getLogger("hjit")

TRIES = 5  # calls of each way; the very first may touch new pages of memory
SURELY = 0.97  # of the first way's time: the second way must be faster than that to be chosen


class StreamingChoice:
    """Two parameter blocks of a kernel that give the same results.

    The first calls alternate between them; later ones take the one whose fastest call was faster. Nothing waits for
    this, and no call runs twice; with concurrent calls there may be more tries.

    Attributes:
        blocks: the two ways; the second one has to win clearly.
        best: the block to take, once it is known.
    """

    __slots__ = ("_calls", "_fastest", "best", "blocks")

    def __init__(self, first: bytes, second: bytes) -> None:
        self.blocks = first, second
        self.best: bytes | None = first if first == second else None
        self._fastest = [math.inf, math.inf]
        self._calls = 0

    def begin(self) -> tuple[int, float]:
        """The number of the next way, and the time. The order is 0 1 1 0 0 1 1 ...: each also runs after itself."""
        return (self._calls + 1) // 2 % 2, perf_counter()

    def end(self, way: int, start: float) -> None:
        """Record a call that ran this way."""
        self._fastest[way] = min(self._fastest[way], perf_counter() - start)
        self._calls += 1
        if self._calls >= 2 * TRIES:
            first, second = self._fastest
            self.best = self.blocks[second < SURELY * first]
            log.debug(
                "of two ways to store results: kept in the caches %.3f ms, past them %.3f ms", 1e3 * first, 1e3 * second
            )
