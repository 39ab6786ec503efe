"""Views: transposes, reshapes, flips, broadcasts, windows. Each is a new index map over the same buffer."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hjit.trace.ir.graph import compose, identity
from hjit.trace.ir.poly import ONE, ZERO, Dim, Poly, poly
from hjit.trace.ops.arguments import Casting, axes_of, axis_of, broadcast, makes
from hjit.trace.ops.layout import in_order, is_c_ordered, order_of, stand_in
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.bits import Reinterpreted
from hjit.trace.tracing.arrays.scalar_class import plain_class
from hjit.trace.tracing.arrays.traced import Shape, TracedArray
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_new_array,
    as_tracer,
    as_value,
    call,
    from_known,
    from_stage,
    is_tracer,
)
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import is_host, record, static_value
from hjit.trace.tracing.scalars.size import Size


def view(a: Tracer, shape: Shape, inner: Sequence[Poly], known: Any = None, read_only: bool = False) -> Tracer:
    """A view of `a`, or of an array made of a scalar, whose element at dims is ``a[inner]``."""
    if a.is_scalar and not read_only:
        a = as_new_array(a)
    return Tracer(a.buffer, shape, compose(a.index, inner), known, read_only=read_only or a.read_only)


def _known(a: Tracer, f: Any) -> Any:
    return None if a._known is None else f(a._known)


@provides
def reinterpreted(x: Tracer, dtype: np.dtype[Any]) -> Any:
    """``x.view(dtype)``."""
    if dtype.kind == "c" and (found := forward.paired(x, dtype)) is not None:
        return found
    if dtype == x.dtype:
        return x if x.is_scalar else Tracer(x.buffer, x.shape, x.index, x._known, read_only=x.read_only)
    if dtype.itemsize != x.dtype.itemsize or not supported_dtype(dtype):
        reason = f"elements of {x.dtype} seen as {dtype}, which is not of the same size"
        raise current().error("ndarray.view", reason, "compute the parts with shifts and masks, or convert with astype")
    root = x.buffer.root
    buffer = root if dtype == root.dtype else Reinterpreted(root, dtype)
    known = None if x._known is None else x._known.view(dtype)
    return Tracer(buffer, x.shape, x.index, known, x.is_scalar, x.read_only)


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    a = as_tracer(a)
    if a.is_scalar and not axes:
        return a  # type: ignore[no-any-return]
    if axes is None:
        order = tuple(reversed(range(a.ndim)))
    else:
        order = tuple(axis_of(k, a.ndim) for k in axes)
        if len(order) != a.ndim:
            raise ValueError("axes don't match array")
        if len(set(order)) != a.ndim:
            raise ValueError("repeated axis in transpose")
    key = "transpose", id(a._shape), id(a.index), order
    shape, index = current().memos.once(key, (a._shape, a.index), lambda: _transposed(a, order))
    return Tracer(a.buffer, shape, index, _known(a, lambda x: x.transpose(order)), read_only=a.read_only)


def _transposed(a: Tracer, order: tuple[int, ...]) -> tuple[Shape, tuple[Poly, ...]]:
    """The shape and the index of a view with its axes in another order."""
    inner = [ZERO] * a.ndim
    for new, old in enumerate(order):
        inner[old] = poly(Dim(new))
    return current().shape(a.shape[k] for k in order), compose(a.index, inner)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    a = as_tracer(a)
    order = list(range(a.ndim))
    i, j = (np.lib.array_utils.normalize_axis_index(k, a.ndim) for k in (axis1, axis2))
    order[i], order[j] = order[j], order[i]
    return transpose(a, order)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tracer:
    a = as_tracer(a)
    old, new = (np.lib.array_utils.normalize_axis_tuple(k, a.ndim) for k in (source, destination))
    if len(old) != len(new):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(a.ndim) if k not in old]
    for d, s in sorted(zip(new, old, strict=True)):
        order.insert(d, s)
    return transpose(a, order)


@implements(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Tracer:
    """A view where NumPy gives one, else a copy; always a copy if `copy`, never one if it is False.

    Raises:
        ValueError: the sizes do not match, or a copy is needed that may not be made.
    """
    a = as_tracer(a)
    if order == "F" or (order == "A" and in_order(a, "F") and not is_c_ordered(a)):
        wanted = list(shape) if isinstance(shape, (tuple, list)) else [shape]
        return transpose(reshape(transpose(a), wanted[::-1], copy=copy))
    target = _target_shape(a, shape)
    if a.is_scalar and not target:
        return a  # type: ignore[no-any-return]
    if copy:
        return call(np.copy, reshape(a, target), order="C")  # type: ignore[no-any-return]
    if tuple(target) == tuple(a.shape):
        return view(a, a.shape, identity(a.ndim), a._known)
    known = None if a.known is None else a.known.reshape(target)
    inner, merges = _regrouped(a, target)
    if not np.shares_memory(known, a.known) if known is not None else merges and not _joins(a, target):
        if copy is False:
            raise ValueError("Unable to avoid creating a copy while reshaping.")
        return from_known(known, of=a) if known is not None else from_stage(a.at(inner), tuple(target), a.dtype)
    return view(a, tuple(target), inner, known)


@provides
def reshape_in_place(a: Tracer, shape: Any) -> None:
    """``a.shape = shape``.

    Raises:
        AttributeError: NumPy would have to copy.
        TraceError: it is an array of the caller's, whose own shape would change.
    """
    a.become(shape_set(a, a, shape, reshape))


def shape_set(a: TracedArray, memory: Tracer, shape: Any, reshape: Callable[..., TracedArray]) -> Any:
    """What an array is after ``a.shape = shape``, `memory` being the tracer of its elements; as `reshape_in_place`."""
    if any(memory is x for x in current().caller.tracers):
        raise current().error("ndarray.shape = ...", "it changes an array that outlives the function", "use .reshape()")
    made = reshape(a, shape)
    if made.buffer is not a.buffer:
        raise AttributeError(
            "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
        )
    return made


def _joins(a: Tracer, target: list[int]) -> bool:
    """Does NumPy give a view, as the axes that are merged are one in memory?"""
    if is_c_ordered(a):
        return True
    like = stand_in(a)
    try:
        return like is not None and like.reshape(tuple(map(int, target)), copy=False) is not None
    except ValueError:
        return False


@provides
def flat(a: Tracer) -> Tracer:
    """``a.flat``: all elements in C order; writes to it go to `a`, whatever its layout."""
    known = None if a.known is None else a.known.reshape(-1)
    if known is not None and not np.shares_memory(known, a.known):
        known = None
    target = _target_shape(a, -1)
    return view(a, tuple(target), _regrouped(a, target)[0], known)


def _regrouped(a: Tracer, target: list[int]) -> tuple[list[Poly], bool]:
    """The index into `a` at each element of the new shape, and whether axes merge."""
    inner = [ZERO] * a.ndim
    merges = False
    for olds, news in _groups(a.shape, target):
        flat = ZERO
        for k in news:
            flat = flat * current().poly(target[k]) + (poly(Dim(k)) if target[k] != 1 else ZERO)
        merges |= len(olds) > 1
        _unravel(flat, [(k, current().poly(a.shape[k]) if a.shape[k] != 0 else ONE) for k in olds], inner)
    return inner, merges


def _target_shape(a: Tracer, shape: Any) -> list[int]:
    many = shape if isinstance(shape, (tuple, list)) else tuple(shape) if getattr(shape, "ndim", 0) else (shape,)
    wanted = [k if type(k) in (int, Size) else operator.index(static_value(k)) for k in many]
    size = a.size
    if wanted.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    rest = 1
    for k in wanted:
        rest = rest * k if k != -1 else rest
    bad = ValueError(f"cannot reshape array of size {int(size)} into shape {_written(wanted)}")
    if -1 in wanted:
        if rest == 0 or size % rest:
            raise bad
        wanted[wanted.index(-1)] = _quotient(a.shape, [k for k in wanted if k != -1])
    elif rest != size:
        raise bad
    return wanted


def _written(shape: Sequence[int]) -> str:
    """A shape as NumPy's errors have it: without negative lengths at its beginning."""
    known = list(itertools.dropwhile(lambda k: k < 0, shape))
    words = ",".join("newaxis" if k < 0 else f"{int(k)}" for k in known)
    return f"({words},)" if known and len(shape) == 1 else f"({words})"


