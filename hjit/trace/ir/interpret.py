"""An interpreter of Graphs in plain NumPy: slow, simple, and the reference for the compiler.

It separates faults of tracing from faults of lowering: both use the same Graph, but only lowering affects compiled
code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Arrays and sizes of one interpretation; `dims` holds the open grids of the definition at work.

    An expression, and an index, becomes a Python function once: a reduction in order asks for its value at every point.
    `forget` drops them, so that what they hold is freed at once.
    """

    def __init__(self, arrays: dict[str, Array], sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> None:
        self.arrays, self.sizes, self.scalars = arrays, sizes, scalars
        self.dims: Sequence[Any] = []
        self._point = 0  # counts what `dims` has been
        self._defined = ""  # the stage that is at work, on ranges of its dimensions; else these may have any values
        self._functions: dict[Expr, Callable[[], Any]] = {}
        self._indices: dict[Poly, Callable[[], Any]] = {}

    def move(self, dims: Sequence[Any]) -> None:
        """Go on to other points, or to values that are stored since."""
        self.dims = dims
        self._point += 1

    def forget(self) -> None:
        """Drop the functions, with their last values; they refer to this object, as it does to them."""
        self._functions.clear()
        self._indices.clear()

    def gather(self, a: Indirect) -> Any:
        i = np.asarray(self.value(a.expr)).astype(np.int64)
        if a.extent is None:
            return i
        n = self.index(a.extent)
        if np.any((i < -n) | (i >= n)):
            raise IndexError(f"index out of bounds for axis with size {n}")
        return np.where(i < 0, i + n, i)

    def index(self, p: Poly) -> Any:
        return self._index_function(p)()

    def _index_function(self, p: Poly) -> Callable[[], Any]:
        found = self._indices.get(p)
        if found is None:
            found = self._indices[p] = self._sum(p)
        return found

    def _sum(self, p: Poly) -> Callable[[], Any]:
        const, terms = p.const, [(c, [self._atom_function(a) for a in m]) for m, c in p.terms.items()]
        if not terms:
            return lambda: const
        if len(terms) == 1 and terms[0][0] == 1 and len(terms[0][1]) == 1:
            (only,) = terms[0][1]
            return (lambda: only() + const) if const else only

        def total() -> Any:
            found: Any = const
            for c, atoms in terms:
                term: Any = c
                for a in atoms:
                    term = term * a()
                found = found + term
            return found

        return total

    def _atom_function(self, a: Atom) -> Callable[[], Any]:
        match a:
            case Dim():
                k = a.k
                return lambda: self.dims[k]
            case Sym():
                size = self.sizes[a.name]
                return lambda: size
        return lambda: self.atom(a)

    def value(self, e: Expr) -> Any:
        return self._function(e)()

    def _function(self, e: Expr) -> Callable[[], Any]:
        found = self._functions.get(e)
        if found is None:
            made = self._made(e)
            found = self._functions[e] = made if isinstance(e, Const | ScalarRef) else self._once(made)
        return found

    def _once(self, compute: Callable[[], Any]) -> Callable[[], Any]:
        """Shared expressions are computed once for each point."""
        at, value = -1, None

        def known() -> Any:
            nonlocal at, value
            if at != self._point:
                value = compute()
                at = self._point
            return value

        return known

    def _made(self, e: Expr) -> Callable[[], Any]:
        dtype = e.dtype
        match e:
            case Const():
                constant = e.value
                return lambda: constant
            case ScalarRef():
                scalar = dtype.type(self.scalars[e.name])
                return lambda: scalar
            case Index():
                at = self._index_function(e.poly)
                return lambda: np.asarray(at(), np.int64)
            case Load():
                return self._load(e)
            case Cast():
                arg = self._function(e.arg)
                return lambda: np.asarray(arg()).astype(dtype, copy=False)
        assert isinstance(e, Op), e
        args = [self._function(x) for x in e.args]
        if e.name == "bitcast":
            (bits,) = args
            return lambda: np.asarray(bits()).view(dtype)
        f = _operation(e.name)

        def computed() -> Any:
            found = f(*[a() for a in args])
            return found if found.dtype == dtype else found.astype(dtype)

        return computed

    def _load(self, e: Load) -> Callable[[], Any]:
        name, at = e.source, [self._index_function(p) for p in e.index]
        if not (self._defined and all(map(_is_range, e.index))):
            return lambda: self.arrays[name][tuple([p() for p in at])]

        def loaded() -> Any:
            array, where = self.arrays[name], tuple([p() for p in at])
            found = _view(array, where)
            if found is None:
                return array[where]
            return found.copy() if name == self._defined else found

        return loaded

    def target(self, d: Definition) -> tuple[Any, ...]:
        """Where a definition stores."""
        return tuple([self.index(p) for p in d.target])

    def store(self, stage: Stage, d: Definition, where: tuple[Any, ...], value: Any) -> None:
        """Store the values of a definition."""
        out = self.arrays[stage.name]
        part = _target_view(out, d, where)
        if part is None:
            # one element: dimensions that are not in the target have one iteration
            out[where] = value if any(map(np.ndim, where)) else np.reshape(value, ())
        else:
            part[...] = value

    def define(self, stage: Stage, d: Definition) -> None:
        pure, inner = ([sizes_value(n, self.sizes) for n in ns] for ns in (d.dims, d.rdims))
        if 0 in pure or 0 in inner:
            return
        for first in _blocks(stage, d, pure, inner):
            self._define(stage, d, [*first, *map(slice, pure[len(first) :])], inner)

    def define_together(self, stage: Stage, step: Sequence[Definition]) -> None:
        """Run definitions that are joined: in each iteration, all values are computed before all stores."""
        self._defined = stage.name
        pure, inner = ([sizes_value(n, self.sizes) for n in ns] for ns in (step[0].dims, step[0].rdims))
        if 0 in pure or 0 in inner:
            return
        grids = _grids([*map(slice, pure)])
        for point in itertools.product(*map(range, inner)):
            self.move([*grids, *point])
            stores = [(d, self.target(d), self.value(d.value)) for d in step]
            for d, where, value in stores:
                self.store(stage, d, where, value)

    def _define(self, stage: Stage, d: Definition, block: list[slice], inner: list[int]) -> None:
        self._defined = stage.name
        out, pure = self.arrays[stage.name], _grids(block)
        if d.order in ("pure", "sequential"):
            # pure dimensions all at once, reduction dimensions in order
            for point in itertools.product(*map(range, inner)):
                self.move([*pure, *point])
                where, value = self.target(d), self.value(d.value)
                self.store(stage, d, where, value)
            return
        assert isinstance(d.value, Op)
        self.move(_grids([*block, *map(slice, inner)]))
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
        part = _target_view(out, d, where)
        if part is None:
            out[where] = ufunc(out[where], total)
        else:
            part[...] = ufunc(part, total)


def _inside(i: Any, n: Any) -> Any:
    return (i >= 0) & (i < n)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {"select": np.where, "fma": fma, "inside": _inside}


def _operation(name: str) -> Callable[..., Any]:
    """What computes an operation on arrays or NumPy's numbers."""
    f: Callable[..., Any] = _OPERATIONS.get(name) or getattr(np, _ALIAS.get(name, name))
    return f


def _is_range(p: Poly) -> bool:
    """Is an index a dimension plus a number that is the same at all points, or such a number?"""
    dims = [(c, a) for m, c in p.terms.items() for a in m if not isinstance(a, Sym)]
    return not dims or (
        len(dims) == 1 and dims[0][0] == 1 and isinstance(dims[0][1], Dim) and all(len(m) == 1 for m in p.terms)
    )


def _view(array: Array, where: Sequence[Any]) -> Array | None:
    """``array[where]`` as a view in C order, which takes a tenth of the time; None where it is none, or out of bounds.

    Args:
        where: numbers, and ranges along different axes, see `_is_range`.
    """
    rank = max(map(np.ndim, where), default=0)
    slices, axes, shape = list[Any](), list[int](), [1] * rank
    for w, n in zip(where, array.shape, strict=True):
        long = [k + rank - np.ndim(w) for k, length in enumerate(np.shape(w)) if length != 1]
        first = int(w if np.ndim(w) == 0 else np.ravel(w)[0]) if np.size(w) else -1
        if len(long) > 1 or first < 0 or first + np.size(w) > n or {*long} & {*axes}:
            return None
        if long:
            axes += long
            shape[long[0]] = np.size(w)
        slices.append(slice(first, first + np.size(w)) if long else first)
    if not rank:
        return None
    if not axes:  # with numbers alone it would be an element, and no view
        return array[tuple([slice(k, k + 1) for k in slices])].reshape(shape)
    order = sorted(range(len(axes)), key=axes.__getitem__)
    found: Array = array[tuple(slices)].transpose(order)
    if any(a < b for a, b in itertools.pairwise(found.strides)):
        return None  # sums of what is computed of it would be added up in another order
    return found.reshape(shape)


def _target_view(array: Array, d: Definition, where: Sequence[Any]) -> Array | None:
    """Where a definition stores, as a view; None where it is none."""
    return _view(array, where) if all(map(_is_range, d.target)) else None


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
    run.move([dims.get(k, 0) for k in range(max(dims, default=-1) + 1)])
    with np.errstate(all="ignore"):
        try:
            found = np.asarray(run.value(e))
            return found if found.base is None else found.copy()
        finally:
            run.forget()


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
                try:
                    run.define_together(stage, step) if len(step) > 1 else run.define(stage, step[0])
                finally:
                    run.forget()
    return state
