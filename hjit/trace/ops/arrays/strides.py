"""An array's memory layout as code sees it: `__array_interface__`, `flags`, and views by strides (`as_strided`)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from hjit.trace.ir.poly import ZERO, Dim, Poly, Var, poly
from hjit.trace.ops import layout
from hjit.trace.ops.arguments import shape_of
from hjit.trace.ops.arrays.creation import empty
from hjit.trace.ops.arrays.views import view
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value


class Interface(dict[str, Any]):
    """The array interface of a traced array: all but its address."""

    def __missing__(self, key: str) -> Any:
        if key not in ("data", "strides"):
            raise KeyError(key)
        reason = (
            "the array has no memory while the function is traced"
            if key == "data"
            else "the strides of this view are not known while tracing"
        )
        raise current().error(
            f'__array_interface__["{key}"]', reason, "use np.shares_memory, views and slices in place of addresses"
        )


@provides
def interface(x: Tracer) -> Interface:
    """``x.__array_interface__``."""
    text = x.dtype.str
    found = Interface(descr=[("", text)], typestr=text, shape=tuple(map(int, x.shape)), version=3)
    strides = layout.strides(x)
    if strides is not None:
        found["strides"] = None if layout.is_c_ordered(x) else strides
    return found


_FLAGS = {
    "C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "O": "owndata", "A": "aligned", "B": "behaved",
    "X": "writebackifcopy", "CA": "carray", "FA": "farray", "CONTIGUOUS": "c_contiguous", "FORTRAN": "f_contiguous",
}  # fmt: skip


class Flags:
    """What code asks of ``a.flags``.

    Raises:
        TraceError: it asks whose memory the array has, or sets one.
    """

    def __init__(self, c_contiguous: bool, f_contiguous: bool, of: Tracer) -> None:
        self.c_contiguous = self.contiguous = c_contiguous
        self.f_contiguous, self.forc = f_contiguous, c_contiguous or f_contiguous
        self.fnc = f_contiguous and not c_contiguous
        self.farray = not c_contiguous  # as NumPy has it
        self.aligned, self.writebackifcopy = True, False
        self.of = of

    @property
    def writeable(self) -> bool:
        """A guard, of an array from outside."""
        found, root = self.of.writeable, self.of.buffer.root
        if root.argument and not self.of.read_only:
            forward.guard_writeable(root.argument, found)
        return found

    @property
    def behaved(self) -> bool:
        return self.writeable

    @property
    def carray(self) -> bool:
        return self.c_contiguous and self.writeable

    @property
    def owndata(self) -> bool:
        raise current().error(
            "flags.owndata", "whose memory an array has is not known while tracing", "use numpy.shares_memory"
        )

    def __getitem__(self, name: str) -> Any:
        return getattr(self, _FLAGS.get(name, name.lower()))

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "of"):
            raise current().error(f"flags.{name} = ...", "hjit does not trace it", "use numpy.broadcast_to, or a copy")
        object.__setattr__(self, name, value)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, _FLAGS.get(name, name.lower()), value)


@provides
def flags(x: Tracer) -> Flags:
    """``x.flags``."""
    like = layout.stand_in(x)
    return Flags(False, False, x) if like is None else Flags(like.flags.c_contiguous, like.flags.f_contiguous, x)


@implements(np.lib.stride_tricks.as_strided)
def as_strided(
    x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True, **kwargs: Any
) -> Tracer:
    """A view whose steps through memory are sums of the array's own; nothing outside of the array may be reached.

    Raises:
        ValueError: there are not as many strides as axes.
    """
    a = as_tracer(x)
    shape = a.shape if shape is None else shape_of(shape)
    own = layout.strides(a)
    if own is None:
        raise current().error(
            "as_strided", "the strides of this view are not known while tracing", "make a copy of it first"
        )
    steps = own if strides is None else tuple(operator.index(static_value(s)) for s in strides)
    if len(steps) != len(shape):
        raise ValueError("mismatch in length of strides and shape")
    if 0 in shape:
        return empty(shape, a.dtype)
    inner = _by_axes(a, own, shape, steps)
    if inner is None and layout.is_c_ordered(a):
        a = a.reshape(-1)
        inner = _by_axes(a, (a.dtype.itemsize,), shape, steps)
    if inner is None:
        reason = "the strides lead out of the array, or between its elements"
        raise current().error("as_strided", reason, "use slices, reshape or np.lib.stride_tricks.sliding_window_view")
    known = None if a._known is None else np.lib.stride_tricks.as_strided(a._known, tuple(map(int, shape)), steps)
    return view(a, shape, inner, known, read_only=not writeable)


def _by_axes(a: Tracer, own: Sequence[int], shape: Shape, steps: Sequence[int]) -> list[Poly] | None:
    """For each axis of `a` its index over the dimensions of the view; None where there is none within bounds."""
    inner, low, high = [ZERO] * a.ndim, [0] * a.ndim, [0] * a.ndim
    axes = sorted((k for k in range(a.ndim) if own[k] and a.shape[k] > 1), key=lambda k: -abs(own[k]))
    lengths = [(own[k], int(a.shape[k])) for k in axes]
    for dim, (n, step) in enumerate(zip(shape, steps, strict=True)):
        times = _multiples(step, int(n) - 1, lengths) if n > 1 else (0,) * len(axes)
        if times is None:
            return None
        for k, t in zip(axes, times, strict=True):
            inner[k] = inner[k] + poly(Dim(dim)) * t
            low[k], high[k] = low[k] + min(t * (int(n) - 1), 0), high[k] + max(t * (int(n) - 1), 0)
    return inner if all(x >= 0 and y < n for x, y, n in zip(low, high, a.shape, strict=True)) else None


def _multiples(step: int, last: int, axes: Sequence[tuple[int, int]]) -> tuple[int, ...] | None:
    """`step` as a sum of multiples of strides that stay in their axes for `last` steps.

    Args:
        axes: strides and lengths, the longest stride first.
    """
    if not axes:
        return None if step else ()
    (stride, length), *rest = axes
    for times in (step // stride, -(-step // stride)):
        found = _multiples(step - times * stride, last, rest) if abs(times) * last < length else None
        if found is not None:
            return (times, *found)
    return None


# -- common memory


def _have_common_memory(function: Callable[..., bool], a: Any, b: Any, *max_work: Any, **named: Any) -> bool:
    """What NumPy's function says of two arrays, of which at least one is traced; numbers are in no array.

    Raises:
        TraceError: it depends on where the arrays of a call are, or is not known while tracing.
    """
    if not all(type(x) in (Tracer, ComplexTracer) and not x.is_scalar for x in (a, b)):
        return False
    x, y = (z.parts if type(z) is ComplexTracer else z for z in (a, b))
    one, other = _owner(x.buffer), _owner(y.buffer)
    if one is not other and (not (one.argument and other.argument) or _are_disjoint(one.argument, other.argument)):
        return False
    if one is other and x.known is not None and y.known is not None:
        return bool(function(x.known, y.known, *max_work, **named))
    first, second = _in_memory(x), _in_memory(y)
    if one is not other or first is None or second is None:
        reason = "their places in memory are not known while tracing"
        raise current().error(f"numpy.{function.__name__}", reason, "ask before the decorated function is called")
    return bool(function(first, second, *max_work, **named))


for _function in (np.shares_memory, np.may_share_memory):
    implements(_function)(partial(_have_common_memory, _function))


def _are_disjoint(one: str, other: str) -> bool:
    """Have two arrays of this call no common memory? Then other calls are guarded for that."""
    inputs = current().inputs
    sources = inputs[one], inputs[other]
    if not all(s.where[0] in ("arg", "captured") and type(s.array) is np.ndarray for s in sources):
        return False
    if np.may_share_memory(sources[0].array, sources[1].array):
        return False
    current().caller.disjoint.add((one, other))
    return True


def _owner(buffer: TracedBuffer) -> TracedBuffer:
    """The memory that a buffer is in for NumPy."""
    root = buffer.root
    return root if root.viewed is None else _owner(root.viewed[0])


def _in_memory(x: Tracer) -> np.ndarray[Any, Any] | None:
    """An array that lies as the view does in memory that begins at some address, and must not be touched.

    None: it is not known where it lies.
    """
    root, steps = x.buffer.root, layout.strides(x)
    is_moving = any(p.has(Var) for p in x.index)
    if steps is None or is_moving or root.viewed is not None:
        return None
    base = root.strides or layout.c_strides(root.shape, root.dtype.itemsize)
    start = sum(layout.value_at(p) * int(s) for p, s in zip(x.index, base, strict=True))
    about = {
        "data": (_BEGIN + start, True),
        "shape": tuple(map(int, x.shape)),
        "strides": tuple(map(int, steps)),
        "typestr": x.dtype.str,
        "version": 3,
    }
    return np.asarray(SimpleNamespace(__array_interface__=about))


_BEGIN = 1 << 40  # an address
