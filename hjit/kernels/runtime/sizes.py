"""Lengths of arrays at run-time sizes: whether they are small; and polynomials as JSON, stored with a kernel, which
give the lengths of its buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hjit.kernels.lower.params import SMALL_ARRAY
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Atom, Extremum, FloorDiv, Mod, Poly, Sym, Var, sizes_value


def are_small(graph: Graph, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]], gap: int = 0) -> bool:
    """Are all arrays short enough for 32-bit indices, from the first element in memory to the last?

    Args:
        gap: elements that may lie between rows of a stage.
    """
    stages = (
        math.prod(sizes_value(p, sizes) + gap * (k == len(s.shape) - 1) for k, p in enumerate(s.shape))
        for s in graph.stages
    )
    given = [i for i in graph.inputs if i.data is None]
    inputs = (
        sum(abs(step) * sizes_value(n, sizes) for n, step in zip(i.shape, strides[i.name], strict=True)) for i in given
    )
    return all(n <= SMALL_ARRAY for n in (*stages, *inputs))


def encode(p: Poly, symbols: Sequence[str]) -> Any:
    """A polynomial as nested lists, its symbols, and a loop's variable, by position."""

    def atom(a: Atom) -> Any:
        match a:
            case Sym() | Var():
                return symbols.index(a.name)
            case FloorDiv():
                return ["//", encode(a.arg, symbols), encode(a.by, symbols)]
            case Mod():
                return ["%", encode(a.arg, symbols), encode(a.by, symbols)]
            case Extremum():
                return [a.which, encode(a.a, symbols), encode(a.b, symbols)]
        raise ValueError(f"{a} is not a size")

    return [p.const, [[c, [atom(a) for a in m]] for m, c in p.terms.items()]]


def evaluate(data: Any, values: Sequence[int]) -> int:
    """The value of an encoded polynomial; `values`: of its symbols, by position."""
    return int(tabulated(data, values))


def tabulated(data: Any, values: Sequence[Any]) -> Any:
    """As `evaluate`, where values may be arrays of integers; the result is one then, if it depends on such a value."""
    total, terms = data
    for c, atoms in terms:
        for a in atoms:
            c = c * _atom(a, values)
        total = total + c
    return total


def _atom(a: Any, values: Sequence[Any]) -> Any:
    if isinstance(a, int):
        return values[a]
    kind, x, y = a
    p, q = tabulated(x, values), tabulated(y, values)
    if kind == "//":
        return p // q
    if kind == "%":
        return p % q
    if isinstance(p, np.ndarray) or isinstance(q, np.ndarray):
        return np.minimum(p, q) if kind == "min" else np.maximum(p, q)
    return min(p, q) if kind == "min" else max(p, q)
