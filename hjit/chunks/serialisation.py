"""Graphs as plain tuples for pickling: each node once, after the nodes that it refers to.

Expressions are nested more deeply than pickle can recurse. They are immutable objects with slots and with hashes that
differ between processes, neither of which is to be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hjit.trace.ir import poly as atoms
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef
from hjit.trace.ir.graph import Definition, Graph, Input, Scalar, Stage
from hjit.trace.ir.poly import Atom, Poly

Row = tuple[Any, ...]  # the kind of a node, and its parts: numbers of earlier nodes, and plain values

_FIELDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Const: lambda e: (e.bits, e.dtype.str),
    ScalarRef: lambda e: (e.name, e.dtype.str),
    Index: lambda e: (e.poly,),
    Load: lambda e: (e.source, e.index, e.dtype.str),
    Op: lambda e: (e.name, e.args, e.dtype.str),
    Cast: lambda e: (e.arg, e.dtype.str),
    Poly: lambda p: (tuple(p.terms), tuple(p.terms.values()), p.const),
    Definition: lambda d: (d.dims, d.rdims, d.target, d.value, d.order, d.reorders, d.joined),
    Stage: lambda s: (s.name, s.dtype.str, s.shape, s.initial, s.updates, s.origin),
    Input: lambda i: (i.name, i.dtype.str, i.shape, i.layout, i.data),
    Scalar: lambda s: (s.name, s.dtype.str),
    Graph: lambda g: (g.inputs, g.scalars, g.stages, g.outputs),
}

_CLASSES = {kind.__name__: kind for kind in _FIELDS}


def _stage(name: str, dtype: str, *rest: Any) -> Stage:
    return Stage(name, np.dtype(dtype), *rest)


def _const(bits: bytes, dtype: str) -> Const:
    return Const(np.frombuffer(bits, dtype)[0], dtype)


_MAKERS: dict[str, Callable[..., Any]] = {
    "Const": _const,
    "Poly": lambda monomials, factors, const: Poly(dict(zip(monomials, factors, strict=True)), const),
    "Stage": _stage,
    "Input": lambda name, dtype, *rest: Input(name, np.dtype(dtype), *rest),
    "Scalar": lambda name, dtype: Scalar(name, np.dtype(dtype)),
}


def _fields(node: Any) -> tuple[Any, ...]:
    if isinstance(node, Atom):
        return tuple(getattr(node, name) for name in node.fields)
    return _FIELDS[type(node)](node)


def _parts(x: Any) -> Iterator[Any]:
    """The nodes among the fields of one."""
    if isinstance(x, tuple):
        for y in x:
            yield from _parts(y)
    elif isinstance(x, (Atom, Expr)) or type(x) in _FIELDS:
        yield x


def serialise_graph(graph: Graph) -> tuple[Row, ...]:
    """The Graph as rows, itself the last."""
    numbers: dict[Any, int] = {}
    rows: list[Row] = []
    stack: list[tuple[Any, bool]] = [(graph, False)]

    def referred(x: Any) -> Any:
        if type(x) is tuple:
            return tuple(map(referred, x))
        return ("&", numbers[type(x), x]) if isinstance(x, (Atom, Expr)) or type(x) in _FIELDS else x

    while stack:
        node, ready = stack.pop()
        key = type(node), node
        if key in numbers:
            continue
        if ready:
            numbers[key] = len(rows)
            rows.append((type(node).__name__, *map(referred, _fields(node))))
        else:
            stack.append((node, True))
            stack.extend((part, False) for part in _parts(_fields(node)) if (type(part), part) not in numbers)
    return tuple(rows)


def deserialise_graph(rows: tuple[Row, ...]) -> Graph:
    """The inverse of `serialise_graph`."""
    made: list[Any] = []

    def resolved(x: Any) -> Any:
        if type(x) is not tuple:
            return x
        if len(x) == 2 and x[0] == "&":
            return made[x[1]]
        return tuple(map(resolved, x))

    for kind, *fields in rows:
        make = _MAKERS.get(kind) or _CLASSES.get(kind) or getattr(atoms, kind)
        made.append(make(*map(resolved, fields)))
    found = made[-1]
    assert isinstance(found, Graph)
    return found
