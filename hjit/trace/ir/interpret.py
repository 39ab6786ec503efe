"""An interpreter of Graphs in plain NumPy: slow, simple, and the reference for the compiler.

It separates faults of tracing from faults of lowering: both use the same Graph, but only lowering affects compiled
code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef
from hjit.trace.ir.fma import fma
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Atom, Boundary, Dim, Extremum, FloorDiv, Indirect, Mod, Poly, Sym, sizes_value

Array = np.ndarray[Any, Any]
BLOCK = 1 << 20  # points that are computed at once, where each is computed by itself
_ALIAS = {"radians": "deg2rad", "degrees": "rad2deg", "reordered": "positive", "unordered": "positive"}


class IndexEvaluator:
    """Evaluates index polynomials; subclasses define values that are read from arrays.

    Attributes:
        dims: the value of each dimension, a number or an array.
        sizes: run-time sizes by name.
    """

    dims: Sequence[Any]
    sizes: Mapping[str, int]

    def index(self, p: Poly) -> Any:
        """The value of a polynomial."""
        total: Any = p.const
        for m, c in p.terms.items():
            term: Any = c
            for a in m:
                term = term * self.atom(a)
            total = total + term
        return total

    def atom(self, a: Atom) -> Any:
        """The value of an atom."""
        match a:
            case Dim():
                return self.dims[a.k]
            case Sym():
                return self.sizes[a.name]
            case FloorDiv():
                return self.index(a.arg) // self.index(a.by)
            case Mod():
                return self.index(a.arg) % self.index(a.by)
            case Extremum():
                return (np.minimum if a.which == "min" else np.maximum)(self.index(a.a), self.index(a.b))
            case Boundary():
                return _boundary(a.mode, self.index(a.arg), self.index(a.extent))
            case Indirect():
                return self.gather(a)
        raise AssertionError(a)

    def gather(self, a: Indirect) -> Any:
        """The index that an expression yields."""
        raise NotImplementedError


class _Run(IndexEvaluator):
    """Arrays and sizes of one interpretation; `dims` holds the open grids of the definition at work."""

    def __init__(self, arrays: dict[str, Array], sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> None:
        self.arrays, self.sizes, self.scalars = arrays, sizes, scalars
        self.dims: list[Any] = []
        self.memo: dict[Any, Any] = {}

    def gather(self, a: Indirect) -> Any:
        i = np.asarray(self.value(a.expr)).astype(np.int64)
        if a.extent is None:
            return i
        n = self.index(a.extent)
        if np.any((i < -n) | (i >= n)):
            raise IndexError(f"index out of bounds for axis with size {n}")
        return np.where(i < 0, i + n, i)

    def value(self, e: Expr) -> Any:
        done = self.memo.get(e)
        if done is None:
            done = self.memo[e] = self._value(e)
        return done

    def _value(self, e: Expr) -> Any:
        match e:
            case Const():
                return e.value
            case ScalarRef():
                return e.dtype.type(self.scalars[e.name])
            case Index():
                return np.asarray(self.index(e.poly), np.int64)
            case Load():
                return self.load(e)
            case Cast():
                return np.asarray(self.value(e.arg)).astype(e.dtype, copy=False)
            case Op(name="select"):
                c, a, b = map(self.value, e.args)
                return np.where(c, a, b).astype(e.dtype, copy=False)
            case Op(name="bitcast"):
                return np.asarray(self.value(e.args[0])).view(e.dtype)
            case Op(name="fma"):
                return fma(*map(self.value, e.args)).astype(e.dtype)
            case Op(name="inside"):
                i, n = map(self.value, e.args)
                return (i >= 0) & (i < n)
            case Op():
                args = [np.asarray(self.value(x)) for x in e.args]
                return np.asarray(getattr(np, _ALIAS.get(e.name, e.name))(*args)).astype(e.dtype, copy=False)
        raise AssertionError(e)

    def load(self, e: Load) -> Any:
        array = self.arrays[e.source]
        if not e.index:
            return array[()]
        return array[tuple(np.asarray(self.index(p)) for p in e.index)]

    def define(self, stage: Stage, d: Definition) -> None:
        pure, inner = ([sizes_value(n, self.sizes) for n in ns] for ns in (d.dims, d.rdims))
        if 0 in pure or 0 in inner:
            return
        for first in _blocks(stage, d, pure, inner):
            self._define(stage, d, [*first, *map(slice, pure[len(first) :])], inner)

    def define_together(self, stage: Stage, step: Sequence[Definition]) -> None:
        """Run definitions that are joined: in each iteration, all values are computed before all stores."""
        out = self.arrays[stage.name]
        pure, inner = ([sizes_value(n, self.sizes) for n in ns] for ns in (step[0].dims, step[0].rdims))
        if 0 in pure or 0 in inner:
            return
        for point in itertools.product(*map(range, inner)):
            self.dims, self.memo = [*_grids([*map(slice, pure)]), *point], {}
            stores = [(tuple(np.asarray(self.index(p)) for p in d.target), self.value(d.value)) for d in step]
            for where, value in stores:
                out[where] = value

    def _define(self, stage: Stage, d: Definition, block: list[slice], inner: list[int]) -> None:
        out, pure = self.arrays[stage.name], _grids(block)
        if d.order in ("pure", "sequential"):
            # pure dimensions all at once, reduction dimensions in order
            for point in itertools.product(*map(range, inner)):
                self.dims = [*pure, *point]
                self.memo = {}
                where = tuple(np.asarray(self.index(p)) for p in d.target)
                value = self.value(d.value)
                # one element: dimensions that are not in the target have one iteration
                out[where] = value if any(map(np.ndim, where)) else np.reshape(value, ())
            return
        assert isinstance(d.value, Op)
        self.dims, self.memo = _grids([*block, *map(slice, inner)]), {}
        extents = np.broadcast_shapes(*map(np.shape, self.dims))
        element = np.broadcast_to(self.value(d.value.args[1]), extents)
        where = tuple(np.asarray(self.index(p)) for p in d.target)
        ufunc = getattr(np, d.order)
        if any(varies(p, len(pure)) for p in d.target):
            ufunc.at(out, tuple(np.broadcast_to(w, extents) for w in where), element)
            return
        axes = tuple(range(len(pure), len(pure) + len(inner)))
        where = tuple(w.reshape(w.shape[: len(pure)]) if w.ndim else w for w in where)
        total = element
        for axis in reversed(axes):
            total = ufunc.reduce(total, axis=axis, dtype=d.value.dtype)
        out[where] = ufunc(out[where], total)


def varies(p: Poly, first: int) -> bool:
    """Does an index depend on computed values, or on dimensions from `first` on?"""
    return any(isinstance(a, Indirect) or (isinstance(a, Dim) and a.k >= first) for a in p.atoms())


def _grids(block: Sequence[slice]) -> list[Any]:
    """The open grids of a block of points."""
    return list(np.ogrid[tuple(slice(s.start or 0, s.stop) for s in block)]) if block else []


def _blocks(stage: Stage, d: Definition, pure: Sequence[int], inner: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Parts of the first dimension, so that few points are in memory at once; all where a point may read others."""
    rows = points_at_once(stage, d, pure, inner)[1]
    if not pure:
        yield ()
    else:
        for begin in range(0, pure[0], rows):
            yield (slice(begin, min(begin + rows, pure[0])),)


