"""Which products of matrices BLAS computes, by `numpy.matmul`, and which are fused with what is around them.

The numbers of the rule were measured by `python -m benchmarks products`; see benchmarks/README.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Dim, Poly, Sym, sizes_value
from hjit.trace.ops.layout import c_strides
from hjit.trace.ops.limits import (
    MAX_PRODUCTS,
    MIN_LENGTH,
    MIN_MATRIX,
    MIN_NARROW_LENGTH,
    MIN_SIDE,
    MIN_STACKED_WORK,
    MIN_WORK,
    NARROW_ROW,
)
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer
from hjit.trace.tracing.recording.extern_calls import record_product
from hjit.trace.tracing.recording.products import Operand, Product
from hjit.trace.tracing.recording.recorder import Recorder, current

Labels = Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class _Form:
    """The labels of a product of matrices: those that both operands and the result have, and so on."""

    batch: list[Hashable]
    rows: list[Hashable]
    columns: list[Hashable]
    summed: list[Hashable]

    @property
    def result(self) -> list[Hashable]:
        """The labels of the result."""
        return [*self.batch, *self.rows, *self.columns]

    def transposed(self) -> _Form:
        """Of the product with its operands exchanged."""
        return _Form(self.batch, self.columns, self.rows, self.summed)


def is_faster(batch: int, rows: int, columns: int, length: int, itemsize: int, is_there: bool) -> bool:
    """Is BLAS faster than a fused product?

    Args:
        batch: how many matrices are multiplied.
        length: how many products are summed up for an element.
        is_there: is the larger operand a view of an array, which has not to be computed for it?
    """
    work = rows * columns * length
    if min(rows, columns) == 1:
        return (
            is_there and batch == 1 and length >= MIN_LENGTH and max(rows, columns) >= MIN_LENGTH and work >= MIN_MATRIX
        )
    if batch * work < MIN_WORK or (batch > 1 and work < MIN_STACKED_WORK):
        return False
    is_narrow = columns * itemsize <= NARROW_ROW and length >= MIN_NARROW_LENGTH
    return (min(rows, columns) >= MIN_SIDE or is_narrow) and length >= MIN_LENGTH


def by_blas(
    operands: Sequence[Tracer],
    labels: Sequence[Labels],
    out: Labels,
    dtype: np.dtype[Any],
    shape: Shape,
    name: Callable[[], str],
) -> Tracer | None:
    """The product by BLAS; None where it is to be fused, or is none that BLAS knows.

    Args:
        labels, out: see `hjit.trace.ops.reductions.contractions.contract`.
        name: gives the name of the stage that it would be.
    """
    rec = current()
    if rec.options.blas is None or dtype.char not in "fd" or len(operands) != 2 or rec.loops or 0 in shape:
        return None
    form = _form(operands, labels, out)
    if form is None or not out or sum(e.product is not None for e in rec.breaks) >= MAX_PRODUCTS:
        return None
    if list(out) != form.result:  # the transposed product, perhaps
        operands, labels, form = operands[::-1], labels[::-1], form.transposed()
        if list(out) != form.result:
            return None
    stage = name()
    wanted = rec.options.blas(stage)
    if wanted is False:
        return None
    sizes = {
        n: int(size) for t, names in zip(operands, labels, strict=True) for n, size in zip(names, t.shape, strict=True)
    }
    views, outer = _views(rec, operands, labels, form, sizes, dtype)
    if wanted == "auto":
        batch, rows, columns, length = (
            math.prod(sizes[n] for n in g) for g in (form.batch, form.rows, form.columns, form.summed)
        )
        larger = views[0] if math.prod(operands[0].shape) >= math.prod(operands[1].shape) else views[1]
        is_there = larger is not None and larger.source in rec.inputs
        if not is_faster(batch, rows, columns, length, dtype.itemsize, is_there):
            return None
    found = [
        v or _view(rec, t.copy() if t.dtype == dtype else t.astype(dtype)) for v, t in zip(views, operands, strict=True)
    ]
    first, second = (v for v in found if v is not None)
    product = _product((first, second), labels, form, outer, sizes, dtype)
    known = next((e.gives[0] for e in rec.breaks if e.product == product), None)
    if known is None:
        record_product(rec, stage, product, shape)
    result = Tracer(TracedBuffer(shape, dtype, known or stage), shape, identity(len(shape)))
    return result.copy() if known else result  # two arrays that both may be returned


def _views(
    rec: Recorder,
    operands: Sequence[Tracer],
    labels: Sequence[Labels],
    form: _Form,
    sizes: Mapping[Hashable, int],
    dtype: np.dtype[Any],
) -> tuple[list[_View | None], list[Hashable]]:
    """The operands as BLAS reads them in place, None where they are to be copied; and the labels as of `_outer`."""
    views = [_view(rec, t) if t.dtype == dtype else None for t in operands]
    outer = _outer(views[0], labels[0], form, sizes)
    for k, side in enumerate((form.rows[len(outer) :], form.columns)):
        view, axes = views[k], [[labels[k].index(n) for n in group] for group in (side, form.summed)]
        if view is not None and not view.suits_blas(axes, dtype.itemsize):
            views[k] = None
    return views, [] if views[0] is None else outer


def _outer(view: _View | None, names: Labels, form: _Form, sizes: Mapping[Hashable, int]) -> list[Hashable]:
    """The labels of rows that are not one axis in memory: each of them is a matrix of its own."""
    if (
        view is None
        or not form.rows
        or sizes[form.rows[-1]] < MIN_LENGTH
        or view.is_one_axis([names.index(n) for n in form.rows])
    ):
        return []
    return form.rows[:-1]


def _form(operands: Sequence[Tracer], labels: Sequence[Labels], out: Labels) -> _Form | None:
    """How two operands are multiplied as matrices; None where they are not."""
    first, second = (dict(zip(names, t.shape, strict=True)) for t, names in zip(operands, labels, strict=True))
    if (len(first), len(second)) != tuple(map(len, labels)) or any(first[n] != second[n] for n in first if n in second):
        return None  # a diagonal, or an axis that is broadcast
    both = [n for n in first if n in second]
    rows, columns = [n for n in first if n not in second], [n for n in second if n not in first]
    summed = [n for n in both if n not in out]
    return _Form([n for n in both if n in out], rows, columns, summed) if summed else None


def _product(
    views: tuple[_View, _View],
    labels: Sequence[Labels],
    form: _Form,
    outer: list[Hashable],
    sizes: Mapping[Hashable, int],
    dtype: np.dtype[Any],
) -> Product:
    """What `numpy.matmul` is to compute."""

    def size(*names: Hashable) -> int:
        return math.prod(sizes[n] for n in names)

    lead = [*map(size, form.batch)]
    rows = [size(*form.rows[len(outer) :])] if form.rows or lead else []
    columns = [size(*form.columns)] if form.columns or lead or outer else []
    length, apart = size(*form.summed), [*map(size, outer)]
    first = views[0].operand(
        [labels[0].index(n) for n in (*form.batch, *form.rows, *form.summed)], (*lead, *apart, *rows, length)
    )
    second = views[1].operand(
        [labels[1].index(n) for n in (*form.batch, *form.summed, *form.columns)],
        (*lead, *[1] * len(outer), length, *columns),
    )
    shape = tuple(size(n) for n in (*form.batch, *form.rows, *form.columns))
    return Product(first, second, dtype, shape, (*lead, *apart, *rows, *columns), length)


@dataclass(frozen=True, slots=True)
class _View:
    """A view as slices of an array.

    Attributes:
        part: slices and whole numbers, one for each axis of the array.
        axes: for each axis of the view its place among the slices; None for one of length 1 that is none of them.
        shape, strides: of the view, in bytes.
        whole: the shape of the array.
    """

    source: str
    part: tuple[slice | int, ...]
    axes: tuple[int | None, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    whole: tuple[int, ...]

    def is_one_axis(self, axes: Sequence[int]) -> bool:
        """Are these axes of the view one axis in memory?"""
        long = [k for k in axes if self.shape[k] > 1]
        return all(self.strides[i] == self.strides[j] * self.shape[j] for i, j in itertools.pairwise(long))

    def suits_blas(self, groups: Sequence[Sequence[int]], itemsize: int) -> bool:
        """Can BLAS read it as a matrix whose axes are these groups of axes? A group that is not one axis is copied."""
        sides = [[k for k in axes if self.shape[k] > 1] for axes in groups]
        steps = [self.strides[long[-1]] for long in sides if long]
        if not all(map(self.is_one_axis, sides)) or not steps:
            return True
        if min(steps) <= 0 or any(step % itemsize for step in steps):
            return False
        dense = next((long for long in sides if long and self.strides[long[-1]] == itemsize), None)
        return len(steps) == 1 or (
            dense is not None and max(steps) >= itemsize * math.prod(self.shape[k] for k in dense)
        )

    def operand(self, axes: Sequence[int], shape: tuple[int, ...]) -> Operand:
        """The view with its axes in another order, in another shape."""
        order = tuple(k for k in (self.axes[n] for n in axes) if k is not None)
        is_whole = all(
            isinstance(x, slice) and (x.start, x.stop, x.step) == (0, n, 1)
            for x, n in zip(self.part, self.whole, strict=True)
        )
        lengths = tuple(self.shape[self.axes.index(k)] for k in order)
        is_in_order = order == tuple(range(len(order)))
        return Operand(
            self.source,
            () if is_whole else self.part,
            None if is_in_order else order,
            None if lengths == shape else shape,
        )


def _view(rec: Recorder, t: Tracer) -> _View | None:
    """A view as slices; None where it is something else."""
    source = t.buffer.source()
    part: list[slice | int] = []
    steps: dict[int, int] = {}  # in bytes, by the axes of the view, in their order in memory
    for p, stride in zip(t.index, _strides(rec, source), strict=True):
        line = _line(p, rec.sizes)
        if line is None or line[1] in steps:
            return None
        start, axis, step = line
        if axis is None:
            part.append(start)
        else:
            stop = start + int(t.shape[axis]) * step
            part.append(slice(start, stop if stop >= 0 else None, step))
            steps[axis] = step * stride
    if any(n != 1 and k not in steps for k, n in enumerate(t.shape)):
        return None
    axes = tuple(list(steps).index(k) if k in steps else None for k in range(t.ndim))
    return _View(
        source,
        tuple(part),
        axes,
        tuple(map(int, t.shape)),
        tuple(steps.get(k, 0) for k in range(t.ndim)),
        tuple(map(int, t.buffer.shape)),
    )


def _strides(rec: Recorder, source: str) -> Sequence[int]:
    """Of an input, or of a stage once it is computed."""
    if source in rec.inputs:
        return rec.inputs[source].array.strides
    stage = rec.stages[source]
    return c_strides([sizes_value(n, rec.sizes) for n in stage.shape], stage.dtype.itemsize)


def _line(p: Poly, sizes: Mapping[str, int]) -> tuple[int, int | None, int] | None:
    """The index ``start + step * Dim(axis)`` as its parts; None where it is another one."""
    start, step = p.const, 0
    axis: int | None = None
    for m, c in p.terms.items():
        if all(isinstance(a, Sym) for a in m):
            start += sizes_value(Poly({m: c}, 0), sizes)
        elif len(m) == 1 and isinstance(m[0], Dim) and axis is None:
            axis, step = m[0].k, c
        else:
            return None
    return start, axis, step
