"""np.pad and np.roll.

Borders are boundary conditions of the index (`poly.boundary`), or regions of their own: they cost the interior nothing.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast, select, walk
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import ZERO, Indirect, Poly, boundary, poly
from hjit.trace.ops.arguments import contents, whole_number
from hjit.trace.ops.arrays.joining import Region, assemble
from hjit.trace.ops.elementwise.casting import check_item
from hjit.trace.ops.layout import copy_order, order_of_padded, ordered_stage, relaid
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    has_tracer,
    is_tracer,
)
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import as_item, is_host, number, static_value
from hjit.trace.tracing.scalars.size import as_number

_BOUNDS = {"edge": "clamp", "wrap": "wrap", "reflect": "reflect", "symmetric": "symmetric"}
_KEYWORDS = {
    "constant": "constant_values",
    "reflect": "reflect_type",
    "symmetric": "reflect_type",
    "linear_ramp": "end_values",
    "maximum": "stat_length",
    "mean": "stat_length",
    "median": "stat_length",
    "minimum": "stat_length",
}


class _Leaf:
    """A number inside nested sequences that NumPy must not look into."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _leaves(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_leaves(y) for y in x]
    if isinstance(x, np.ndarray) and x.ndim:
        return [_leaves(y) for y in x]
    return _Leaf(x)


def _pairs(x: Any, ndim: int) -> list[tuple[Any, Any]]:
    """``before, after`` for each axis, in all the forms that `numpy.pad` takes."""
    values = np.array(_leaves(x), dtype=object)
    if values.ndim < 3 and values.size == 2 and values.shape != (2, 1):
        values = values.ravel()
    return [(a.value, b.value) for a, b in np.broadcast_to(values, (ndim, 2)).tolist()]


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if type(pad_width) is dict:
        given = pad_width
        pad_width = [(0, 0)] * ndim
        for axis, width in given.items():
            pad_width[axis] = tuple(width) if isinstance(width, (tuple, list)) else (width, width)
    if is_tracer(pad_width):
        pad_width = contents(pad_width, "numpy.pad", "the widths")
    if np.asarray(_plain(pad_width)).dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    widths = [(whole_number(a), whole_number(b)) for a, b in _pairs(pad_width, ndim)]
    if any(a < 0 or b < 0 for a, b in widths):
        raise ValueError("index can't contain negative values")
    return widths


def _plain(x: Any) -> Any:
    return (
        [_plain(y) for y in x]
        if isinstance(x, (list, tuple))
        else operator.index(x)
        if is_tracer(x)
        else static_value(x)
    )


def is_computed(mode: Any, kwargs: dict[str, Any]) -> bool:
    """Are there elements of the border that are neither given nor those of another place?"""
    return mode not in (*_BOUNDS, "constant", "empty") or kwargs.get("reflect_type", "even") != "even"


def by_numpys_source(a: Any, pad_width: Any, mode: str, kwargs: dict[str, Any]) -> Any:
    """What NumPy's own source computes, which is traced."""
    return forward.clone(inspect.unwrap(np.pad))(a, pad_width, mode, **kwargs)


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    a = as_tracer(array)
    widths = _widths(pad_width, a.ndim)
    if callable(mode):
        raise current().error("numpy.pad", "mode is a function", "use one of NumPy's modes")
    if mode not in (*_BOUNDS, *_KEYWORDS, "empty"):
        raise ValueError(f"mode '{mode}' is not supported")
    unknown = set(kwargs) - {_KEYWORDS.get(mode)}
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if a.known is not None and not has_tracer(kwargs) and not any(map(is_host, kwargs.values())):
        return from_known(np.pad(a.known, [(int(b), int(c)) for b, c in widths], mode, **kwargs), of=a)
    shape = tuple(n + before + after for n, (before, after) in zip(a.shape, widths, strict=True))
    if mode in ("constant", "empty"):
        border = current().uninitialised(a.dtype) if mode == "empty" else kwargs.get("constant_values", 0)
        return relaid(_constant_pad(a, widths, shape, border), order_of_padded(a))
    if is_computed(mode, kwargs):
        return by_numpys_source(a, pad_width, mode, kwargs)
    for axis, (n, width) in enumerate(zip(a.shape, widths, strict=True)):
        if n == 0 and any(width):
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    rec = current()
    index = list(identity(a.ndim))
    for axis, (n, (before, after)) in enumerate(zip(a.shape, widths, strict=True)):
        if before or after:
            index[axis] = ZERO if n == 1 else boundary(_BOUNDS[mode], index[axis] - rec.poly(before), rec.poly(n))
    return ordered_stage(a.at(index), shape, a.dtype, order_of_padded(a))


