"""What writes by index: put_along_axis, put, place, and the `at` methods of ufuncs.

A scatter is an update whose target index is read from an array. The updates of associative operations may run in any
order; sums of floats keep NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, renumber
from hjit.trace.ir.graph import Definition, compose, identity
from hjit.trace.ir.poly import ONE, Dim, Poly, poly
from hjit.trace.ops.arguments import axes_of
from hjit.trace.ops.elementwise.promotion import loop_of
from hjit.trace.ops.elementwise.ufuncs import ALIASES, UFUNCS
from hjit.trace.ops.indexing.gathers import along_axis_shape, depends_on_values, indices_of, within
from hjit.trace.ops.indexing.getitem import AdvancedIndex, basic_view, gather_index, getitem, parse_key, scatter
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, is_tracer, stored
from hjit.trace.tracing.arrays.writing import next_version, trim, write
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import as_item

ASSOCIATIVE = frozenset(
    "add multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor".split()
)


# -- writing


def flat_index(view: Tracer, flat: Poly) -> list[Poly]:
    """Element `flat` of the flattened view, as one index per axis."""
    rec = current()
    found: list[Poly] = []
    below = ONE
    for k in reversed(range(view.ndim)):
        n = rec.poly(view.shape[k])
        whole = flat // below
        found.append(whole % n if k else whole)
        below = below * n
    return found[::-1]


def _write_at(view: Tracer, index: Sequence[Poly], pure: Sequence[int], inner: Sequence[int], value: Expr) -> None:
    """``view[index] = value`` over pure dimensions and then, in order, reduction dimensions."""
    if not view.writeable:
        raise ValueError("assignment destination is read-only")
    rec, buffer = current(), view.buffer
    update = Definition(
        rec.polys(pure), rec.polys(inner), compose(view.index, index), cast(value, buffer.dtype), "sequential"
    )
    next_version(buffer, buffer.source(), (update,))


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    view, indices, values = arr, as_tracer(indices), stored(values, arr.dtype)
    if axis is None:
        put(view, indices, values)
        return
    axis = axes_of(axis, view.ndim)[0]
    shape = along_axis_shape(view, indices, axis)
    order = [*(k for k in range(len(shape)) if k != axis), axis]
    dims = [poly(Dim(order.index(k))) for k in range(len(shape))]
    index = [gather_index(indices, dims, shape, n) if k == axis else dims[k] for k, n in enumerate(view.shape)]
    value = trim(values, shape).load(shape).substitute(renumber(dims))
    _write_at(view, index, [shape[k] for k in order[:-1]], [shape[axis]], value)


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Values are repeated, or left over, as the indices need."""
    if not is_tracer(a):
        raise TypeError(f"argument 1 must be numpy.ndarray, not {type(a).__name__}")
    index, values = indices_of(ind).reshape(-1), stored(v, a.dtype).reshape(-1)
    if not index.size or not values.size:
        return
    index = within(index, a.size, mode)
    at = gather_index(index, identity(1), index.shape, a.size)
    value = values.at((poly(Dim(0)) % current().poly(values.shape[0]),))
    _write_at(a, flat_index(a, at), (), index.shape, value)


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    vals = stored(vals, arr.dtype, as_item).reshape(-1)
    if vals.shape[0] != 1:
        raise depends_on_values("numpy.place")
    write(arr, vals[0], as_tracer(mask).reshape(arr.shape).astype(bool, copy=False).load(arr.shape))


MODULAR = frozenset("add subtract multiply bitwise_and bitwise_or bitwise_xor".split())


def _stays_itself(name: str, dtype: np.dtype[Any], value: Any) -> bool:
    """Is the result the same in the array's own dtype? Yes for integers, which wrap around, but not through float64."""
    whole = type(value) is int and dtype.kind in "iu" and dtype != np.uint64
    return whole and name in MODULAR and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


@provides
def ufunc_at(ufunc: np.ufunc, a: Any, indices: Any, values: Any = None) -> None:
    """``ufunc.at``: each index updates its element, repeated ones repeatedly."""
    name = ALIASES.get(ufunc.__name__, ufunc.__name__)
    if name not in UFUNCS:
        raise current().error(f"numpy.{ufunc.__name__}.at", "this ufunc is not compiled")
    if (values is None) != (ufunc.nin == 1):
        raise ValueError(
            "second operand needed for ufunc" if values is None else "second operand provided when ufunc is unary"
        )
    if not is_tracer(a):
        raise current().error(
            f"numpy.{ufunc.__name__}.at", "the array is not an argument of the function, nor made in it"
        )
    kept: Tracer | None = None
    if any(type(x) is MaskedRead for x in (*(indices if type(indices) is tuple else (indices,)), values)):
        found = forward.whole_operands(a, indices, values)
        if found is None:
            raise current().error(f"numpy.{ufunc.__name__}.at", "it takes arrays read under different masks")
        indices, values, kept = found
    parsed = parse_key(a, indices)
    if parsed.mask is not None or not parsed.arrays:  # no element is hit twice
        old = getitem(a, indices)
        a[indices] = ufunc(old) if values is None else ufunc(old, values)
        return
    view = basic_view(a, parsed.basic)
    plan = AdvancedIndex.of(view, parsed)
    if values is not None and not _stays_itself(name, a.dtype, values):
        values = as_tracer(values)  # `at` knows no weak scalars: 7 is an int64, 0.5 a float64
    operands = (a,) if values is None else (a, values)
    loop = loop_of(ufunc, operands, None, "same_kind")
    element: Expr = Const(0, loop[0])
    if values is not None:
        given = values if is_tracer(values) else as_tracer(values, loop[1])
        element = cast(trim(given, plan.shape).load(plan.shape), loop[1])
    plain = all(t == a.dtype for t in loop)
    is_kept = (
        None if kept is None else kept.reshape((*kept.shape, *(1,) * (len(plan.shape) - kept.ndim))).load(plan.shape)
    )
    nothing = _neutral(name, loop[0]) if plain and is_kept is not None else None
    if is_kept is not None and nothing is not None:
        element = Op("select", (is_kept, element, Const(nothing, loop[0])), loop[0])
    free = name in ASSOCIATIVE and plain and (a.dtype.kind in "iub" or name in ("maximum", "minimum"))

    def combine(old: Expr, new: Expr) -> Expr:
        args = (cast(old, loop[0]),) if values is None else (cast(old, loop[0]), new)
        return cast(Op(name, args, loop[-1]), a.dtype)

    if nothing is not None:
        is_kept = None
    scatter(view, plan, element, name if free and is_kept is None else "sequential", combine, is_kept)


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    """What changes no number in `name`; None where that is not known."""
    if dtype.kind not in "iuf":
        return None
    if name in ("maximum", "minimum"):
        ends = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return dtype.type(ends[name == "minimum"])
    return dtype.type(-0.0 if dtype.kind == "f" else 0) if name == "add" else None
