"""Python's operators and ndarray's methods on tracers, each handed to the ufunc or function of the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.elementwise import python_ints
from hjit.trace.ops.elementwise.ufuncs import compiled_name, ufunc_call, without_options
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, call, is_tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import HostScalar, is_host, static_captured
from hjit.trace.tracing.scalars.induction import as_traced
from hjit.trace.tracing.scalars.size import Size

BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "matmul": np.matmul,
    "divmod": np.divmod,
}
COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_REAL = frozenset((Tracer, HostScalar, int, float, bool))
_NO_OPTIONS: dict[str, Any] = {}
UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
METHODS = {
    name: getattr(np, name)
    for name in (
        "all any argmax argmin argpartition argsort choose clip cumprod cumsum diagonal dot max mean min nonzero "
        "prod ptp put ravel repeat round searchsorted squeeze std sum swapaxes take trace var"
    ).split()
    if hasattr(np, name)
}


def _unary(f: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        result = f(_number(self))
        if type(self) is Tracer and self.weak:
            result.weak = True
            python_ints.note(f, (_number(self),), result)
        return result

    return method


def _power(a: Any, b: Any) -> Any:
    """``a ** b``: NumPy's operator takes shortcuts for a few Python exponents; the results differ in the last bit."""
    b = static_captured(b)
    if not is_host(b) and type(b) in (int, float) and isinstance(a, np.ndarray) and a.dtype.kind in "fc":
        shortcut = {2: np.square, 1: np.positive, 0.5: np.sqrt, -1: np.reciprocal}.get(b)
        if shortcut is not None:
            return shortcut(a)
    if type(b) is int and b == 2 and isinstance(a, np.ndarray) and a.dtype.kind in "biu":
        return np.square(a)
    if is_host(b) and isinstance(a, np.ndarray) and a.dtype == bool and type(b.value) is int and b == 2:
        return np.square(a)  # whose dtype is another one than that of other powers: the exponent is a condition
    return np.power(a, b)


