"""Kernels over bands of rows: each runs as soon as its input rows have arrived, while other rows are being copied.

For large arrays of the host. They are uploaded in bands of rows; after each band, every launch runs the blocks whose
input rows have arrived, and rows of results that no later block writes are downloaded. A kernel that reads the whole
image waits for all of it. The plan depends on sizes only, and is made once for all calls with the same sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BAND_BYTES = 16 << 20  # of what arrives, or leaves, at a time: a launch of each kernel is nothing against it
MAX_BANDS = 64
IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class RowTable:
    """`hjit.kernels.lower.program.Rows` at the sizes of a call: a number for each iteration."""

    stage: str
    count: int
    ends: Mapping[str, IntArray]
    begin: IntArray


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Iterations ``begin .. end`` of the outermost loop over blocks of a launch, by its number."""

    launch: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows ``begin .. end`` of an array, by its name."""

    array: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Band:
    """What is done at a time, in this order.

    Attributes:
        arriving: rows that are uploaded.
        parts: of launches.
        leaving: rows of results that are downloaded.
    """

    arriving: tuple[RowRange, ...]
    parts: tuple[BlockRange, ...]
    leaving: tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """A launch: what it reads, and its rows.

    Attributes:
        arrays: all that it is given but what it writes. Of those that `table` does not have it needs all rows.
    """

    arrays: frozenset[str]
    table: RowTable


def plan(
    readers: Sequence[Reader], rows: Mapping[str, int], arriving: Sequence[str], results: Sequence[str], count: int
) -> tuple[Band, ...]:
    """What to do, band by band; nothing where no part of a launch can run before all is there.

    Args:
        rows: of each array, the length of its first axis.
        arriving: arrays that are uploaded, in `count` bands.
        results: stages that are downloaded.
    """
    found = tuple(_Plan(readers, rows, arriving, results).bands(count))
    early = (x.launch for band in found[:-1] for x in band.parts)
    return found if any(readers[k].table.count > 1 for k in early) else ()


class _Plan:
    """How far everything has come.

    Attributes:
        there: rows of each array that arrives.
        done: iterations of each launch.
        left: rows of each result that have been downloaded.
    """

    def __init__(
        self, readers: Sequence[Reader], rows: Mapping[str, int], arriving: Sequence[str], results: Sequence[str]
    ) -> None:
        self.readers, self.rows = readers, rows
        self.there = dict.fromkeys(arriving, 0)
        self.done = [0] * len(readers)
        self.left = dict.fromkeys(results, 0)
        self.writers: dict[str, list[int]] = {}
        for k, x in enumerate(readers):
            self.writers.setdefault(x.table.stage, []).append(k)
        # the most that an iteration or one before it needs, and the first row that it or a later one writes
        self.needs = [{a: np.maximum.accumulate(n) for a, n in self._ends(x).items()} for x in readers]
        self.begins = [np.minimum.accumulate(x.table.begin[::-1])[::-1] for x in readers]

    def _ends(self, x: Reader) -> dict[str, IntArray]:
        """Rows that each iteration needs; of its own stage those that launches before it must have written."""
        table = x.table
        return {a: table.ends.get(a, np.full(table.count, self.rows[a])) for a in (*x.arrays, table.stage)}

    def bands(self, count: int) -> Iterator[Band]:
        for k in range(1, count + 1):
            arriving = tuple(self._arriving(k, count))
            parts = tuple(self._parts())
            yield Band(arriving, parts, tuple(self._leaving()))

    def _arriving(self, k: int, count: int) -> Iterator[RowRange]:
        for name, before in self.there.items():
            end = -(-self.rows[name] * k // count)
            if end > before:
                self.there[name] = end
                yield RowRange(name, before, end)

    def _parts(self) -> Iterator[BlockRange]:
        for k, x in enumerate(self.readers):
            ends = [int(np.searchsorted(n, self._rows_of(a, k), "right")) for a, n in self.needs[k].items()]
            end = min([x.table.count, *ends])
            if end > self.done[k]:
                yield BlockRange(k, self.done[k], end)
                self.done[k] = end

    def _leaving(self) -> Iterator[RowRange]:
        for name, before in self.left.items():
            end = self._rows_of(name, len(self.readers))
            if end > before:
                self.left[name] = end
                yield RowRange(name, before, end)

    def _rows_of(self, array: str, before: int) -> int:
        """Rows of an array that are there; of a stage, that launches before this one have written."""
        if array in self.there:
            return self.there[array]
        known = [self._written(k) for k in self.writers.get(array, ()) if k < before]
        return min(known, default=self.rows[array])

    def _written(self, k: int) -> int:
        """Rows of its stage that a launch does not write any more."""
        table = self.readers[k].table
        return self.rows[table.stage] if self.done[k] == table.count else int(self.begins[k][self.done[k]])
