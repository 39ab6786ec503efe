"""Contractions: dot, matmul, einsum and their kin, each one reduction stage; norms are NumPy's own source, traced.

`contract` is all of them: operands whose axes carry labels, and the labels that stay.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import ZERO, Dim, Poly, poly
from hjit.trace.ops.arguments import Casting, broadcast, refuse
from hjit.trace.ops.arrays.views import view
from hjit.trace.ops.layout import Order, c_strides, sorted_axes, strides, transposed_back
from hjit.trace.ops.reductions.blas import by_blas
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, Tracer, as_tracer, call, from_known, from_stage, is_tracer
from hjit.trace.tracing.arrays.writing import write
from hjit.trace.tracing.dispatch import implements, source_of
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

Labels = Sequence[Hashable]


def contract(operands: Sequence[Tracer], labels: Sequence[Labels], out: Labels, dtype: Any) -> Tracer:
    """The sum over all labels not in `out` of the product of the operands, in `dtype`.

    Axes of length 1 are broadcast against others of the same label. Bools are or-ed and and-ed.
    """
    dtype = np.dtype(dtype)
    sizes: dict[Hashable, int] = {}
    for t, names in zip(operands, labels, strict=True):
        for name, n in zip(names, t.shape, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = n
    summed = [name for name in sizes if name not in out]
    shape = tuple(sizes[name] for name in out)
    reserve = functools.cache(lambda: current().reserve("product"))
    product = by_blas(operands, labels, out, dtype, shape, reserve)
    if product is not None:
        return product
    dims = {name: poly(Dim(k)) for k, name in enumerate((*out, *summed))}

    def element(t: Tracer, names: Labels) -> Expr:
        index = [ZERO if n == 1 and sizes[name] != 1 else dims[name] for name, n in zip(names, t.shape, strict=True)]
        return cast(t.at(index), dtype)

    times, plus = ("logical_and", "logical_or") if dtype.kind == "b" else ("multiply", "add")
    value = functools.reduce(lambda a, b: Op(times, (a, b), dtype), map(element, operands, labels))
    if not summed:
        return from_stage(value, shape, dtype, is_scalar=not shape)
    rec = current()
    stage, here = reserve(), identity(len(shape))
    value = Op(plus, (Load(stage, here, dtype), value), dtype)
    update = Definition(rec.polys(shape), rec.polys(sizes[name] for name in summed), here, value, plus)
    return from_stage(Const(0, dtype), shape, dtype, (update,), reserved=stage, is_scalar=not shape)


def _known(function: Callable[..., Any], *operands: Any, **kwargs: Any) -> Tracer | None:
    """NumPy's own result where all operands are small and known."""
    arrays = [t for t in operands if is_tracer(t)]
    if any(t.known is None or t.size > MAX_KNOWN for t in arrays):
        return None
    result = function(*(t.known if is_tracer(t) else t for t in operands), **kwargs)
    return from_known(result, is_scalar=not isinstance(result, np.ndarray), of=arrays)


def _result(value: Tracer, out: Any, casting: Casting = "same_kind") -> Any:
    out = out[0] if isinstance(out, tuple) else out
    if out is None:
        return value
    if tuple(out.shape) != tuple(value.shape):
        raise ValueError(
            f"output array has shape {tuple(map(int, out.shape))}, the result {tuple(map(int, value.shape))}"
        )
    if not np.can_cast(value.dtype, out.dtype, casting):
        raise TypeError(f"Cannot cast output from {value.dtype!r} to {out.dtype!r} with casting rule '{casting}'")
    write(out, value)
    return out


def _numbers(*operands: Any) -> list[Tracer]:
    return [as_tracer(x) for x in operands]


# -- products of vectors and matrices


