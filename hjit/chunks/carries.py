"""Scans along a chunked axis: each chunk continues from the last rows of the chunk before it.

A stage ``s[i] = f(s[i - 1], ...)`` has to be computed row by row, but row ``i`` needs only the last `depth` rows before
it. The first `depth` iterations of a chunk are updates of their own, which load those rows from an array that is
passed in; the others are those of the whole array. So the results are the same, operation by operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hjit.chunks.bounds import Interval, Region
from hjit.sched.analysis.bounds import whole_axes
from hjit.trace.ir.expressions import Expr, Load, rewrite
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, contiguous_layout
from hjit.trace.ir.poly import Dim, Poly, sizes_value
from hjit.trace.ir.rewriting import fresh

DEEPEST = 16  # rows before a chunk that it may need


@dataclass(frozen=True, slots=True)
class Carry:
    """How the chunks of a scan continue from each other.

    Attributes:
        axis: along which.
        step: 1, or -1 where the scan runs backwards.
        depth: how many rows of the chunk before it one needs.
        update: which update of the stage is the scan.
        dim: the dimension of its iterations.
        rest: of the scan's target, ``step * dim + rest``.
        extent: of the iterations.
    """

    axis: int
    step: int
    depth: int
    update: int
    dim: int
    rest: Poly
    extent: Poly

    def iterations(self, region: Region, sizes: Mapping[str, int]) -> Interval:
        """The iterations that write the rows of a region."""
        rest, last = sizes_value(self.rest, sizes), sizes_value(self.extent, sizes) - 1
        low, high = region[self.axis]
        first, final = (low - rest, high - rest) if self.step > 0 else (rest - high, rest - low)
        return np.maximum(first, 0), np.minimum(final, last)

    def before(self, region: Region, n: int) -> Region:
        """The rows that a chunk needs of those before it, in an axis of `n`; for the first chunk some rows."""
        low, high = region[self.axis]
        first = low - self.depth if self.step > 0 else high + 1
        rows = np.clip(first, 0, n - 1), np.clip(first + self.depth - 1, 0, n - 1)
        return tuple(rows if k == self.axis else x for k, x in enumerate(region))

    def is_first(self, region: Region, n: int) -> Any:
        """Which chunks have no predecessor?"""
        low, high = region[self.axis]
        return low == 0 if self.step > 0 else high == n - 1

    def chunks(self, chunks: Sequence[int], sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Chunks of the axis, joined where they would be shorter than the carried rows.

        Each but the first begins at a row that the scan computes, and has more iterations than rows that it needs.
        """
        n = sum(chunks)
        first, count = sizes_value(self.rest, sizes), sizes_value(self.extent, sizes)
        if self.step < 0:
            chunks, first = list(reversed(chunks)), n - 1 - first
        edges = [0]
        for edge in accumulate(chunks[:-1]):
            if edge >= first and edge - edges[-1] > self.depth and first + count - edge > self.depth:
                edges.append(edge)
        found = [b - a for a, b in pairwise([*edges, n])]
        return tuple(found if self.step > 0 else reversed(found))


def carry_of(s: Stage) -> Carry | None:
    """The axis along which chunks of a stage can continue from each other; None if there is none.

    That is so where its last update is a scan whose outermost iterations are the rows of that axis, which reads a
    known number of rows before its own, and no other definition ties rows together.
    """
    if not s.updates:
        return None
    *others, d = s.updates
    if d.order != "sequential" or not d.rdims or d.is_scatter or d.joined:
        return None
    dim = len(d.dims)
    tied = set(whole_axes(replace(s, updates=tuple(others))))
    for axis, p in enumerate(d.target):
        step = p.coefficient(Dim(dim))
        if step is None or not step.is_const or abs(step.const) != 1 or axis in tied:
            continue
        rest = p - Poly({(Dim(dim),): step.const}, 0)
        elsewhere = [q for k, q in enumerate(d.target) if k != axis]
        if _has_dims(rest) or any(q.mentions(Dim(dim)) for q in elsewhere):
            continue
        depth = _depth(s.name, d, axis, step.const)
        if depth is not None:
            return Carry(axis, step.const, depth, len(others), dim, rest, d.rdims[0])
    return None


def _has_dims(p: Poly) -> bool:
    return p.has(Dim) or bool(p.exprs)


def _behind(load: Load, d: Definition, axis: int, step: int) -> int | None:
    """How many rows before its own an iteration loads from its stage; None if that is no constant, or they come
    later."""
    by = (d.target[axis] - load.index[axis]) * step
    return by.const if by.is_const and by.const >= 0 else None


def _depth(name: str, d: Definition, axis: int, step: int) -> int | None:
    found = [_behind(load, d, axis, step) for load in d.loads if load.source == name]
    depths = [x for x in found if x is not None]
    return max(depths) if len(depths) == len(found) and 0 < max(depths, default=0) <= DEEPEST else None


def name_of_rows(graph: Graph, stage: str) -> str:
    """The name of the input with the rows before a chunk."""
    return fresh(f"{stage}_before", graph.arrays)


def continuing(graph: Graph, carries: Mapping[str, Carry]) -> Graph:
    """The Graph for chunks that follow others: these stages load the rows before the chunk from inputs."""
    stages, inputs = [], []
    for s in graph.stages:
        carry = carries.get(s.name)
        if carry is None:
            stages.append(s)
            continue
        rows = name_of_rows(graph, s.name)
        inputs.append(Input(rows, s.dtype, s.shape, contiguous_layout(s.shape)))
        stages.append(replace(s, updates=tuple(_updates(s, carry, rows))))
    return replace(graph, inputs=(*graph.inputs, *inputs), stages=tuple(stages))


def _updates(s: Stage, carry: Carry, rows: str) -> Iterator[Definition]:
    *others, d = s.updates
    yield from others
    for k in range(carry.depth):

        def change(e: Expr, k: int = k) -> Expr | None:
            if isinstance(e, Load) and e.source == s.name and (_behind(e, d, carry.axis, carry.step) or 0) > k:
                return Load(rows, e.index, e.dtype)
            return None

        yield replace(d, value=rewrite(d.value, change))
    yield d


def given_iterations(carry: Carry, region: Region, sizes: Mapping[str, int]) -> dict[int, dict[int, Interval]]:
    """What each update of a stage of `continuing` does of the scan's iterations, for each chunk."""
    low, high = carry.iterations(region, sizes)
    found = {carry.update + k: {carry.dim: (low + k, low + k)} for k in range(carry.depth)}
    found[carry.update + carry.depth] = {carry.dim: (low + carry.depth, high)}
    return found
