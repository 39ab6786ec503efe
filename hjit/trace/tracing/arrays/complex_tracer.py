"""Complex arrays: a Graph has real numbers only, so a complex array is a real one with a last axis of 2.

A `ComplexTracer` stands for a complex array in the traced code. Its `parts` are a traced array of the real and the
imaginary parts, side by side as NumPy has them in memory: a complex argument is given to kernels without a copy, and
what they have computed is a complex result without one. What functions do to one is in
`hjit.trace.ops.complex_numbers`, by a table of its own: a function that is not in it never sees a complex array.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.traced import Shape, TracedArray
from hjit.trace.tracing.arrays.tracer import Tracer, from_known, from_source
from hjit.trace.tracing.complex_memory import complex_dtype, complex_of, parts_of, supported_complex
from hjit.trace.tracing.recording.recorder import current, supported_dtype, tracing
from hjit.trace.tracing.scalars.host import is_host, record

Array = np.ndarray[Any, Any]

# -- what is complex


def is_complex(x: Any) -> bool:
    """Is this a complex array or number, traced or not? Of any precision."""
    if type(x) is ComplexTracer:
        return True
    value = x.value if is_host(x) else x
    return isinstance(value, (complex, np.complexfloating)) or (type(value) is np.ndarray and value.dtype.kind == "c")


def is_complex_dtype(x: Any) -> bool:
    """Is this a dtype argument that asks for complex numbers?"""
    if isinstance(x, np.dtype):
        return x.kind == "c"
    if isinstance(x, type):
        return x is complex or issubclass(x, np.complexfloating)
    return type(x) is str and x in ("complex", "complex64", "complex128", "c8", "c16", "F", "D")


def has_complex(x: Any) -> bool:
    """Is something complex in `x`, or in the lists, tuples and dicts it is made of?"""
    t = type(x)
    if t in (list, tuple):
        return any(map(has_complex, x))
    return any(map(has_complex, x.values())) if t is dict else is_complex(x)


# -- traced arrays


class ComplexTracer(TracedArray):
    """A traced complex array.

    Attributes:
        parts: the parts; their last axis has length 2 and no gaps in memory.
        is_scalar: a NumPy scalar rather than a 0-d array.
        is_flat: see `Tracer`.
        weak: a complex number of Python's rather than NumPy's, to which other dtypes do not give way.
    """

    __slots__ = ("is_flat", "is_scalar", "parts", "weak")
    __array_priority__ = 1002.0
    # a method that `hjit.trace.ops.complex_numbers` adds
    astype: Callable[..., Any]

    def __init__(self, parts: Tracer, is_scalar: bool = False) -> None:
        self.parts, self.is_scalar, self.is_flat, self.weak = parts, is_scalar, False, False

    def traced_array(self) -> Tracer:
        raise current().error(
            "complex numbers",
            "hjit does not compile this for complex arrays",
            "compute with .real and .imag, or outside the function",
        )

    # -- attributes
    @property
    def dtype(self) -> np.dtype[Any]:
        whole: np.dtype[Any] = complex_dtype(self.parts.buffer.dtype)
        return whole

    @property
    def shape(self) -> Shape:
        return self.parts.shape[:-1]

    @shape.setter
    def shape(self, shape: Any) -> None:
        forward.complex_reshape_in_place(self, shape)

    @property
    def buffer(self) -> TracedBuffer:
        """The memory of the parts."""
        return self.parts.buffer

    @property
    def writeable(self) -> bool:
        return self.parts.writeable

    @property
    def is_whole(self) -> bool:
        """Does this view show the whole buffer in its own order?"""
        return self.parts.is_whole

    @property
    def known(self) -> Array | None:
        """The contents, where they are known."""
        parts = self.parts.known
        return None if parts is None else complex_of(parts)

    @property
    def real(self) -> Tracer:
        return self._part(0)

    @real.setter
    def real(self, value: Any) -> None:
        forward.write(self._part(0, True), value)

    @property
    def imag(self) -> Tracer:
        return self._part(1)

    @imag.setter
    def imag(self, value: Any) -> None:
        forward.write(self._part(1, True), value)

    def _part(self, k: int, as_view: bool = False) -> Tracer:
        """The real or the imaginary parts, a view; of a scalar a scalar."""
        found: Tracer = self.parts[(..., k)]
        if self.is_scalar and not as_view:
            found = found[()]
            found.weak = self.weak
        return found

    @property
    def strides(self) -> tuple[int, ...]:
        return self.parts.strides[:-1]

    @property
    def flags(self) -> Any:
        return forward.complex_flags(self)

    @property
    def flat(self) -> ComplexTracer:
        found = self.reshape(-1)
        if found.buffer is not self.buffer:
            raise current().error("ndarray.flat", "the array is not in C order", "use .ravel()")
        found.is_flat = True
        return found

    def item(self, *at: Any) -> Any:
        one = self if not at else self[at[0] if len(at) == 1 else at]
        if one.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return one._number()

    def _number(self) -> complex:
        """The number of one element, decided now where it is not known."""
        one = self.parts.reshape(2)
        return complex(one[0].item(), one[1].item())

    # -- protocols of NumPy and Python

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        if self.known is not None:
            return np.array(self.known, dtype)
        raise forward.asks_for_numbers(sys._getframe(1))

    def __bool__(self) -> bool:
        return bool(forward.complex_truth(self))

    def __complex__(self) -> complex:
        if self.ndim:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return self._number()

    def __getitem__(self, key: Any) -> Any:
        found = forward.complex_getitem(self, key)
        return found.copy() if self.is_flat and type(found) is ComplexTracer and not found.is_scalar else found

    def __setitem__(self, key: Any, value: Any) -> None:
        forward.complex_setitem(self, key, value)

    def fill(self, value: Any) -> None:
        self[...] = value

    def __repr__(self) -> str:
        if self.known is not None:
            return repr(self.known[()] if self.is_scalar else self.known)
        if not tracing():
            return f"<traced {self.dtype} array of shape {tuple(map(int, self.shape))}>"
        raise current().error(
            "repr() of an array", "its numbers are not known while it is traced", "print it outside the function"
        )

    __str__ = __repr__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.parts.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and hasattr(np.ndarray, name):
            raise current().error(f"ndarray.{name}", "hjit does not trace this attribute of complex arrays")
        raise AttributeError(f"'numpy.ndarray' object has no attribute '{name}'")


# -- making them


def known_complex(array: Any, is_scalar: bool = False) -> ComplexTracer:
    """A new array with known contents, which the tracer owns."""
    array = np.asarray(array, order="C")
    checked_complex(array.dtype)
    return ComplexTracer(from_known(parts_of(array)), is_scalar)


def checked_complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype, if hjit handles arrays of it."""
    if not supported_complex(dtype):
        raise current().error(f"array of dtype {dtype}", "hjit handles complex numbers of up to 128 bits")
    return dtype


def complex_source(array: Array, name: str, where: tuple[Any, ...]) -> ComplexTracer:
    """A view of a complex array that every call brings anew."""
    found = from_source(parts_of(array), name, where)
    current().inputs[found.buffer.argument].is_complex = True
    return ComplexTracer(found)


def any_source(array: Array, name: str, where: tuple[Any, ...]) -> Any:
    """A view of an array that every call brings anew, complex or not."""
    return (complex_source if supported_complex(array.dtype) else from_source)(array, name, where)


def any_known(array: Any, is_scalar: bool = False) -> Any:
    """A new array with known contents, complex or not."""
    array = np.asarray(array)
    return (from_known if supported_dtype(array.dtype) else known_complex)(array, is_scalar)


def scalar_parts(x: Any) -> tuple[Any, Any]:
    """The parts of a number, which may be the caller's."""
    if is_host(x):
        return record(operator.attrgetter("real"), x), record(operator.attrgetter("imag"), x)
    return x.real, x.imag