def _binary(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    of_arrays = _of_arrays(f)

    def method(self: Any, other: Any) -> Any:
        if of_arrays is not None and type(other) in _REAL and type(self) is Tracer and not self.weak:
            return of_arrays(self, other)
        return _as_python(f, self, other) if _takes(other) and not is_list(self, other) else NotImplemented

    def swapped(self: Any, other: Any) -> Any:
        if of_arrays is not None and type(other) in _REAL and type(self) is Tracer and not self.weak:
            return of_arrays(other, self)
        return _as_python(f, other, self) if _takes(other) and not is_list(self, other) else NotImplemented

    def is_list(number: Any, x: Any) -> bool:  # which a number repeats, rather than that it is an array
        if type(x) not in (list, tuple) or type(number) is not Tracer or not number.is_scalar or number.ndim:
            return False
        return number.weak or f is np.multiply

    return method, swapped


def _of_arrays(ufunc: Any) -> Callable[[Any, Any], Any] | None:
    """``ufunc(a, b)``, one of which is a traced array; NumPy, which would ask that what to do, takes longer.

    None: it is no ufunc.
    """
    if type(ufunc) is not np.ufunc:
        return None
    name = compiled_name(ufunc)

    def method(a: Any, b: Any) -> Any:
        if name and type(a) is not HostScalar and type(b) is not HostScalar:
            return without_options(ufunc, name, (a, b))
        return ufunc_call(ufunc, "__call__", (a, b), _NO_OPTIONS)

    return method


def _as_python(f: Callable[..., Any], a: Any, b: Any) -> Any:
    """``f(a, b)``, which is a Python number where both are Python numbers."""
    a, b = as_traced(a), as_traced(b)
    if not (_is_python(a) and _is_python(b)):
        return f(a, b)
    if f not in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        a, b = _number(a), _number(b)
    if f in (np.true_divide, np.floor_divide, np.remainder):
        if is_tracer(b) and b.known is None and current().loops:
            current().check(b == 0)  # of any iteration
        elif b == 0:
            raise ZeroDivisionError("division by zero")
    known = python_ints.of_known(np.power if f is _power else f, a, b)
    if known is not None:
        return known
    python_ints.check_operands(f, a, b)
    result = f(a, b)
    python_ints.note(f, (a, b), result)
    if f is _power:  # Python raises OverflowError or ZeroDivisionError, or gives a complex number
        finite, odd = np.isfinite(a) & np.isfinite(b), ~np.isfinite(result)
        current().check(finite & odd)
    result.weak = True
    return result


def _is_python(x: Any) -> bool:
    """Is this a Python number rather than one of NumPy's?"""
    if type(x) is Tracer:
        return x.weak
    return type(x.value if is_host(x) else x) in (bool, int, float, Size)


def _number(x: Any) -> Any:
    """A computed bool of Python as the int that it is in arithmetic."""
    return x.astype(np.int64) if type(x) is Tracer and x.weak and x.dtype == bool else x


def _takes(x: Any) -> bool:
    return type(x) in _REAL or not isinstance(x, (str, bytes, dict, set, type(None)))


def _in_place(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if type(self) is Tracer:
            if self.is_scalar and not self.shape:
                return _as_python(ufunc, self, other)
            if type(other) in _REAL:
                return ufunc_call(ufunc, "__call__", (self, other), {"out": (self,)})
        return ufunc(self, other, out=self)

    return method


def _in_place_power(self: Any, other: Any) -> Any:
    if type(self) is Tracer and self.is_scalar and not self.shape:
        return self**other
    other = static_captured(other)
    if type(other) in (int, float) and self.dtype.kind == "f":
        shortcut = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal}.get(other)
        if shortcut is not None:
            return shortcut(self, out=self)
    return np.power(self, other, out=self)


def _compare(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    of_arrays = _of_arrays(f)

    def method(self: Any, other: Any) -> Any:
        if of_arrays is not None and type(other) in _REAL and type(self) is Tracer and not self.weak:
            return of_arrays(self, other)
        if type(other) in (list, tuple) and type(self) is Tracer and self.weak:
            return NotImplemented
        if _takes(other):
            result = f(self, other)
            if _is_python(self) and _is_python(other):
                result.weak = True
            return result
        if name in ("eq", "ne"):
            return (
                np.full(self.shape, name == "ne")
                if other is not None
                else call(np.full_like, self, name == "ne", dtype=bool)
            )
        return NotImplemented

    return method


def _method(f: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(f, self, *args, **kwargs)

    return method


def _reshape(self: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return call(np.reshape, self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)


def _transpose(self: Any, *axes: Any) -> Any:
    order = axes
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)) or getattr(axes[0], "ndim", None)):
        (order,) = axes
    return call(np.transpose, self, None if len(axes) == 0 else order)


def _copy(self: Any, order: str = "C") -> Any:
    return self if self.is_scalar else call(np.copy, self, order=order)


def _flatten(self: Any, order: str = "C") -> Any:
    return call(np.copy, call(np.ravel, self, order=order))


def _sort(self: Any, axis: int = -1, kind: Any = None, order: Any = None, stable: Any = None) -> None:
    self[...] = call(np.sort, self, axis=axis, kind=kind, stable=stable)


def _partition(self: Any, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None) -> None:
    self[...] = call(np.partition, self, kth, axis=axis, kind=kind)


def _resize(self: Any, *shape: Any, refcheck: bool = True) -> None:
    raise current().error("ndarray.resize", "an array cannot change its size in place", "use np.resize or reshape")


def _conj(self: Any) -> Any:
    return self


def install() -> None:
    """Give `Tracer` and `MaskedRead` their operators and methods."""
    for cls in (Tracer, MaskedRead):
        for name, ufunc in BINARY.items():
            f, swapped = _binary(_power if name == "pow" else ufunc)
            setattr(cls, f"__{name}__", f)
            setattr(cls, f"__r{name}__", swapped)
            if name != "divmod":
                setattr(cls, f"__i{name}__", _in_place_power if name == "pow" else _in_place(ufunc))
        for name, ufunc in COMPARE.items():
            setattr(cls, f"__{name}__", _compare(name, ufunc))
        for name, ufunc in UNARY.items():
            setattr(cls, f"__{name}__", _unary(ufunc))
        cls.conj = cls.conjugate = _conj  # type: ignore[union-attr]
    for name, function in METHODS.items():
        setattr(Tracer, name, _method(function))
    own = {
        "reshape": _reshape,
        "transpose": _transpose,
        "compress": lambda a, condition, axis=None, out=None: call(np.compress, condition, a, axis, out),
        "copy": _copy,
        "flatten": _flatten,
        "sort": _sort,
        "partition": _partition,
        "resize": _resize,
    }
    for name, method in own.items():
        setattr(Tracer, name, method)


install()