def _quotient(old: Shape, given: list[int]) -> int:
    """The size of shape `old` over that of `given`; equal factors cancel first, so that the polynomial stays simple."""
    left = list(old)
    for k in list(given):
        if k in left:
            left.remove(k)
            given.remove(k)
    top = bottom = 1
    for k in left:
        top = top * k
    for k in given:
        bottom = bottom * k
    return top // bottom if bottom != 1 else top


def _groups(old: Shape, new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest split of both shapes into runs of equal product. Axes of length 1 belong to no group."""
    olds = [k for k, n in enumerate(old) if n != 1]
    news = [k for k, n in enumerate(new) if n != 1]
    groups = []
    i = j = 0
    while i < len(olds) and j < len(news):
        a, b = int(old[olds[i]]), int(new[news[j]])
        left, right = [olds[i]], [news[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b and i < len(olds):
                a *= int(old[olds[i]])
                left.append(olds[i])
                i += 1
            elif j < len(news):
                b *= int(new[news[j]])
                right.append(news[j])
                j += 1
            else:
                break
        groups.append((left, right))
    return groups


def _unravel(flat: Poly, axes: list[tuple[int, Poly]], inner: list[Poly]) -> None:
    """Write the index of each old axis, `flat` being the position in their product."""
    if len(axes) == 1:
        inner[axes[0][0]] = flat
        return
    for position, (axis, extent) in enumerate(axes):
        below = ONE
        for _, n in axes[position + 1 :]:
            below = below * n
        index = flat // below
        inner[axis] = index % extent if position else index


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Tracer:
    """A view where the elements are contiguous, else a copy: `reshape` also gives views of strided arrays."""
    a = as_tracer(a)
    if order == "K":  # as the iterator goes that copies them, also where elements are repeated
        a = transpose(a, order_of("K", (a,), a.shape))
    elif order == "F" or (order == "A" and in_order(a, "F")):
        a = transpose(a)
    found = reshape(a, (-1,))
    return found if found.buffer is not a.buffer or is_c_ordered(a) else call(np.copy, found)


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Tracer:
    a = as_tracer(a)
    drop = [k for k, n in enumerate(a.shape) if n == 1] if axis is None else axes_of(axis, a.ndim)
    if any(a.shape[k] != 1 for k in drop):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    found: Tracer = a[(*(0 if k in drop else slice(None) for k in range(a.ndim)), ...)] if drop else a
    return found


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    a = as_tracer(a)
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = np.lib.array_utils.normalize_axis_tuple(many, a.ndim + len(many))
    found: Tracer = a[tuple(None if k in places else slice(None) for k in range(a.ndim + len(many)))]
    return found


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Tracer:
    m = as_tracer(m)
    axes = axes_of(axis, m.ndim)
    found: Tracer = m[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(m.ndim))]
    return found


@implements(np.flipud)
def flipud(m: Any) -> Tracer:
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Tracer:
    m = as_tracer(m)
    first, second = axes_of(axes[0], m.ndim)[0], axes_of(axes[1], m.ndim)[0]
    if first == second:
        raise ValueError("Axes must be different.")
    quarters = k % 4
    if quarters == 0:
        return view(m, m.shape, identity(m.ndim), m._known)
    if quarters == 2:
        return flip(m, (first, second))
    if quarters == 1:
        return swapaxes(flip(m, second), first, second)
    return flip(swapaxes(m, first, second), second)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    return _broadcast(array, shape, True)


def _broadcast(array: Any, shape: Any, read_only: bool) -> Tracer:
    a = as_tracer(array)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    shape = tuple(n if type(n) in (int, Size) else operator.index(static_value(n)) for n in shape)
    if a.ndim > len(shape) or broadcast(a.shape, shape) != shape:
        old, new = tuple(map(int, a.shape)), tuple(map(int, shape))
        raise ValueError(
            "operands could not be broadcast together with remapped shapes "
            f"[original->remapped]: {old}  and requested shape {new}"
        )
    lead = len(shape) - a.ndim
    inner = [ZERO if n == 1 else poly(Dim(k)) for k, n in enumerate(a.shape, lead)]
    return view(a, shape, inner, _known(a, lambda x: np.broadcast_to(x, shape)), read_only)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracer, ...]:
    arrays = [as_tracer(a) for a in args]
    shape = broadcast(*(a.shape for a in arrays))
    return tuple(a if tuple(a.shape) == tuple(shape) else _broadcast(a, shape, False) for a in arrays)


@implements(np.broadcast)
def broadcast_object(*args: Any) -> Any:
    """``np.broadcast`` for its shape; it cannot be iterated."""
    shape = broadcast(*(as_tracer(a).shape for a in args))
    return SimpleNamespace(shape=shape, ndim=len(shape), nd=len(shape), size=math.prod(shape))


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tracer:
    x = as_tracer(x)
    window = tuple(window_shape) if isinstance(window_shape, (tuple, list)) else (window_shape,)
    window = tuple(w if type(w) in (int, Size) else operator.index(static_value(w)) for w in window)
    if any(w < 0 for w in window):
        raise ValueError("`window_shape` cannot contain negative values")
    axes = (
        tuple(range(x.ndim))
        if axis is None
        else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    )
    if len(axes) != len(window):
        raise ValueError(
            "Since axis is None, must provide window_shape for all dimensions of `x`; "
            f"got {len(window)} window_shape elements and `x.ndim` is {x.ndim}."
        )
    inner = [poly(Dim(k)) for k in range(x.ndim)]
    shape = list(x.shape)
    for k, (axis_, w) in enumerate(zip(axes, window, strict=True)):
        inner[axis_] = inner[axis_] + poly(Dim(x.ndim + k))
        shape[axis_] = shape[axis_] - (w - 1)
        if shape[axis_] <= 0:
            raise ValueError("window shape cannot be larger than input array shape")
    result = view(
        x,
        (*shape, *window),
        inner,
        _known(x, lambda a: np.lib.stride_tricks.sliding_window_view(a, window, axis)),
        not writeable,
    )
    return result


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    a = as_tracer(a)
    i, j = (np.lib.array_utils.normalize_axis_index(k, a.ndim) for k in (axis1, axis2))
    others = [k for k in range(a.ndim) if k not in (i, j)]
    down, right = max(-offset, 0), max(offset, 0)
    rows, cols = a.shape[i] - down, a.shape[j] - right
    count = max(rows if rows < cols else cols, 0)
    inner = [ZERO] * a.ndim
    for position, k in enumerate(others):
        inner[k] = poly(Dim(position))
    along = poly(Dim(len(others)))
    inner[i], inner[j] = along + current().poly(down), along + current().poly(right)
    return view(
        a, (*(a.shape[k] for k in others), count), inner, _known(a, lambda x: x.diagonal(offset, axis1, axis2)), True
    )


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    found = [a.reshape(1) if a.ndim == 0 else a for a in map(as_tracer, arys)]
    return found[0] if len(found) == 1 else tuple(found)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    found = [a.reshape(1, 1) if a.ndim == 0 else a[None] if a.ndim == 1 else a for a in map(as_tracer, arys)]
    return found[0] if len(found) == 1 else tuple(found)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    shaped = {0: lambda a: a.reshape(1, 1, 1), 1: lambda a: a[None, :, None], 2: lambda a: a[:, :, None]}
    found = [shaped.get(a.ndim, lambda a: a)(a) for a in map(as_tracer, arys)]
    return found[0] if len(found) == 1 else tuple(found)


@implements(np.shape)
def shape_(a: Any) -> Shape:
    return as_tracer(a).shape


@implements(np.ndim)
def ndim_(a: Any) -> int:
    return as_tracer(a).ndim


@implements(np.size)
def size_(a: Any, axis: Any = None) -> int:
    x = as_tracer(a)
    return x.size if axis is None else math.prod(x.shape[k] for k in axes_of(axis, x.ndim))


@implements(np.real)
def real(val: Any) -> Any:
    return part_of(val, "real", as_tracer)


def part_of(val: Any, name: str, convert: Callable[[Any], Any]) -> Any:
    """The attribute of that name, as NumPy takes it: a number's is a number, and only lists become arrays."""
    try:
        return getattr(val, name)
    except AttributeError:
        return getattr(convert(val), name)


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return True


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return False


@implements(np.result_type)
@makes
def result_type(*args: Any) -> Any:
    dtypes = [0 if type(a) is Size else plain_class(a.dtype if is_tracer(a) else a) for a in args]  # a size is an int
    known = not any(map(is_host, args))
    return forward.dtype_seen(np.result_type(*dtypes) if known else record(np.result_type, *dtypes).make_static())


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Casting = "safe") -> bool:
    return np.can_cast(getattr(from_, "dtype", from_), to, casting)


@implements(np.min_scalar_type)
def min_scalar_type(a: Any) -> np.dtype[Any]:
    x = as_tracer(a)
    if x.ndim:
        return x.dtype
    return np.min_scalar_type(as_value(x))