def _constant_pad(a: Tracer, widths: list[tuple[int, int]], shape: Shape, values: Any) -> Tracer:
    """The interior is an update; so is each border where values differ, later axes over earlier ones."""
    pairs = [tuple(map(as_number, pair)) for pair in _pairs(values, a.ndim)]
    numbers = [v for pair in pairs for v in pair]
    plain = not any(is_host(v) or is_tracer(v) for v in numbers)
    common = np.array(numbers).dtype if plain and numbers else None
    exprs = [tuple(_pad_value(v, common, a.dtype) for v in pair) for pair in pairs]
    inside = Region(tuple(before for before, _ in widths), a.shape, a)
    different = list(dict.fromkeys(e for pair in exprs for e in pair))
    if len(different) <= 1:
        return assemble(shape, a.dtype, [inside], different[0] if different else None)
    regions = []
    for axis, (before, after) in enumerate(widths):
        for thickness, start, value in ((before, 0, exprs[axis][0]), (after, shape[axis] - after, exprs[axis][1])):
            offset = (*(0,) * axis, start, *inside.offset[axis + 1 :])
            regions.append(Region(offset, (*shape[:axis], thickness, *a.shape[axis + 1 :]), value))
    return assemble(shape, a.dtype, [*regions, inside])


def _pad_value(value: Any, common: Any, dtype: np.dtype[Any]) -> Expr:
    if is_tracer(value):
        check_item(value, dtype)
        return cast(value.load(), dtype)
    filled = number(value if is_host(value) else np.asarray(value, common)[()], dtype, _as_border)
    return current().scalar(filled, dtype) if is_host(filled) else Const(filled, dtype)


def _as_border(value: Any, dtype: np.dtype[Any]) -> Any:
    """NumPy assigns an element of an array of border values."""
    return as_item(np.asarray(value)[()], dtype)


# -- roll, differences


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """One definition whose index wraps around, so that it becomes part of what reads it."""
    a = as_tracer(a)
    if axis is None:
        return roll(a.reshape(-1), shift, 0).reshape(a.shape)
    axes = [np.lib.array_utils.normalize_axis_index(k, a.ndim) for k in _sequence(axis)]
    shifts = [s if isinstance(s, int) or _is_computed(s) else int(s) for s in _sequence(shift)]
    if 1 not in (len(axes), len(shifts)) and len(axes) != len(shifts):
        raise ValueError(
            "shape mismatch: objects cannot be broadcast to a single shape.  Mismatch is between arg 0 with shape "
            f"({len(shifts)},) and arg 1 with shape ({len(axes)},)."
        )
    count = max(len(axes), len(shifts)) if axes and shifts else 0
    total: dict[int, Any] = {}
    for k in range(count):
        at = axes[k % len(axes)]
        total[at] = total.get(at, 0) + shifts[k % len(shifts)]
    if a.known is not None and not any(map(_is_computed, total.values())):
        known = np.roll(a.known, [int(s) for s in total.values()], tuple(total)) if total else a.known.copy()
        return from_known(known, of=a)
    rec = current()
    index = list(identity(a.ndim))
    for at, s in total.items():
        n = a.shape[at]
        if _is_computed(s):
            index[at] = _rolled(index[at], s, n)
        elif n > 1 and s % n:
            s = s if -n < s < n else int(s) % int(n)
            index[at] = boundary("wrap", index[at] - rec.poly(s), rec.poly(n))
    return ordered_stage(a.at(index), a.shape, a.dtype, copy_order(a))


def _is_computed(s: Any) -> bool:
    """Is this a whole number that is computed at every call?

    One that follows from captured arrays alone, as the velocities of a lattice, is decided on: it hardly ever changes.
    """
    is_one = is_tracer(s) and s.known is None and not s.ndim and s.dtype.kind in "iu"
    return is_one and current().options.postpone is None and _reads_arguments(s)


def _reads_arguments(s: Tracer) -> bool:
    rec = current()
    names, seen = [e.source for e in walk(s.load()) if isinstance(e, Load)], set[str]()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in rec.stages:
            names += rec.stages[name].sources
        elif name not in rec.inputs or rec.inputs[name].where[0] in ("arg", "event"):
            return True
    return False


def _rolled(dim: Poly, shift: Tracer, n: Any) -> Poly:
    """Where along an axis of `n` elements is what a computed shift moves to `dim`?"""
    whole, flag = np.dtype(np.int64), np.dtype(bool)
    left = call(np.remainder, shift.astype(whole), n)
    found = Op("subtract", (Index(dim), from_stage(left.load(), (), whole).load()), whole)
    ahead = Op("add", (found, Index(current().poly(n))), whole)
    return poly(Indirect(select(Op("less", (found, Const(0, whole)), flag), ahead, found), None))


def _sequence(x: Any) -> list[Any]:
    if is_tracer(x) and x.size and x.ndim < 2 and _is_computed(x[0] if x.ndim else x):
        return [x[k] for k in range(int(x.shape[0]))] if x.ndim else [x]
    x = x.tolist() if is_tracer(x) or isinstance(x, np.ndarray) else x
    many = list(map(static_value, x)) if isinstance(x, (list, tuple, range)) else [static_value(x)]
    if any(np.ndim(k) for k in many):
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    return many