def _gufunc(function: Any, first: str, second: str, result: str) -> None:
    """Register a product of the given core dimensions; "?" marks one that a vector lacks."""

    def method(
        x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: Casting = "same_kind", **kwargs: Any
    ) -> Any:
        if any(static_value(x) is not None for x in kwargs.values()):
            return _along_axes(function, x1, x2, out, dtype=dtype, casting=casting, **kwargs)
        a, b = _numbers(x1, x2)
        known = _known(function, a, b, dtype=dtype)
        if known is not None:
            return _result(known, out, casting)
        loop = np.result_type(a.dtype, b.dtype) if dtype is None else np.dtype(dtype)
        names = [_core(t, core) for t, core in ((a, first), (b, second))]
        if any(n is None for n in names):
            return refuse(function, a, b)
        present = {c for n in names for c in n or ""}
        labels = [[*range(len(n) - t.ndim, 0), *n] for t, n in zip((a, b), names, strict=True) if n is not None]
        lengths: dict[Any, int] = {}
        for t, ls in zip((a, b), labels, strict=True):
            for k, n in zip(ls, t.shape, strict=True):
                if lengths.setdefault(k, n) != n and (isinstance(k, str) or 1 not in (n, lengths[k])):
                    return refuse(function, a, b)
        batch = broadcast(*(t.shape[: t.ndim - len(n or "")] for t, n in zip((a, b), names, strict=True)))
        kept = [*range(-len(batch), 0), *(c for c in result.replace("?", "") if c in present)]
        return _result(contract((a, b), labels, kept, loop), out, casting)

    implements(function)(method)


def _along_axes(
    function: Any, a: Any, b: Any, out: Any, *, axis: Any = None, axes: Any = None, keepdims: Any = None, **given: Any
) -> Any:
    """A product whose core dimensions are other axes than the last ones: these are moved there, and back.

    Raises:
        TraceError: with other arguments.
    """
    others = [n for n in given if n not in ("dtype", "casting")]
    if others or out is not None:
        raise current().error(
            f"numpy.{function.__name__}", f"the argument {(others or ['out'])[0]}", "move the axes with np.moveaxis"
        )
    is_vector = function.__name__ == "vecdot"
    if not is_vector and (axis is not None or keepdims is not None):
        return refuse(function, a, b, axis=axis, keepdims=keepdims)
    if axes is not None:
        *of_operands, of_result = [tuple(x) if isinstance(x, (tuple, list)) else (x,) for x in static_value(axes)]
        if len(of_operands) == 1:  # that of a result without any may be missing
            of_operands, of_result = [*of_operands, of_result], ()
    else:
        of_operands, of_result = [(static_value(-1 if axis is None else axis),)] * 2, ()
    a, b = (call(np.moveaxis, t, x, range(-len(x), 0)) for t, x in zip(_numbers(a, b), of_operands, strict=True))
    result = function(a, b, **given)
    if keepdims:
        return np.expand_dims(result, of_operands[0][0])
    return np.moveaxis(result, range(-len(of_result), 0), of_result) if of_result else result


def _core(t: Tracer, core: str) -> str | None:
    """The core dimensions of an operand; None where it has too few."""
    needed = core.replace("?", "")
    if t.ndim < len(needed) and "?" in core:
        needed = "".join(c for c, mark in zip(core, core[1:] + " ", strict=True) if c != "?" and mark != "?")
    return needed if t.ndim >= len(needed) else None


_gufunc(np.matmul, "n?k", "km?", "nm")
for _name, _cores in (("vecdot", ("k", "k", "")), ("matvec", ("nk", "k", "n")), ("vecmat", ("k", "km", "m"))):
    if hasattr(np, _name):
        _gufunc(getattr(np, _name), *_cores)


