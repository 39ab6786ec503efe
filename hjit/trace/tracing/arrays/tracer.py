"""`Tracer`: stands for a NumPy array while the user's function runs.

A tracer is a view (one index polynomial per axis) of a versioned `TracedBuffer`. Reading loads from the buffer's
present version; writing makes a new version, which every view of the buffer sees from then on. Small arrays whose
contents are known (literals, ``np.arange(5)``) carry them along in a real array, and are computed by NumPy itself.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, cast
from hjit.trace.ir.graph import Definition, compose, identity
from hjit.trace.ir.poly import ZERO, Dim, Poly, poly
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer, serials
from hjit.trace.tracing.arrays.traced import Shape, Traced, TracedArray
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import reads
from hjit.trace.tracing.recording.decisions import decide
from hjit.trace.tracing.recording.recorder import current, rerolled_loops, running_trace, supported_dtype, tracing
from hjit.trace.tracing.scalars.host import Conversion, as_array, as_item, dtype_of, is_host, known_number, number
from hjit.trace.tracing.scalars.induction import LoopNumber, as_traced
from hjit.trace.tracing.scalars.size import Size, whole_size
from hjit.trace.tracing.writeable import is_writeable

MAX_KNOWN = 4096  # elements up to which arrays made of known numbers are computed while tracing


class Tracer(TracedArray):
    """A traced array, with the interface of `numpy.ndarray` as far as hjit can compile it.

    Attributes:
        buffer: the memory that it is a view of.
        shape: a tuple of ints, those above 16 as `Size`.
        index: an index over ``Dim(0..ndim - 1)`` for each axis of the buffer.
        known: the same view of the buffer's known contents, or None.
        is_ordered: is it known that strides descend along the axes, as in C order and slices of it?
        is_scalar: is it a NumPy scalar rather than a 0-d array?
        is_whole: does this view show the whole buffer in its own order?
        weak: is it a Python number rather than a NumPy scalar? Arrays then determine the dtype of results (NEP 50).
        read_only: is the view read-only in NumPy, even if its buffer is writeable?
        is_flat: is it an array's ``flat``, whose slices are copies in NumPy?
    """

    buffer: TracedBuffer
    is_whole: bool
    __slots__ = (
        "_known", "_shape", "buffer", "index", "is_flat", "is_ordered", "is_scalar", "is_whole", "read_only", "weak",
    )  # fmt: skip
    __array_priority__ = 1000.0

    def __init__(
        self,
        buffer: TracedBuffer,
        shape: Shape,
        index: tuple[Poly, ...],
        known: np.ndarray[Any, Any] | None = None,
        is_scalar: bool = False,
        read_only: bool = False,
    ) -> None:
        self.buffer, self._shape, self.index, self._known, self.is_scalar = buffer, shape, index, known, is_scalar
        self.weak, self.read_only, self.is_flat = False, read_only, False
        ndim = len(shape)
        self.is_whole = index is identity(ndim) and ndim == len(buffer.shape)
        self.is_ordered = self.is_whole and buffer.strides is None

    # -- attributes
    def become(self, other: Tracer) -> None:
        """Be the same view of the same memory as another one from now on."""
        self.buffer, self._shape, self.index, self._known = other.buffer, other._shape, other.index, other._known
        self.is_whole, self.is_ordered = other.is_whole, other.is_ordered

    def _reshape(self, shape: Any) -> None:
        forward.reshape_in_place(self, shape)

    shape: Shape = property(operator.attrgetter("_shape"), _reshape)  # type: ignore[assignment]

    @property
    def writeable(self) -> bool:
        return self.buffer.writeable and not self.read_only

    @property
    def dtype(self) -> np.dtype[Any]:
        frame = sys._getframe(1)
        if type(frame.f_globals) is not dict:
            seen: np.dtype[Any] = forward.dtype_of_type(self.buffer.dtype, frame)
            return seen
        return self.buffer.dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        if any(self is x for x in current().caller.tracers):
            raise current().error(
                "ndarray.dtype = ...", "it changes an array that outlives the function", "use .view()"
            )
        self.become(self.view(dtype))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For code that reads it; NumPy itself is to go on to `__array__`."""
        frame = sys._getframe(1)
        if frame.f_lasti not in reads(frame.f_code, "__array_interface__"):
            raise AttributeError("__array_interface__")
        found: dict[str, Any] = forward.interface(self)
        return found

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The contents, where they are known; not in a re-rolled loop whose iterations overwrite them."""
        buffer = self.buffer
        if buffer.contents is None:
            return None
        loops = rerolled_loops()
        if any(loop.is_overwriting and buffer.serial < loop.serial for loop in loops):
            return None
        if loops:
            buffer.last_read = next(serials)
        return self._known

    @property
    def real(self) -> Tracer:
        return self

    @property
    def imag(self) -> Tracer:
        zeros: Tracer = call(np.zeros_like, self)
        zeros.buffer.writeable = False
        zeros.is_scalar, zeros.weak = self.is_scalar, self.weak
        return zeros

    @property
    def flat(self) -> Tracer:
        found: Tracer = forward.flat(self)
        found.is_flat = True
        return found

    @flat.setter
    def flat(self, values: Any) -> None:
        call(np.put, self, call(np.arange, self.size), values)

    @property
    def flags(self) -> Any:
        return forward.flags(self)

    @property
    def strides(self) -> tuple[int, ...]:
        found: tuple[int, ...] | None = forward.strides(self)
        if found is None:
            raise current().error(
                "ndarray.strides", "the strides of this view are not known while tracing", "use .shape"
            )
        return found

    @property
    def axes(self) -> tuple[int, ...] | None:
        """Where this view shows the whole buffer, its axes in the order in which they are the buffer's; else None."""
        if self.is_whole:
            return tuple(range(len(self.shape)))
        found = tuple(k for p in self.index if (k := _dim_of(p)) is not None)
        if len(set(found)) != len(self.shape) or len(self.index) != len(self.shape):
            return None
        return found if tuple(self.shape[k] for k in found) == tuple(self.buffer.shape) else None

    # -- reading
    def traced_array(self) -> Tracer:
        return self

    def at(self, index: Sequence[Poly]) -> Load:
        """The element at `index`, one polynomial per axis of this view."""
        buffer, here = self.buffer, identity(len(self._shape))
        if self.is_whole:
            return buffer.element() if index is here else Load(buffer.source(), tuple(index), buffer.dtype)
        if index is here or tuple(index) == here:
            return Load(buffer.source(), self.index, buffer.dtype)
        return Load(buffer.source(), compose(self.index, index), buffer.dtype)

    def load(self, shape: Shape | None = None) -> Expr:
        """The element at the iteration dimensions of a result of `shape`, this array being broadcast to it."""
        known, own = self.known, self._shape
        if known is not None and known.size == 1 and not self.buffer.of_sizes:
            return Const(known.reshape(())[()], self.buffer.dtype)
        if shape is None or shape is own or (len(shape) == len(own) and shape == own):
            return self.at(identity(len(own)))
        lead, here = len(shape) - len(own), identity(len(shape))
        return self.at([ZERO if n == 1 and shape[k] != 1 else here[k] for k, n in enumerate(own, lead)])

    def element(self, shape: Shape, dtype: np.dtype[Any]) -> Expr:
        """As `load`, cast to a dtype."""
        is_plain = shape is self._shape and self.buffer.contents is None and self.is_whole
        e = self.buffer.element() if is_plain else self.load(shape)
        return e if e.dtype is dtype else cast(e, dtype)

    def item(self, *at: Any) -> Any:
        at = at[0] if len(at) == 1 and isinstance(at[0], tuple) else at
        one = self if not at else self[at] if len(at) == self.ndim else self.flat[at]
        if one.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        if one.dtype.kind == "f":
            return python_float(one)
        if one.dtype.kind in "iu" and one.known is None and computes_ints():
            return python_int(one)
        return as_value(one).item()

    # -- protocols of NumPy

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if self.known is not None:
            return np.array(self.known, dtype)
        forward.notice_call(sys._getframe(1))
        if not self.ndim:
            return np.array(as_value(self), dtype)
        raise forward.asks_for_numbers(sys._getframe(1))

    # -- Python protocols

    def __bool__(self) -> bool:
        if self.size != 1:
            if self.size == 0:
                raise ValueError(
                    "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array "
                    "is not empty."
                )
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        truth: Tracer = self if self.dtype == bool else call(np.not_equal, self, 0)
        if truth.known is None and (loops := current().loops):
            return bool(loops[-1].branch(truth))
        assumed: bool | None = forward.outcome_assumed(sys._getframe(1), truth) if truth.known is None else None
        if assumed is not None:
            return assumed
        return bool(as_value(truth))  # not the number, which may be another one at every call

    def _scalar(self) -> Any:
        """What a conversion to a Python number converts."""
        if self.ndim:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return as_value(self)

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        if self.known is None:
            forward.notice_call(sys._getframe(1))  # np.float64 asks for a float, not for an array
        return float(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(as_value(self))

    def __round__(self, n: int | None = None) -> Any:
        if not (self.weak or (self.is_scalar and self.dtype != bool)):
            kind = "bool" if self.is_scalar else "ndarray"
            raise TypeError(f"type numpy.{kind} doesn't define __round__ method")
        if n is None or self.weak:
            return round(self._scalar().item(), n)
        return call(np.round, self, n)

    def __contains__(self, x: Any) -> bool:
        if self.is_scalar:
            kind = python_type(self).__name__ if self.weak else f"numpy.{self.dtype.type.__name__}"
            raise TypeError(f"argument of type '{kind}' is not iterable")
        return bool(call(np.any, self == x))

    def __repr__(self) -> str:
        return (
            repr(self._shown("repr"))
            if tracing()
            else f"<traced {self.dtype} array of shape {tuple(map(int, self.shape))}>"
        )

    def __str__(self) -> str:
        return str(self._shown("str")) if tracing() else repr(self)

    def __format__(self, spec: str) -> str:
        return format(self._shown("format"), spec)

    def _shown(self, how: str) -> Any:
        """What is printed: known, or a number that is decided on."""
        if self.known is None and self.size != 1:
            raise current().error(
                f"{how}() of an array", "its numbers are not known while it is traced", "print it outside the function"
            )
        value = self.known if self.known is not None else np.full(self.shape, as_value(self))
        return value.item() if self.weak else value[()] if self.is_scalar else value

    def __getitem__(self, key: Any) -> Any:
        found = forward.getitem(self, key)
        return found.copy() if self.is_flat and is_tracer(found) and not found.is_scalar else found

    def __setitem__(self, key: Any, value: Any) -> None:
        forward.setitem(self, key, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise current().error(
            "pickling an array",
            "a traced array has no numbers to store or to send to another process",
            "do that with the result",
        )

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and hasattr(np.ndarray, name):
            reason = "a traced array has no memory" if name in _OF_MEMORY else "hjit does not trace this attribute"
            raise current().error(
                f"ndarray.{name}", reason, "use it before or after the decorated function" if name in _OF_MEMORY else ""
            )
        raise AttributeError(f"'numpy.ndarray' object has no attribute '{name}'")

    # -- views that need no table
    def view(self, dtype: Any = None, type: Any = None) -> Tracer:
        if isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray):
            dtype, type = None, dtype
        if type not in (None, np.ndarray):
            reason = "a subclass of ndarray may compute in its own way"
            raise current().error(f"ndarray.view({type.__name__})", reason, "compute with the array itself")
        found: Tracer = forward.reinterpreted(self, self.dtype if dtype is None else np.dtype(dtype))
        return found

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tracer:
        found: Tracer = forward.astype(self, dtype, casting, copy, order)
        return found

    def fill(self, value: Any) -> None:
        forward.check_nesting(value, 0, is_element=True)
        forward.write(self, value, how=as_item)


_OF_MEMORY = frozenset("ctypes data dump dumps tobytes tofile setflags byteswap".split())


def _dim_of(p: Poly) -> int | None:
    """The dimension that an index is, if it is nothing else."""
    (m, c), *more = p.terms.items() if p.terms else [((), 0)]
    return m[0].k if c == 1 and not more and p.const == 0 and len(m) == 1 and isinstance(m[0], Dim) else None


def is_tracer(x: Any) -> bool:
    """`isinstance` cannot ask: a tracer answers that it is an ndarray."""
    return type(x) is Tracer


def has_tracer(x: Any, sizes: bool = True) -> bool:
    """Is a tracer or a host scalar in `x`, or in the lists, tuples and dicts it is made of?

    Args:
        sizes: do numbers that are computed of sizes alone count?
    """
    t = type(x)
    if issubclass(t, Traced):
        return True
    if is_host(x):
        return sizes or not x.of_sizes
    if t in (list, tuple):
        return any(has_tracer(y, sizes) for y in x)
    if t is dict:
        return any(has_tracer(y, sizes) for y in x.values())
    return False


_SIMPLE = frozenset((Tracer, bool, int, float, type(None)))


def is_simple_call(args: Any, kwargs: Any) -> bool:
    """Are the arguments of a call traced real arrays, and numbers? Then nothing needs to be looked for in them."""
    kinds = set(map(type, args))
    if kwargs:
        kinds.update(map(type, kwargs.values()))
    return Tracer in kinds and kinds <= _SIMPLE


# -- making tracers


def from_stage(
    value: Expr | None,
    shape: Shape,
    dtype: Any,
    updates: tuple[Definition, ...] = (),
    name: str = "",
    is_scalar: bool = False,
    reserved: str = "",
) -> Tracer:
    """A new array, defined for every index by `value` over ``Dim(0..)`` and then by `updates`."""
    rec = current()
    stage = rec.stage(value, shape, dtype, updates, name, reserved)
    return Tracer(TracedBuffer(shape, stage.dtype, stage.name), shape, identity(len(shape)), is_scalar=is_scalar)


@provides
def index_value(p: Poly) -> Tracer:
    """An index as a Python int."""
    found = from_stage(Index(p), (), np.int64, is_scalar=True)
    found.weak = True
    return found


def size_number(n: int, dtype: Any) -> Tracer:
    """A size as a number of the Graph, so that another size needs no new kernel."""
    return from_stage(cast(Index(current().poly(n)), dtype), (), dtype, is_scalar=True)


def from_known(array: Any, is_scalar: bool = False, of: Any = ()) -> Tracer:
    """A new array with known contents, which the tracer owns; computed `of` these numbers and arrays."""
    array = np.asarray(array)
    checked_dtype(array.dtype)
    buffer = TracedBuffer(array.shape, array.dtype, "", contents=array)
    buffer.of_sizes = made_of_sizes(of)
    if array.size and array.ndim and (trace := running_trace()) is not None and trace.records_program:
        buffer.version = trace.known_array(array, buffer.of_sizes)  # each iteration makes it anew
    return Tracer(buffer, array.shape, identity(array.ndim), array, is_scalar)


def as_new_array(x: Tracer) -> Tracer:
    """A NumPy scalar as a 0-d array, which may be written to as the scalar may not; an array as it is."""
    if not x.is_scalar:
        return x
    return from_stage(x.load(), (), x.dtype) if x.known is None else from_known(x.known.copy(), of=x)


def made_of_sizes(x: Any) -> bool:
    """Is there a size, or what is computed of sizes and known, in `x`, or in the lists and tuples it is made of?"""
    if type(x) in (list, tuple):
        return any(map(made_of_sizes, x))
    if type(x) is Tracer:
        return x.buffer.of_sizes
    return type(x) is Size or (is_host(x) and x.of_sizes)


def checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype, if hjit handles arrays of it."""
    if not supported_dtype(dtype):
        raise current().error(f"array of dtype {dtype}", "hjit handles bool, integers and floats up to 64 bits")
    return dtype


def from_source(array: np.ndarray[Any, Any], name: str, where: tuple[Any, ...]) -> Tracer:
    """A view of an array that every call brings anew."""
    rec = current()
    source = rec.input(name, array, where)
    shape = tuple(rec.size(p) for p in source.input.shape)
    strides = None if array.flags.c_contiguous else array.strides
    buffer = TracedBuffer(
        shape,
        array.dtype,
        source.input.name,
        argument=source.input.name,
        strides=strides,
        writeable=is_writeable(array),
    )
    tracer = Tracer(buffer, shape, identity(array.ndim))
    rec.caller.tracers.append(tracer)
    return tracer


def as_size(x: Any) -> Any:
    """A whole number that follows from sizes and is known, as a size; all else as it is."""
    if type(x) is Tracer and x.dtype.kind in "iu":
        return int_of_sizes(x)
    return whole_size(x) if is_host(x) and x.of_sizes and isinstance(x.value, (int, np.integer)) else x


def int_of_sizes(x: Tracer) -> Any:
    """``int(x)`` of a number that follows from sizes and is known, as a size; any other array as it is."""
    if not x.buffer.of_sizes or x.size != 1 or x.known is None:
        return x
    rec = current()
    return rec.size(rec.poly(int(x.known.reshape(())[()])))


def as_tracer(x: Any, dtype: Any = None) -> Tracer:
    """What `numpy.asarray` makes of `x`: an array, a number, or nested lists of them, traced or not."""
    if issubclass(type(x), Traced):
        array: Tracer = x.traced_array()
        return array if dtype is None or array.dtype == np.dtype(dtype) else array.astype(dtype)
    given = x
    if type(x) in (list, tuple) and not has_tracer(x, sizes=False):
        x = known_number(x)
    if is_host(x):
        rec = current()
        dtype = checked_dtype(dtype_of(x) if dtype is None else np.dtype(dtype))
        return from_stage(rec.scalar(number(x, dtype, as_array), dtype), (), dtype)
    if issubclass(type(x), LoopNumber):
        found: Tracer = x.traced()
        return found if dtype is None else found.astype(dtype)
    if type(x) in (list, tuple) and has_tracer(x):
        rows = [as_tracer(row) if dtype is None else stored(row, np.dtype(dtype), as_item) for row in x]
        stacked: Tracer = call(np.stack, rows)
        if not stacked.is_whole and stacked.known is None:  # in the order of the rows
            stacked = call(np.copy, stacked, order="C")
        return stacked if dtype is None else stacked.astype(dtype)
    if isinstance(x, np.ndarray) and type(x) not in (np.ndarray, np.memmap):  # a matrix that a call has returned
        reason = "a subclass of ndarray may compute in its own way"
        raise current().error(f"{type(x).__module__}.{type(x).__name__}", reason, "use np.asarray(x) of it")
    return from_known(np.array(x, dtype), of=given)


def stored(x: Any, dtype: np.dtype[Any], how: Conversion = as_array) -> Tracer:
    """What is to be stored into an array of `dtype`: numbers already have it, the elements of an array are cast later.

    Raises:
        OverflowError, ValueError: NumPy refuses to store a number, now or at a later call.
    """
    x = as_traced(x)
    if is_tracer(x):
        if x.is_scalar and how is as_item and not x.weak:
            forward.check_item(x, dtype)
        return _fitting(x, dtype) if x.weak and dtype.kind in "iu" else x
    if type(x) in (list, tuple):
        return as_tracer(x, dtype)
    if isinstance(x, np.ndarray):
        return as_tracer(x)
    value = number(x, dtype, how)
    return (
        from_stage(current().scalar(value, dtype), (), dtype) if is_host(value) else from_known(value, is_scalar=True)
    )


def _fitting(x: Tracer, dtype: np.dtype[Any]) -> Tracer:
    """A computed Python number that an integer dtype holds without its fraction; whether it does is a decision."""
    if x.dtype == dtype or x.dtype.kind == "b":
        return x
    info = np.iinfo(dtype)
    whole = call(np.trunc, x)
    fits = (whole >= float(info.min)) & (whole < float(info.max) + 1)
    if current().loops and fits.known is None:
        current().check(~fits)  # of any iteration
    elif not bool(fits):
        as_item(as_value(x).item(), dtype)
    return x


def python_float(t: Tracer) -> Any:
    """``float(t)`` of a one-element array, without its value."""
    if t.known is not None:
        return float(t.known.reshape(())[()])
    return _python_number(t, np.float64)


def python_bool(t: Tracer) -> Any:
    """A bool of NumPy's as one of Python's, without its value."""
    return bool(t.known.reshape(())[()]) if t.known is not None else _python_number(t, np.bool_)


def python_number(t: Tracer) -> Any:
    """A scalar as a number of Python, without its value."""
    return {"b": python_bool, "f": python_float}.get(t.dtype.kind, python_int)(t)


def computes_ints() -> bool:
    """Is an int of Python that is made now of a computed number computed at every call, rather than decided on?"""
    rec = current()
    if rec.loops:
        return True
    computes = rec.options.postpone is None and not rec.attempt.decides_ints
    rec.findings.computes_ints = rec.findings.computes_ints or computes
    return computes


def python_int(t: Tracer) -> Any:
    """``int(t)`` of a whole number without its value."""
    if t.known is not None:
        return int(t.known.reshape(())[()])
    if t.dtype == np.uint64 and (found := current().range_of(t.load())) is not None and found[1] >= 2**63:
        current().check(t.reshape(()) >= np.uint64(2**63))
    return _python_number(t, np.int64)


def _python_number(t: Tracer, dtype: Any) -> Tracer:
    """A one-element array as a Python number."""
    one = t.reshape(()).astype(dtype)
    result = Tracer(one.buffer, (), one.index, is_scalar=True)
    result.weak = True
    return result


def python_type(t: Tracer) -> type:
    """The type of the Python number that a `weak` one is."""
    return float if t.dtype.kind == "f" else bool if t.dtype.kind == "b" else int


def as_value(t: Tracer) -> Any:
    """The number of a one-element array: known, or decided now and guarded."""
    if t.known is not None:
        return t.known.reshape(())[()]
    return decide(current(), stage_of(t))


def stage_of(t: Tracer) -> str:
    """A stage without axes, for a one-element array."""
    return from_stage(t.at((poly(0),) * t.ndim), (), t.dtype, name="decision").buffer.version


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A NumPy function on tracers."""
    return forward.numpy_call(function, args, kwargs)
