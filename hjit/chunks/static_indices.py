"""Indices read from arrays that depend on no input: the rows and columns of a resized image, say.

Such arrays follow from sizes and scalars alone, so their elements are known when tasks are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Index, Load, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.interpret import evaluate, interpret
from hjit.trace.ir.intervals import Over
from hjit.trace.ir.poly import Dim, Indirect, deep_atoms, sizes_value

MAX_ELEMENTS = 1 << 20  # elements of what is computed for that
FAR = 1 << 40  # further than any array reaches

Array = np.ndarray[Any, Any]


class StaticIndices:
    """The arrays of a Graph that depend on no input, and the indices that depend on nothing else."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> None:
        self.graph, self.sizes, self.scalars = graph, sizes, scalars
        self._arrays: dict[str, Array | None] = {}
        self._lengths: dict[int, int] = {}

    def array(self, name: str) -> Array | None:
        """The elements of an array; None where they are not known."""
        if name not in self._arrays:
            self._arrays[name] = None
            self._arrays[name] = self._array(name)
        return self._arrays[name]

    def _array(self, name: str) -> Array | None:
        source = self.graph.input_by_name.get(name)
        if source is not None:
            if source.data is None:
                return None
            return np.frombuffer(source.data, source.dtype).reshape([p.const for p in source.shape])
        stage = self.graph.stage(name)
        work = sum(math.prod(sizes_value(n, self.sizes) for n in d.extents) for d in stage.definitions)
        others = stage.sources - {name}
        arrays = {n: a for n in others if work <= MAX_ELEMENTS and (a := self.array(n)) is not None}
        if work > MAX_ELEMENTS or len(arrays) < len(others):
            return None
        inputs = tuple(self._as_input(n) for n in arrays)
        graph = replace(self.graph, inputs=inputs, stages=(stage,), outputs=(name,))
        try:
            (found,) = interpret(graph, arrays, self.sizes, self.scalars)
        except (IndexError, KeyError):
            return None
        return found

    def _as_input(self, name: str) -> Any:
        array = self.graph.arrays[name]
        like = next(iter(self.graph.inputs))
        layout = (None,) * len(array.shape)
        return replace(like, name=name, dtype=array.dtype, shape=array.shape, layout=layout, data=None)

    def index(self, a: Indirect) -> Over[Any] | None:
        """The bounds of an index that depends on one dimension; None where they are not known."""
        found = [e for e in walk(a.expr) if isinstance(e, (Load, Index))]
        dims = {b.k for e in found for p in e.polys for b in deep_atoms(p) if isinstance(b, Dim)}
        if len(dims) > 1 or any(isinstance(e, Load) and self.array(e.source) is None for e in found):
            return None
        k = next(iter(dims), None)

        def bounds(intervals: Any) -> tuple[Any, Any]:
            low, high = np.broadcast_arrays(*map(np.atleast_1d, (0, 0) if k is None else intervals[k]))
            first, last = int(low.min()), int(high.max())
            if not 0 <= last - first < MAX_ELEMENTS:
                return -FAR, FAR
            values = self._values(a, k or 0, np.arange(first, last + 1))
            if values is None:
                return -FAR, FAR
            return _extremes(values, np.minimum(low - first, last - first), np.maximum(high - first, 0))

        return bounds

    def _values(self, a: Indirect, k: int, at: Array) -> Array | None:
        arrays = {n: x for n, x in self._arrays.items() if x is not None}
        try:
            found = np.broadcast_to(evaluate(a.expr, {k: at}, arrays, self.sizes, self.scalars), at.shape)
        except (IndexError, KeyError):
            return None
        found = found.astype(np.int64)
        if a.extent is not None:
            found = np.where(found < 0, found + sizes_value(a.extent, self.sizes), found)
        return found


def _extremes(values: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The least and the greatest of ``values[low : high + 1]``, for each of many."""
    if (np.diff(values) >= 0).all():
        return values[low], values[high]
    ends = list(zip(low.tolist(), np.maximum(low, high).tolist(), strict=True))
    least = {(a, b): values[a : b + 1].min() for a, b in ends}
    most = {(a, b): values[a : b + 1].max() for a, b in ends}
    return np.array([least[x] for x in ends]), np.array([most[x] for x in ends])