@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _numbers(a, b)  # arrays, also of Python's numbers, which have dtypes of their own here
    if not a.ndim or not b.ndim:
        return _result(np.multiply(a, b), out, "no")
    known = _known(np.dot, a, b)
    if known is not None:
        return _result(known, out, "no")
    second = b.ndim - 2 if b.ndim > 1 else 0
    if a.shape[-1] != b.shape[second]:
        return refuse(np.dot, a, b)
    first = [("a", k) for k in range(a.ndim - 1)]
    last = [("b", k) for k in range(b.ndim) if k != second]
    labels: list[list[Hashable]] = [[*first, "k"], ["k" if k == second else ("b", k) for k in range(b.ndim)]]
    return _result(contract((a, b), labels, [*first, *last], np.result_type(a.dtype, b.dtype)), out, "no")


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    a, b = _numbers(a, b)
    if not a.ndim or not b.ndim:
        return np.multiply(a, b)
    if a.shape[-1] != b.shape[-1]:
        return refuse(np.inner, a, b)
    if a.ndim == b.ndim == 1:
        return dot(a, b)
    return tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,)))


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    a, b = _numbers(a, b)
    if a.size != b.size:
        return refuse(np.vdot, a, b)
    return dot(a.reshape(-1), b.reshape(-1))


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    a, b = (t.reshape(-1) for t in _numbers(a, b))
    return np.multiply(a[:, None], b[None, :], out=out)


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = _numbers(a, b)
    axes = static_value(axes)
    if isinstance(axes, (int, np.integer)):
        pairs = [(a.ndim - int(axes) + k, k) for k in range(int(axes))]
    else:
        ours, theirs = (list(x) if isinstance(x, (tuple, list)) else [x] for x in axes)
        if len(ours) != len(theirs):
            raise ValueError("shape-mismatch for sum")
        pairs = [
            (i + a.ndim if i < 0 else i, j + b.ndim if j < 0 else j)
            for i, j in zip(map(int, ours), map(int, theirs), strict=True)
        ]
    if any(not 0 <= i < a.ndim or not 0 <= j < b.ndim or a.shape[i] != b.shape[j] for i, j in pairs):
        return refuse(np.tensordot, a, b, axes)
    known = _known(np.tensordot, a, b, axes)
    if known is not None:
        return known
    first: list[Hashable] = [("a", k) for k in range(a.ndim)]
    second: list[Hashable] = [("b", k) for k in range(b.ndim)]
    for n, (i, j) in enumerate(pairs):
        first[i] = second[j] = n
    kept = [name for name in (*first, *second) if not isinstance(name, int)]
    result = contract((a, b), (first, second), kept, np.result_type(a.dtype, b.dtype))
    result.is_scalar = False
    return result


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return call(np.sum, call(np.diagonal, as_tracer(a), offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


# -- einsum


@implements(np.einsum)
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: Casting = "safe",
) -> Any:
    """A product of operands with labelled axes. A single operand without a sum is a view, as in NumPy."""
    subscripts, arrays = _subscripts(operands)
    tracers = _numbers(*arrays)
    known = _known(np.einsum, subscripts, *tracers, dtype=dtype)
    if known is not None:
        return _result(known, out, casting)
    labels, kept = _labelled(subscripts, tracers)
    loop = np.result_type(*(t.dtype for t in tracers)) if dtype is None else np.dtype(dtype)
    is_view = len(tracers) == 1 and out is None and loop == tracers[0].dtype and set(labels[0]) == set(kept)
    if is_view and kept:  # else a scalar
        return _diagonals(tracers[0], labels[0], kept)
    places = _places(tracers, labels, kept) if order == "K" and not optimize and out is None else None
    if places is None:
        return _result(contract(tracers, labels, kept, loop), out, casting)
    return transposed_back(contract(tracers, labels, [kept[k] for k in places], loop), places)


def _places(tracers: Sequence[Tracer], labels: Sequence[Labels], kept: Labels) -> Order | None:
    """The order of the result's axes in memory, which is that of NumPy's iterator over the operands; None: C order."""
    summed = sorted({name for names in labels for name in names} - set(kept), key=str)
    axes = [*kept, *summed]
    steps = []
    for t, names in zip(tracers, labels, strict=True):
        own = strides(t) or c_strides(t.shape, t.dtype.itemsize)
        along = dict.fromkeys(axes, 0)
        for name, n, s in zip(names, t.shape, own, strict=True):
            along[name] += 0 if n == 1 else abs(s)
        steps.append([along[name] for name in axes])
    found = tuple(k for k in sorted_axes(steps, len(axes)) if k < len(kept))
    is_batch = summed and kept and all(kept[found[-1]] in names for names in labels)
    if is_batch:  # matrices that lie apart in memory are products of BLAS, those of neighbouring elements are not
        return None
    return None if found == tuple(range(len(kept))) else found


def _diagonals(t: Tracer, names: Labels, kept: Labels) -> Tracer:
    inside: list[Poly] = [poly(Dim(kept.index(name))) for name in names]
    return view(t, tuple(t.shape[names.index(name)] for name in kept), inside)


def _subscripts(operands: tuple[Any, ...]) -> tuple[str, Sequence[Any]]:
    """The subscripts as a string, from either way of giving them, and the operands."""
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    pairs = (
        list(itertools.batched(operands, 2))
        if hasattr(itertools, "batched")
        else [operands[k : k + 2] for k in range(0, len(operands), 2)]
    )
    last = pairs.pop()[0] if len(operands) % 2 else None

    def text(axes: Any) -> str:
        return "".join("..." if k is Ellipsis else chr(ord("A") + k if k < 26 else ord("a") + k - 26) for k in axes)

    given = ",".join(text(axes) for _, axes in pairs)
    return given if last is None else f"{given}->{text(last)}", [x for x, _ in pairs]


def _labelled(subscripts: str, tracers: Sequence[Tracer]) -> tuple[list[list[Hashable]], list[Hashable]]:
    """A label for each axis of each operand, and those of the result.

    Raises:
        ValueError: what NumPy says of bad subscripts.
    """
    given, arrow, result = subscripts.partition("->")
    terms = given.split(",")
    if len(terms) != len(tracers):
        refuse(np.einsum, subscripts, *tracers)
    labels: list[list[Hashable]] = []
    sizes: dict[Hashable, int] = {}
    dots = 0
    for term, t in zip(terms, tracers, strict=True):
        before, ellipsis, after = term.partition("...")
        free = t.ndim - len(before) - len(after)
        if free < 0 or (free and not ellipsis) or "." in before + after:
            refuse(np.einsum, subscripts, *tracers)
        dots = max(dots, free)
        labels.append([*before, *range(-free, 0), *after])
        for name, n in zip(labels[-1], t.shape, strict=True):
            if sizes.get(name, 1) not in (1, n) and n != 1:
                refuse(np.einsum, subscripts, *tracers)
            sizes[name] = n if sizes.get(name, 1) == 1 else sizes[name]
    letters = [c for c in given if c.isalpha()]
    spread: list[Hashable] = list(range(-dots, 0))
    if not arrow:
        return labels, spread + sorted(c for c in set(letters) if letters.count(c) == 1)
    before, ellipsis, after = result.partition("...")
    if (
        any(c not in letters for c in before + after)
        or len(set(before + after)) != len(before + after)
        or (dots and not ellipsis)
    ):
        refuse(np.einsum, subscripts, *tracers)
    return labels, [*before, *(spread if ellipsis else ()), *after]


# -- functions whose NumPy source is formulas


def _source(function: Any) -> Callable[..., Any]:
    """NumPy's own Python source, traced."""
    inner = source_of(function)

    def method(*args: Any, **kwargs: Any) -> Any:
        return forward.clone(inner)(*args, **kwargs)

    return method


_LINALG = """norm vector_norm matrix_norm matrix_power multi_dot cross outer trace diagonal matmul tensordot vecdot
    matrix_transpose""".split()
for _name in _LINALG:
    if hasattr(np.linalg, _name) and getattr(np.linalg, _name) is not getattr(np, _name, None):
        implements(getattr(np.linalg, _name))(_source(getattr(np.linalg, _name)))


@implements(np.kron)
def kron(a: Any, b: Any) -> Tracer:
    """Every element of `a` times the whole of `b`."""
    return every_product(*_numbers(a, b))  # type: ignore[no-any-return]


def every_product(a: Any, b: Any) -> Any:
    """`kron` of two traced arrays, real or complex."""
    n = max(a.ndim, b.ndim)
    a, b = (t.reshape((1,) * (n - t.ndim) + tuple(t.shape)) for t in (a, b))
    left = a[tuple(x for _ in range(n) for x in (slice(None), None))] if n else a
    right = b[tuple(x for _ in range(n) for x in (None, slice(None)))] if n else b
    shape: Shape = tuple(i * j for i, j in zip(a.shape, b.shape, strict=True))
    return np.multiply(left, right).reshape(shape)
