"""The C functions of scipy.ndimage that move images: zoom_shift and geometric_transform, as gathers.

The arithmetic is SciPy's: an element is the sum, in C order, of the elements near its coordinates, each times its
weights along the axes, in double precision; `hjit.trace.ops.geometry.coordinates` has the coordinates.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Op, cast, select
from hjit.trace.ir.poly import Dim, Indirect, poly
from hjit.trace.ops.geometry.coordinates import CONSTANT, GRID_CONSTANT, UNMAPPED, inside, mapped, tap, weights
from hjit.trace.ops.stencils.ndimage_access import BOOL, DOUBLE, add, less, source, store, times
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_stage
from hjit.trace.tracing.scalars.host import static_value


@dataclass(frozen=True, slots=True)
class Tap:
    """An element that is read along one axis; all arrays broadcast to the output.

    Attributes:
        index: int64, in range.
        weight: float64; None in order 0.
        inside: bool; None where it is always an element of the image, else the border is read where it is false.
    """

    index: Tracer
    weight: Tracer | None
    inside: Tracer | None


def taps_of(x: Any, n: Any, order: int, mode: int) -> tuple[list[Tap], Tracer | None]:
    """The elements read along an axis of `n` elements at coordinates `x`, and where the image is read at all."""
    x = mapped(x, n, mode)
    near = inside(x, n) if mode == CONSTANT else None if mode in UNMAPPED else x > -1.0
    whole = np.floor(x if order & 1 else x + 0.5)
    found = []
    for k, weight in enumerate(weights(x, whole, order) if order else [None]):
        index = whole + (k - order // 2) if k != order // 2 else whole
        found.append(Tap(tap(index, n, order, mode), weight, inside(index, n) if mode == GRID_CONSTANT else None))
    return found, near


def interpolate(image: Tracer, where: Sequence[Any], output: Tracer, order: int, mode: int, cval: float) -> None:
    """``output[...] = image`` at the coordinates `where`, an array for each axis that broadcasts to the output."""
    shape = output.shape
    axes = [taps_of(x, n, order, mode) for x, n in zip(where, image.shape, strict=True)]
    copies = order == 0 and output.dtype == image.dtype and image.dtype.kind in "iuf" and image.dtype.itemsize <= 4
    work = image.dtype if copies else DOUBLE  # what double precision holds, and is only copied, keeps its dtype
    border = cast(rounded(Const(cval, DOUBLE), output.dtype), work) if copies else Const(cval, DOUBLE)
    total: Expr = Const(0, work)
    for taps in itertools.product(*(taps for taps, _ in axes)):
        index = [poly(Indirect(t.index.load(shape), None)) for t in taps]
        value = _where([t.inside for t in taps], cast(image.at(index), work), border, shape)
        for t in taps:
            if t.weight is not None:
                value = times(value, t.weight.load(shape))
        total = add(total, value)
    total = _where([near for _, near in axes], total, border, shape)
    store(output, total if copies else rounded(total, output.dtype), safe=False)


def _where(conditions: Sequence[Tracer | None], a: Expr, b: Expr, shape: Shape) -> Expr:
    """`a` where all conditions hold, else `b`; those that are None always hold."""
    for c in conditions:
        if c is not None:
            a = select(c.load(shape), a, b)
    return a


def rounded(e: Expr, dtype: np.dtype[Any]) -> Expr:
    """A number as SciPy's interpolation stores it: to the nearest integer, half away from zero, and in range."""
    if dtype.kind not in "iu":
        return e
    half, zero = Const(0.5, DOUBLE), Const(0.0, DOUBLE)
    info = np.iinfo(dtype)
    above = add(e, half)
    if dtype.kind == "u":
        nearest = select(less(zero, e), above, zero)
        high = Const(float(info.max), DOUBLE)
        if dtype.itemsize == 8:  # 2**64, which C converts to 0
            return select(Op("greater_equal", (nearest, high), BOOL), zero, nearest)
        return select(less(high, nearest), high, nearest)
    nearest = select(less(zero, e), above, Op("subtract", (e, half), DOUBLE))
    if dtype.itemsize == 8:
        whole = cast(nearest, dtype)
        return select(less(Const(2.0**63, DOUBLE), nearest), Const(info.max, dtype), whole)
    low, high = Const(float(info.min), DOUBLE), Const(float(info.max), DOUBLE)
    bounded = select(less(high, nearest), high, select(less(nearest, low), low, nearest))
    return cast(cast(bounded, np.int32), dtype)  # NaN is an int32 before it is narrower


# -- SciPy's functions


def along(axis: int, ndim: int, n: Any) -> Tracer:
    """The indices along an axis as float64, in the shape in which they broadcast."""
    shape = tuple(n if k == axis else 1 for k in range(ndim))
    return from_stage(cast(Index(poly(Dim(axis))), DOUBLE), shape, DOUBLE)


def zoom_shift(
    image: Any,
    zoom: Any,
    shift: Any,
    output: Tracer,
    order: int,
    mode: int,
    cval: Any,
    npad: int,
    grid_mode: bool,
) -> None:
    """Each axis by itself: its coordinates are ``(k + shift) * zoom``."""
    image, order, npad = source(image), operator.index(static_value(order)), operator.index(static_value(npad))
    where = []
    for k, n in enumerate(output.shape):
        x: Any = along(k, output.ndim, n)
        if grid_mode:
            x = x + 0.5
        if shift is not None:
            x = x + as_tracer(shift)[k]
        if zoom is not None:
            x = x * as_tracer(zoom)[k]
        if grid_mode:
            x = x - 0.5
        where.append(x + float(npad) if npad else x)
    interpolate(image, where, output, order, static_value(mode), float(static_value(cval)))


def geometric_transform(
    image: Any,
    function: Any,
    coordinates: Any,
    matrix: Any,
    offset: Any,
    output: Tracer,
    order: int,
    mode: int,
    cval: Any,
    npad: int,
    *more: Any,
) -> None:
    """At given coordinates, or at those that a matrix gives."""
    image, order, npad = source(image), operator.index(static_value(order)), operator.index(static_value(npad))
    where = []
    for k in range(image.ndim):
        if matrix is not None:
            x = as_tracer(offset)[k]
            for axis, n in enumerate(output.shape):
                x = x + along(axis, output.ndim, n) * as_tracer(matrix)[k, axis]
        else:
            x = as_tracer(coordinates)[k].astype(np.float64, copy=False)
        where.append(x + float(npad) if npad else x)
    interpolate(image, where, output, order, static_value(mode), float(static_value(cval)))
