"""Polynomials over run-time sizes as JSON: stored with a kernel, they give the lengths of its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.poly import Atom, Extremum, FloorDiv, Mod, Poly, Sym, Var


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
