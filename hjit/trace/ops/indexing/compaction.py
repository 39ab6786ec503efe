"""Stream compaction: the elements that a boolean mask selects, one after another.

Each row of the mask is compacted by itself: an element goes to the place that the elements selected before it in the
row leave. So rows run in parallel, and what is read and the mask are computed where they are needed. The beginnings of
the rows are joined once their lengths are known: when the result is returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, cast
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Dim, Indirect, poly
from hjit.trace.ops.exactness import has_numpys_bits
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, call, from_stage, is_tracer
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current


class Compacted(NamedTuple):
    """The stages of a compacted read.

    Attributes:
        rows: shaped as what is read; along the last axis of the mask, selected elements first. What follows them is
            undefined.
        lengths: intp, shaped as the mask without its last axis: how many elements of each row are selected.
        column: of the last axis of the rows the element that is wanted; None: all.
        is_fortran: is the result in Fortran order in memory?
    """

    rows: str
    lengths: str
    column: int | None = None
    is_fortran: bool = False


@provides
def compacted(read: MaskedRead) -> Compacted | None:
    """The elements of a read in the order of NumPy.

    None: of complex numbers, of arrays without elements, and where the mask follows from roundings other than NumPy's:
    then the number of elements might not be NumPy's.
    """
    if read.column_of is not None:
        whole, column = read.column_of
        found: Compacted | None = compacted(whole)
        return None if found is None else found._replace(column=column, is_fortran=False)
    if read.stages is None:
        read.stages = _compacted(read)
    found = read.stages
    return found


def _compacted(read: MaskedRead) -> Compacted | None:
    full, mask = read.full, read.mask
    if not is_tracer(full) or 0 in full.shape or current().options.postpone is not None or not has_numpys_bits(mask):
        return None
    axis = mask.ndim - 1
    lengths = _stage_of(call(np.sum, mask, axis=axis, dtype=np.intp))
    return Compacted(_rows(full, _before(mask, axis), axis, None), lengths, is_fortran=read.is_fortran)


@provides
def places_of(mask: Tracer) -> Tracer:
    """Where the elements are that a mask with one axis keeps, in order; behind those, zeros."""
    index = from_stage(Index(poly(Dim(0))), mask.shape, np.intp)
    rows = _rows(index, _before(mask, 0), 0, Const(0, np.dtype(np.intp)))
    return from_stage(Load(rows, identity(1), np.dtype(np.intp)), mask.shape, np.intp)


def _before(mask: Tracer, axis: int) -> Tracer:
    """How many elements are kept before each one, along an axis."""
    dtype = np.int32 if mask.shape[axis] <= np.iinfo(np.int32).max else np.int64
    found: Tracer = np.subtract(call(np.cumsum, mask, axis=axis, dtype=dtype), mask)
    return found


def _rows(full: Tracer, place: Tracer, axis: int, initial: Expr | None) -> str:
    """The elements of `full` at their places along an axis; later ones overwrite earlier ones, or `initial`."""
    rec = current()
    order = [*(k for k in range(full.ndim) if k != axis), axis]
    dims = [poly(Dim(order.index(k))) for k in range(full.ndim)]
    where = poly(Indirect(cast(place.at(dims[: place.ndim]), np.int64), None))
    target = [where if k == axis else d for k, d in enumerate(dims)]
    shape = rec.polys(full.shape)
    update = Definition(tuple(shape[k] for k in order[:-1]), (shape[axis],), tuple(target), full.at(dims), "sequential")
    return rec.stage(initial, shape, full.dtype, (update,)).name


def _stage_of(t: Tracer) -> str:
    """The stage that computes all elements of `t`."""
    if t.is_whole and t.buffer.source() in current().stages:
        return t.buffer.source()
    return current().stage(t.at(identity(t.ndim)), t.shape, t.dtype).name
