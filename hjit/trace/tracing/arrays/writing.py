"""Writing to traced arrays: a write makes the buffer's next version, which all its views see."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, cast, renumber, select
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, is_tracer, made_of_sizes, stored
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import (
    Conversion,
    as_array,
    as_item,
    is_captured,
    is_host,
    known_number,
    number,
)
from hjit.trace.tracing.scalars.size import as_number


@provides
def write(view: Tracer, value: Any, where: Expr | None = None, how: Conversion | None = None) -> None:
    """``view[...] = value``, under the mask `where` if given.

    The value is broadcast and cast as NumPy does, a number by the conversion `how`.

    Raises:
        ValueError: the view is read-only, or `value` does not broadcast to its shape.
        OverflowError, ValueError: NumPy refuses to store the number `value`.
    """
    if not view.writeable:
        raise ValueError("assignment destination is read-only")
    if is_captured(value) and view.dtype.kind != "f":
        value = value.make_static()  # what NumPy says of a number that does not fit, it says at once
    given = value
    value = as_number(value) if view.known is None or where is not None else known_number(value)
    source = value if is_tracer(value) else None
    if source is not None and where is None and _is_same(source, view):
        return  # the second half of ``a[k] += x``
    how = how or (as_item if where is None else as_array)
    if is_host(value):
        update(view, current().scalar(number(value, view.dtype, how), view.dtype), where)
        return
    source = stored(value, view.dtype, how)
    if tuple(source.shape) != tuple(view.shape):
        source = trim(source, view.shape)
    known = None if current().records_program else view.known
    if source.known is not None and known is not None and where is None:
        known[...] = source.known
        root = view.buffer.root
        root.of_sizes = root.of_sizes or made_of_sizes((given, source))
        current().changes.append((root, root.version, root.contents))
        root.version = ""
        return
    update(view, cast(source.load(view.shape), view.dtype), where)


def _is_same(a: Tracer, b: Tracer) -> bool:
    """Are these one view? The first row has the index of the whole array, too, and another shape."""
    return a.buffer is b.buffer and a.index == b.index and tuple(a.shape) == tuple(b.shape)


@provides
def check_nesting(value: Any, ndim: int, is_element: bool) -> None:
    """NumPy's check of what is stored at once.

    Args:
        ndim: axes of the place.
        is_element: is it one element, and not an array without axes?

    Raises:
        ValueError: it is a list with more axes; or has any, and is stored in one element.
    """
    if type(value) in (list, tuple) or is_element:
        depth = _depth(value)
        if is_element and depth:
            raise ValueError("setting an array element with a sequence.")
        if depth > ndim:
            more = f"The requested array would exceed the maximum number of dimension of {ndim}."
            raise ValueError(f"setting an array element with a sequence. {more}")


def _depth(x: Any) -> int:
    """How many axes has the array that `x` is made into?"""
    if type(x) in (list, tuple):
        return 1 + max(map(_depth, x), default=0)
    return x.ndim if isinstance(x, np.ndarray) else 0


def trim(source: Tracer, shape: Shape) -> Tracer:
    """`source` without leading axes of length 1 that `shape` lacks, after NumPy's check that it broadcasts."""
    extra = source.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in source.shape[:extra]):
        source = source[(0,) * extra]
    if source.ndim > len(shape) or any(
        n not in (1, m) for n, m in zip(reversed(source.shape), reversed(shape), strict=False)
    ):
        given, wanted = (",".join(str(int(n)) for n in s) + ("," if len(s) == 1 else "") for s in (source.shape, shape))
        raise ValueError(f"could not broadcast input array from shape ({given}) into shape ({wanted})")
    return source


def update(view: Tracer, expr: Expr, where: Expr | None = None) -> None:
    """Make the buffer's next version: `expr` over the dimensions of `view`, written through it."""
    rec, buffer = current(), view.buffer
    old = buffer.source()
    if any(n == 0 for n in view.shape):
        return
    if where is not None:
        expr = select(where, expr, view.load())
    axes = view.axes
    if axes is not None:
        if not view.is_whole:
            expr = expr.substitute(renumber([poly(Dim(axes.index(k))) for k in range(len(axes))]))
        buffer.set_version(rec.stage(expr, buffer.shape, buffer.dtype).name)
        return
    rec.unrolled.parts.write(view.index)
    sizes = rec.polys(view.shape)
    in_order = forward.shares_elements(view)  # then the last number that is written to an element stays
    definition = (
        Definition((), sizes, view.index, expr, "sequential") if in_order else Definition(sizes, (), view.index, expr)
    )
    next_version(buffer, old, (definition,))


def next_version(buffer: TracedBuffer, old: str, updates: tuple[Definition, ...] = (), reserved: str = "") -> None:
    """The buffer's next version: what `old` holds, updated; `reserved`: its name, where the updates read it."""
    keep = Load(old, identity(len(buffer.shape)), buffer.dtype)
    name = "" if reserved else version_name(old)
    stage = current().stage(keep, buffer.shape, buffer.dtype, updates, name, reserved)
    buffer.set_version(stage.name)


_VERSION = re.compile(r"_v(_\d+)*$")


def version_name(old: str) -> str:
    """A name for the version of a buffer that follows `old`."""
    return f"{_VERSION.sub('', old)}_v"
