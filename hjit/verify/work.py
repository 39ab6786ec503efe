"""A limit on the work of a comparison, which is estimated in advance.

The unit is one NumPy operation on one element of an array that stays in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from hjit.trace.ir.expressions import Cast, Op, walk
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import sizes_value
from hjit.verify.definitions import is_long

MAX_WORK = 64_000_000  # operations, in addition to a share of the function's own; about half a second
OWN_SHARE = 16  # of the function's operations, sums apart; an operation here takes about ten times as long as in NumPy
SUM_SHARE = 64  # of those that are summed, which NumPy may leave to BLAS
PLAIN = 1  # operations: one on elements as NumPy has them
WITH_ERRORS = 8  # operations: one on values with errors
LOADED = 4  # operations: one load
WIDEST = 3  # operations: one on doubles, which is done with more digits
STEP_WORK = 1000  # operations: the overhead of one on few elements


class WorkLimitExceeded(Exception):
    """The comparison would take too long."""


class Work:
    """The operations of a part of a comparison, and those that remain for all of it.

    Args:
        effort: how many times `MAX_WORK` is allowed.
    """

    def __init__(self, definitions: Iterable[Definition], sizes: Mapping[str, int], effort: int = 1) -> None:
        self._sizes = sizes
        self._left = effort * MAX_WORK + sum(map(self._own, definitions))
        self._done, self._most = 0, self._left

    @contextmanager
    def part(self) -> Iterator[None]:
        """Count from zero; what is done is no longer left, also if it fails."""
        self._done, self._most = 0, self._left
        try:
            yield
        finally:
            self._left -= min(self._done, self._most)

    def count(self, elements: int, times: int = 1) -> None:
        """Some operations on some elements are to be done now.

        Raises:
            WorkLimitExceeded: they would take too long.
        """
        self._done += max(elements, STEP_WORK) * times
        if self._done > self._most:
            raise WorkLimitExceeded

    def require(self, s: Stage, elements: int) -> None:
        """Some elements of a stage are to be computed; what it reads is not included.

        Raises:
            WorkLimitExceeded: they would take too long.
        """
        for d in s.definitions:
            points, inner, operations = self.size_of(d)
            calls = inner if d.order == "sequential" else 1
            times = PLAIN if is_long(d, elements, inner) else WITH_ERRORS
            if self._done + max(min(points, elements * inner) * times, calls * STEP_WORK) * operations > self._most:
                raise WorkLimitExceeded

    def allows(self, s: Stage, elements: int) -> bool:
        """Does `require` raise nothing?"""
        try:
            self.require(s, elements)
        except WorkLimitExceeded:
            return False
        return True

    def size_of(self, d: Definition) -> tuple[int, int, int]:
        """The points of a definition, how many of them are reduced to an element, and the operations on each."""
        points, inner = (math.prod(sizes_value(n, self._sizes) for n in extents) for extents in (d.extents, d.rdims))
        return points, inner, sum(isinstance(e, (Op, Cast)) for e in walk(d.value)) + 1

    def _own(self, d: Definition) -> int:
        """The work allowed for a definition in addition to `MAX_WORK`."""
        points, _, operations = self.size_of(d)
        return points * operations // (SUM_SHARE if d.order == "add" else OWN_SHARE)