def points_at_once(stage: Stage, d: Definition, pure: Sequence[int], inner: Sequence[int]) -> tuple[int, int]:
    """How many points of a definition are computed at once, and the corresponding length of the first dimension."""
    is_reduction = d.order not in ("pure", "sequential")
    row = math.prod(pure[1:]) * (math.prod(inner) if is_reduction else 1)
    rows = pure[0] if pure else 1
    if is_reduction or (d.order == "pure" and not inner and stage.name not in d.sources):
        rows = min(rows, max(BLOCK // max(row, 1), 1))
    return rows * row, rows


def _boundary(mode: str, i: Any, n: Any) -> Any:
    if mode == "clamp":
        return np.clip(i, 0, n - 1)
    if mode == "wrap":
        return i % n
    if mode == "symmetric":
        i = i % (2 * n)
        return np.minimum(i, 2 * n - 1 - i)
    if n == 1:
        return i * 0
    i = i % (2 * n - 2)
    return np.minimum(i, 2 * n - 2 - i)


def evaluate(
    e: Expr, dims: Mapping[int, Any], arrays: Mapping[str, Array], sizes: Mapping[str, int], scalars: Mapping[str, Any]
) -> Array:
    """The values of an expression at some indices of its dimensions.

    Raises:
        IndexError: a gather is out of bounds.
    """
    run = _Run(dict(arrays), sizes, scalars)
    run.dims = [dims.get(k, 0) for k in range(max(dims, default=-1) + 1)]
    with np.errstate(all="ignore"):
        return np.asarray(run.value(e))


def interpret(
    graph: Graph, arrays: Mapping[str, Array], sizes: Mapping[str, int], scalars: Mapping[str, Any]
) -> list[Array]:
    """The outputs of `graph`; see `interpret_stages`."""
    state = interpret_stages(graph, arrays, sizes, scalars)
    return [state[name] for name in graph.outputs]


def interpret_stages(
    graph: Graph, arrays: Mapping[str, Array], sizes: Mapping[str, int], scalars: Mapping[str, Any]
) -> dict[str, Array]:
    """The inputs and all stages of `graph`, by name.

    Args:
        arrays: the inputs by name; constants of the Graph may be left out.
        sizes: the run-time sizes by name.
        scalars: the scalar arguments by name.

    Raises:
        IndexError: a gather is out of bounds.
    """
    state = dict(arrays)
    for i in graph.inputs:
        if i.data is not None:
            state[i.name] = np.frombuffer(i.data, i.dtype).reshape([p.const for p in i.shape])
    run = _Run(state, sizes, scalars)
    with np.errstate(all="ignore"):
        for stage in graph.stages:
            shape = [sizes_value(p, sizes) for p in stage.shape]
            state[stage.name] = np.zeros(shape, stage.dtype)
            for step in stage.steps:
                run.define_together(stage, step) if len(step) > 1 else run.define(stage, step[0])
    return state
