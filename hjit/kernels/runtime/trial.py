"""Which of two ways to run a kernel is the faster one, found while it is used."""

from __future__ import annotations

import logging
import math
from time import perf_counter

log = logging.getLogger("hjit")

TRIES = 5  # of each way: the first one of all may find memory that nobody has touched yet
SURELY = 0.97  # of the first way's time, in which the second one is taken


class Trial:
    """Two parameter blocks of a kernel that lead to the same results.

    The first calls take them by turns, later ones that which has the lesser time of its fastest call. Nothing waits for this, and no
    call runs twice; threads that call at the same time may try more often.

    Attributes:
        blocks: the two ways; the second one has to win clearly.
        best: the block to take, where that is known.
    """

    __slots__ = ("_least", "_turn", "best", "blocks")

    def __init__(self, first: bytes, second: bytes) -> None:
        self.blocks = first, second
        self.best: bytes | None = first if first == second else None
        self._least = [math.inf, math.inf]
        self._turn = 0

    def begin(self) -> tuple[int, float]:
        """The number of the way that is next, and the time. By turns in pairs, so that none always runs after the other."""
        return (self._turn + 1) // 2 % 2, perf_counter()

    def end(self, way: int, start: float) -> None:
        """A call has run this way."""
        self._least[way] = min(self._least[way], perf_counter() - start)
        self._turn += 1
        if self._turn >= 2 * TRIES:
            first, second = self._least
            self.best = self.blocks[second < SURELY * first]
            log.debug(
                "of two ways to store results: kept in the caches %.3f ms, past them %.3f ms", 1e3 * first, 1e3 * second
            )
