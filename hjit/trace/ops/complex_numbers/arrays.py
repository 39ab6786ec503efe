"""Complex arrays: indexing, views, new arrays, and arrays put together. All of it is done to their parts."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const
from hjit.trace.ops.arguments import Casting, axes_of, axis_of, count, makes, refuse, shape_of
from hjit.trace.ops.arrays.joining import fit_together, join_in_order
from hjit.trace.ops.arrays.strides import Flags
from hjit.trace.ops.arrays.views import part_of, shape_set
from hjit.trace.ops.complex_numbers.operands import Complex, as_complex, complex_operand, is_array, joined, pair
from hjit.trace.ops.complex_numbers.table import for_complex
from hjit.trace.ops.complex_numbers.ufuncs import as_bool, store
from hjit.trace.ops.layout import Order, copy_order, in_order, joined_order, order_of, stand_in
from hjit.trace.ops.stencils.padding import by_numpys_source, is_computed
from hjit.trace.tracing.arrays.complex_tracer import (
    ComplexTracer,
    checked_complex,
    is_complex,
    is_complex_dtype,
    known_complex,
    scalar_parts,
)
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, Tracer, as_tracer, call, has_tracer
from hjit.trace.tracing.complex_memory import complex_of, part_dtype, supported_complex
from hjit.trace.tracing.dispatch import functions
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_captured, static_value
from hjit.trace.tracing.scalars.size import Size

# -- indexing


def _key(z: ComplexTracer, key: Any) -> tuple[Any, ...]:
    """The index of the parts: both of each number.

    Raises:
        IndexError: there are too many indices.
    """
    items = key if isinstance(key, tuple) else (key,)
    given = sum(0 if k is None or k is ... else _used(k) for k in items)
    if given > z.ndim:
        raise IndexError(f"too many indices for array: array is {z.ndim}-dimensional, but {given} were indexed")
    return (*items, *(() if any(k is ... for k in items) else (...,)), slice(None))


def _used(k: Any) -> int:
    """How many axes an entry of an index takes."""
    if isinstance(k, (bool, np.bool_)):
        return 0
    return int(k.ndim) if isinstance(k, np.ndarray) and k.dtype == bool else 1


@provides
def complex_getitem(z: ComplexTracer, key: Any) -> Any:
    """``z[key]``."""
    found = z.parts[_key(z, key)]
    if type(found) is MaskedRead:
        return MaskedRead(ComplexTracer(found.full), found.mask)
    items = key if isinstance(key, tuple) else (key,)
    if found.ndim == 1 and not any(k is ... for k in items):
        return ComplexTracer(found.copy(), is_scalar=True)
    return ComplexTracer(found.copy() if z.is_scalar else found)


@provides
def complex_setitem(z: ComplexTracer, key: Any, value: Any) -> None:
    """``z[key] = value``."""
    if type(value) is MaskedRead:
        z.parts[_key(z, key)] = MaskedRead(as_complex(value.full, z.dtype).parts, value.mask)
        return
    value = asarray(value, z.dtype) if type(value) in (list, tuple) else as_complex(value, z.dtype)
    z.parts[_key(z, key)] = value.parts


@provides
def complex_flags(z: ComplexTracer) -> Flags:
    """``z.flags``."""
    like = complex_like(z)
    if like is None:
        return Flags(False, False, z.parts)
    return Flags(like.flags.c_contiguous, like.flags.f_contiguous, z.parts)


def complex_like(z: ComplexTracer) -> np.ndarray[Any, Any] | None:
    """An array of the shape and strides of a traced one, whose elements must not be touched."""
    like = stand_in(z.parts)
    return None if like is None else complex_of(like)


def _is_in_order(z: ComplexTracer, word: str | None) -> bool:
    """As `hjit.trace.ops.layout.in_order`."""
    if word not in ("C", "F"):
        return True
    like = complex_like(z)
    return like is not None and bool(like.flags.c_contiguous if word == "C" else like.flags.f_contiguous)


def _order(z: ComplexTracer, word: Any) -> Order:
    """The order of the axes of a copy."""
    if word in ("F", "A"):
        is_fortran = word == "F" or (_is_in_order(z, "F") and not _is_in_order(z, "C"))
        return tuple(range(z.ndim))[:: -1 if is_fortran else 1]
    return copy_order(z.real, word or "K")


# -- views


@for_complex(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> ComplexTracer:
    z = as_complex(a)
    if z.is_scalar and not axes:
        return z
    order = tuple(reversed(range(z.ndim))) if axes is None else tuple(operator.index(static_value(k)) for k in axes)
    if len(order) != z.ndim:
        raise ValueError("axes don't match array")
    order = tuple(np.lib.array_utils.normalize_axis_index(k, z.ndim) for k in order)
    return ComplexTracer(call(np.transpose, z.parts, (*order, z.ndim)))


@for_complex(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> ComplexTracer:
    z = as_complex(a)
    i, j = (np.lib.array_utils.normalize_axis_index(k, z.ndim) for k in (axis1, axis2))
    return ComplexTracer(call(np.swapaxes, z.parts, i, j))


@for_complex(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> ComplexTracer:
    z = as_complex(a)
    many = shape if isinstance(shape, (tuple, list)) else (shape,)
    wanted = tuple(k if type(k) in (int, Size) else operator.index(static_value(k)) for k in many)
    if z.is_scalar and not wanted:
        return z
    if order == "F" or (order == "A" and _is_in_order(z, "F") and not _is_in_order(z, "C")):
        return transpose(reshape(transpose(z), wanted[::-1], copy=copy))
    try:
        return ComplexTracer(call(np.reshape, z.parts, (*wanted, 2), copy=z.is_scalar or copy))
    except ValueError:
        if copy is False:
            raise
        return refuse(np.reshape, z, wanted)


@provides
def complex_reshape_in_place(z: ComplexTracer, shape: Any) -> None:
    """``z.shape = shape``."""
    z.parts = shape_set(z, z.parts, shape, reshape).parts


@for_complex(np.ravel)
def ravel(a: Any, order: str = "C") -> ComplexTracer:
    z = as_complex(a)
    if order == "K":
        z = transpose(z, order_of("K", (z.real,), z.shape))
    elif order == "F" or (order == "A" and _is_in_order(z, "F")):
        z = transpose(z)
    found = reshape(z, (-1,))
    return found if found.buffer is not z.buffer or _is_in_order(z, "C") else copy_(found)


@for_complex(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> ComplexTracer:
    z = as_complex(a)
    axes = tuple(k for k, n in enumerate(z.shape) if n == 1) if axis is None else axes_of(axis, z.ndim)
    return ComplexTracer(call(np.squeeze, z.parts, axes)) if axes else z


@for_complex(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> ComplexTracer:
    z = as_complex(array)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    try:
        return ComplexTracer(call(np.broadcast_to, z.parts, (*shape, 2)))
    except ValueError:
        return refuse(np.broadcast_to, z, shape)


@for_complex(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    shape = tuple(broadcast(*args).shape)
    arrays = [x if type(x) is ComplexTracer else call(np.asarray, x) for x in args]
    found = [x if tuple(x.shape) == shape else call(np.broadcast_to, x, shape) for x in arrays]
    for x, y in zip(arrays, found, strict=True):
        parts: Any = getattr(y, "parts", y)
        parts.read_only = not x.writeable
    return tuple(found)


@for_complex(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ComplexTracer:
    z = as_complex(a)
    i, j = (np.lib.array_utils.normalize_axis_index(k, z.ndim) for k in (axis1, axis2))
    return ComplexTracer(call(np.moveaxis, call(np.diagonal, z.parts, offset, i, j), -2, -1))


@for_complex(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> ComplexTracer:
    z = as_complex(x)
    axes = tuple(range(z.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, z.ndim)
    found = call(np.lib.stride_tricks.sliding_window_view, z.parts, window_shape, axes, writeable=writeable)
    return ComplexTracer(call(np.moveaxis, found, z.ndim, -1))


@for_complex(np.lib.stride_tricks.as_strided)
def as_strided(
    x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True, **kwargs: Any
) -> ComplexTracer:
    z = as_complex(x)
    sizes = z.shape if shape is None else shape_of(shape)
    steps = z.strides if strides is None else tuple(strides)
    parts = call(np.lib.stride_tricks.as_strided, z.parts, (*sizes, 2), (*steps, z.itemsize // 2), writeable=writeable)
    return ComplexTracer(parts)


# -- new arrays


def _filled(shape: Any, value: Any, dtype: Any, order: str | Order = "C") -> ComplexTracer:
    shape, dtype = shape_of(shape), checked_complex(np.dtype(dtype))
    axes = order if isinstance(order, tuple) else order_of(order, (), shape)
    if count(shape) <= MAX_KNOWN and not any(type(n) is Size for n in shape) and not is_host(value):
        moved = np.full(tuple(shape[k] for k in axes), value, dtype)
        found = known_complex(moved)
        return found if axes == tuple(range(len(shape))) else transpose(found, np.argsort(axes).tolist())
    part = part_dtype(dtype)
    if is_host(value):
        return _expanded(as_complex(value, dtype), shape, axes)
    re, im = scalar_parts(value)
    return pair(Complex(Const(re, part), Const(im, part)), shape, part, axes)


def _expanded(z: ComplexTracer, shape: Shape, order: Order) -> ComplexTracer:
    part = part_dtype(z.dtype)
    return pair(Complex(z.real.load(shape), z.imag.load(shape)), shape, part, order)


def _uninitialised(dtype: np.dtype[Any]) -> Any:
    return current().uninitialised(dtype)


def _maker(value: Callable[[np.dtype[Any]], Any]) -> Callable[..., ComplexTracer]:
    @makes
    def method(shape: Any, dtype: Any = float, order: str = "C", **kwargs: Any) -> ComplexTracer:
        return _filled(shape, value(np.dtype(dtype)), dtype, order)

    return method


for_complex(np.zeros)(_maker(lambda _: 0))
for_complex(np.ones)(_maker(lambda _: 1))
for_complex(np.empty)(_maker(_uninitialised))


def _like(value: Callable[[np.dtype[Any]], Any]) -> Callable[..., Any]:
    @makes
    def method(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kw: Any) -> Any:
        a = complex_operand(a)
        wanted = np.dtype(a.dtype if dtype is None else dtype)
        return _shaped_like(a, value(wanted), wanted, order, shape)

    return method


def _shaped_like(a: Any, value: Any, dtype: Any, order: str, shape: Any) -> Any:
    a = complex_operand(a)
    wanted = np.dtype(a.dtype if dtype is None else dtype)
    if shape is None:
        axes = _order(a, order) if type(a) is ComplexTracer else copy_order(a, order)
    else:
        axes = tuple(range(len(shape_of(shape))))
    shape = shape_of(a.shape if shape is None else shape)
    if wanted.kind == "c":
        return _filled(shape, value, wanted, axes)
    return call(np.transpose, call(np.full, tuple(shape[k] for k in axes), value, wanted), np.argsort(axes).tolist())


for_complex(np.zeros_like)(_like(lambda _: 0))
for_complex(np.ones_like)(_like(lambda _: 1))
for_complex(np.empty_like)(_like(_uninitialised))


@for_complex(np.full)
@makes
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str | Order = "C", **kwargs: Any) -> Any:
    if dtype is not None and not is_complex_dtype(np.dtype(dtype)):
        raise current().error("numpy.full", "the imaginary part of a complex number is left out", "give its .real")
    value = complex_operand(fill_value)
    if not is_array(value):
        return _filled(shape, value, dtype or np.result_type(static_value(value)), order)
    z, shape = as_complex(value, dtype), shape_of(shape)
    return _expanded(z, shape, order if isinstance(order, tuple) else order_of(order, (), shape))


@for_complex(np.full_like)
@makes
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kwargs: Any
) -> Any:
    a = complex_operand(a)
    axes = _order(a, order) if type(a) is ComplexTracer else copy_order(a, order)
    return full(a.shape if shape is None else shape, fill_value, dtype or a.dtype, axes if shape is None else "C")


@for_complex(np.asarray, np.asanyarray, np.asarray_chkfinite)
@makes
def asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    dtype = None if dtype is None else np.dtype(dtype)
    if type(a) in (list, tuple) and has_tracer(a):
        a = _nested(a)
    z = complex_operand(np.asarray(a) if not has_tracer(a) else a)
    if dtype is not None and dtype.kind != "c" and type(z) is ComplexTracer:
        z = astype(z, dtype)
        return z if order is None else call(np.asarray, z, order=order)
    found = as_complex(z, dtype)
    if found.is_scalar:
        found = ComplexTracer(found.parts.copy())
    return found if _is_in_order(found, order) else copy_(found, order)


def _nested(x: Any) -> Any:
    """The array of nested lists of traced arrays and numbers."""
    rows = [_nested(y) if type(y) in (list, tuple) else y for y in x]
    return call(np.stack, [call(np.asarray, y) if not is_array(y) else y for y in rows])


@for_complex(np.ascontiguousarray)
@makes
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    found = asarray(a, dtype, "C")
    return found if found.ndim else found.reshape(1)


@for_complex(np.asfortranarray)
@makes
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    found = asarray(a, dtype, "F")
    return found if found.ndim else found.reshape(1)


@for_complex(np.array)
@makes
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    x = asarray(object, dtype)
    while x.ndim < ndmin:
        x = x[None]
    if type(x) is not ComplexTracer:
        return x
    return copy_(x, order) if copy in (True, np._CopyMode.ALWAYS) or not _is_in_order(x, order) else x


@for_complex(np.copy)
def copy_(a: Any, order: str = "K", subok: bool = False) -> ComplexTracer:
    z = as_complex(a)
    laid = _order(z, order)
    if z.known is not None or laid == tuple(range(z.ndim)):
        return ComplexTracer(z.parts.copy())
    return pair(Complex(z.real.load(), z.imag.load()), z.shape, part_dtype(z.dtype), laid)


def astype(z: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    """`ndarray.astype`, to or from a complex dtype.

    Raises:
        TypeError: `casting` forbids it.
        TraceError: NumPy would warn that it leaves the imaginary part out.
    """
    dtype = np.dtype(dtype)
    if not np.can_cast(z.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {z.dtype!r} to {dtype!r} according to the rule '{casting}'")
    if dtype.kind == "b":
        return as_bool(z)
    if dtype.kind != "c":
        raise current().error(f"astype({dtype})", "the imaginary part of a complex number is left out", "use .real")
    if z.dtype == dtype and order == "K":
        return copy_(z) if copy else z
    made = as_complex(z, dtype)
    return made if order == "K" or _is_in_order(made, order) else copy_(made, order)


@provides
def real_as_complex(x: Tracer, dtype: Any, casting: Any, copy: bool, order: str) -> ComplexTracer:
    """`ndarray.astype` of a real array to a complex dtype."""
    found: ComplexTracer = astype(x, dtype, order, casting, copy=copy)
    return found


@provides
def paired(x: Tracer, dtype: np.dtype[Any]) -> ComplexTracer | None:
    """``x.view(dtype)`` of a real array that has the parts side by side; None where it has not."""
    if not supported_complex(dtype) or part_dtype(dtype) != x.dtype or not x.ndim or not in_order(x, "C"):
        return None
    *most, last = x.shape
    return None if int(last) % 2 else ComplexTracer(call(np.reshape, x, (*most, last // 2, 2)))


# -- arrays put together


@for_complex(np.concatenate)
def concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Casting = "same_kind"
) -> Any:
    many = [complex_operand(x) if is_array(x) or is_complex(x) else as_tracer(x) for x in arrays]
    wanted = np.dtype(dtype) if dtype is not None else np.result_type(*(x.dtype for x in many))
    for x in many:
        if not np.can_cast(x.dtype, wanted, casting):
            raise TypeError(f"Cannot cast array data from {x.dtype!r} to {wanted!r} according to the rule '{casting}'")
    if wanted.kind != "c":
        raise current().error("numpy.concatenate", "complex arrays as real ones")
    if axis is None:
        many, axis = [x.reshape(-1) for x in many], 0
    axis = operator.index(static_value(axis))
    if not fit_together(many, axis):
        return refuse(np.concatenate, many, axis)
    order = joined_order([x.real for x in many])
    parts = [as_complex(x, wanted).parts for x in many]
    made = ComplexTracer(join_in_order(parts, axis % len(order), part_dtype(wanted), (*order, len(order))))
    if out is None:
        return made
    if tuple(out.shape) != tuple(made.shape):
        raise ValueError("Output array is the wrong shape")
    store(out, made)
    return out


def _each_part(function: Any) -> Callable[..., Any]:
    """A function that moves, repeats or adds elements does so to the real and to the imaginary parts."""

    def method(a: Any, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_complex, (*args, *kwargs.values()))):
            raise current().error(f"numpy.{function.__name__}", "another argument is complex")
        z = as_complex(a)
        return joined(call(function, z.real, *args, **kwargs), call(function, z.imag, *args, **kwargs))

    return method


for _function in (np.repeat, np.resize, np.take, np.delete, np.tril, np.triu, np.diff, np.tile):
    for_complex(_function)(_each_part(_function))


@for_complex(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> ComplexTracer:
    z = as_complex(array)
    if not callable(mode) and is_computed(mode, kwargs):
        padded: ComplexTracer = by_numpys_source(z, pad_width, mode, kwargs)
        return padded
    values = np.asarray(kwargs.pop("constant_values", 0) if mode == "constant" else 0)
    made = []
    for part, constant in ((z.real, values.real), (z.imag, values.imag)):
        given = {"constant_values": constant.tolist()} if mode == "constant" else {}
        made.append(call(np.pad, part, pad_width, mode, **given, **kwargs))
    return joined(*made)


@for_complex(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> ComplexTracer:
    z = as_complex(a)
    if axis is None:
        return reshape(roll(ravel(z), shift, 0), z.shape)
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(axis_of(k, z.ndim) for k in many)
    return ComplexTracer(call(np.roll, z.parts, shift, axes if isinstance(axis, (tuple, list)) else axes[0]))


# -- questions


@for_complex(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return True


@for_complex(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return False


@for_complex(np.real)
def real(val: Any) -> Any:
    return part_of(val, "real", as_complex)


@for_complex(np.imag)
def imag(val: Any) -> Any:
    return part_of(val, "imag", as_complex)


@for_complex(np.broadcast)
def broadcast(*args: Any) -> Any:
    return call(np.broadcast, *(as_complex(x).real if is_complex(x) else x for x in args))


@for_complex(np.shape)
def shape_(a: Any) -> Shape:
    return as_complex(a).shape


@for_complex(np.ndim)
def ndim_(a: Any) -> int:
    return as_complex(a).ndim


@for_complex(np.size)
def size_(a: Any, axis: Any = None) -> int:
    z = as_complex(a)
    n: int = 1
    for k in axes_of(axis, z.ndim):
        n = n * z.shape[k]
    return n


@for_complex(np.result_type)
def result_type(*args: Any) -> np.dtype[Any]:
    return np.result_type(*(x.dtype if is_array(x) else static_captured(static_value(x)) for x in args))


@for_complex(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(from_.dtype if is_array(from_) else from_, to, casting)


for _asks in (np.shares_memory, np.may_share_memory):  # these know complex arrays
    for_complex(_asks)(functions()[_asks])


# -- methods


def _reshape(self: ComplexTracer, *shape: Any, order: str = "C", copy: Any = None) -> ComplexTracer:
    return reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(self: ComplexTracer, *axes: Any) -> ComplexTracer:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        return transpose(self, axes[0])
    return transpose(self, axes or None)


def _view(self: ComplexTracer, dtype: Any = None, type: Any = None) -> Any:
    """``z.view(dtype)``: of the parts as they lie side by side, or in an axis of their own."""
    is_class = isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray)
    is_plain = type is None or type is np.ndarray
    if is_plain and (dtype is None or dtype is np.ndarray or (not is_class and np.dtype(dtype) == self.dtype)):
        return self if self.is_scalar else ComplexTracer(self.parts[...])
    if is_plain and not is_class:
        part = self.parts.dtype
        if np.dtype(dtype) == np.dtype((part, (2,))):
            return self.parts
        if np.dtype(dtype) == part and self.ndim and _is_in_order(self, "C"):
            *most, last = self.shape
            return call(np.reshape, self.parts, (*most, last * 2))
    raise current().error(f"ndarray.view({dtype})", "hjit does not trace this view of a complex array")


_METHODS: dict[str, Callable[..., Any]] = {
    "astype": astype,
    "copy": lambda self, order="C": self if self.is_scalar else copy_(self, order),
    "flatten": lambda self, order="C": copy_(ravel(self, order)),
    "reshape": _reshape,
    "transpose": _transpose,
    "view": _view,
    "ravel": ravel,
    "swapaxes": swapaxes,
    "squeeze": squeeze,
    "diagonal": diagonal,
    "repeat": _each_part(np.repeat),
    "take": _each_part(np.take),
}
for _name, _method in _METHODS.items():
    setattr(ComplexTracer, _name, _method)
