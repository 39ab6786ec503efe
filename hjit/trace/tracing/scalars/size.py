"""`Size`: a whole number that remembers how it was computed from the sizes of the arguments.

Tracing runs with real numbers, so Python code that branches on sizes just works; the polynomial beside the
number lets one compiled kernel serve other sizes. In arithmetic that is not of whole numbers (``h / w``, ``h * 0.5``,
``np.sqrt(h)``) it becomes a `HostScalar`; an int of that (``int(h * 0.5)``) is a `Size` again, whose polynomial is a
run-time parameter of its own.

It answers that it is an int, but is no subclass of it: a Python float would compute with its number alone.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hjit.trace.ir.poly import SMALL, ZERO, Poly, poly
from hjit.trace.tracing import forward
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.scalars.host import HostScalar, is_captured, is_host

MAX_POWER = 3  # of a size that is a polynomial

if TYPE_CHECKING:
    Int = int  # as which a size is used
else:
    Int = object


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """An assumption of a trace about sizes: the outcome of ``a op b``.

    Attributes:
        op: a comparison, as "lt"; "is" where a small number has taken the place of `a`.
    """

    op: str
    a: Poly
    b: Poly
    holds: bool


class Size(Int):
    """An integer with its polynomial; small ones are plain ints, constants of the kernel."""

    __slots__ = ("poly", "value")
    poly: Poly
    value: int

    def __new__(cls, value: int, p: Poly) -> Any:
        value = int(value)
        if -SMALL <= value <= SMALL or p.is_const:
            if _watchers and not p.is_const:
                _note("is", p, poly(value), True)
            return value
        self = super().__new__(cls)
        self.value, self.poly = value, p
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance(n, int) in the user's code, and in NumPy's
        return int

    def __index__(self) -> int:
        return self.value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __bool__(self) -> bool:
        if _watchers:
            _note("ne", self.poly, ZERO, True)  # a `Size` is never 0
        return True

    def __hash__(self) -> int:
        if _watchers:
            _note("eq", self.poly, poly(self.value), True)  # it is looked up: of another number something else is found
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.value,)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.array(self.value, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return forward.ufunc_of_sizes(ufunc, method, inputs, kwargs)

    # -- arithmetic that the polynomial survives; see also below
    def __neg__(self) -> Any:
        return Size(-self.value, -self.poly)

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __invert__(self) -> Any:
        return -self - 1

    def __pos__(self) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __round__(self, n: Any = None) -> Any:
        return self if n is None or n >= 0 else round(self.value, n)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if modulo is not None:
            return pow(self.value, other, modulo)
        if type(other) is int and 0 < other <= MAX_POWER:
            return self if other == 1 else self * self ** (other - 1)
        return POWER(self, other)

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other) if type(other) is int and 0 <= other <= SMALL else self.value << other

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other) if type(other) is int and 0 <= other <= SMALL else self.value >> other

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self


def size_poly(n: int) -> Poly:
    """The polynomial of a `Size`, or the constant."""
    return n.poly if type(n) is Size else poly(int(n))


# -- sizes as numbers


@provides
def as_number(x: Any) -> Any:
    """A `Size` as a number of the trace that this thread runs, or as a plain int where it runs none; all else as it
    is."""
    if type(x) is not Size:
        return x
    trace = forward.running_trace()
    return x.value if trace is None else HostScalar.of_size(trace.tape, x)


@provides
def whole_size(x: HostScalar) -> int:
    """An int that is computed of sizes, as a `Size` with a run-time parameter of its own; a plain int where it is
    small. Exported code serves no sizes for which it is another one."""
    found: int = forward.running_trace().symbol(f"n{x.k}", x.make_static())
    return found


_NUMBERS = (int, bool, float, complex, Size)


def _of_numbers(f: Callable[[Any, Any], Any], swap: bool = False) -> Callable[[Size, Any], Any]:
    """An operation that the polynomial does not survive, on the size as a number."""

    def method(self: Size, other: Any) -> Any:
        if type(other) in _NUMBERS or isinstance(other, np.generic) or is_host(other):
            a, b = as_number(self), as_number(other)
            return f(b, a) if swap else f(a, b)
        if hasattr(type(other), "__array_ufunc__") and type(other) is not np.ndarray:
            return NotImplemented  # a traced array, which takes the size as it is
        return f(other, self.value) if swap else f(self.value, other)

    return method


POWER = _of_numbers(operator.pow)


def _of_sizes(f: Callable[[Any, Any], Any], swap: bool = False) -> Callable[[Size, Any], Any]:
    """An operation that the polynomial survives where the other number is a whole one."""
    of_numbers = _of_numbers(f, swap)

    def method(self: Size, other: Any) -> Any:
        if type(other) not in (int, Size):
            if is_captured(other):
                return method(self, other.make_static())
            return of_numbers(self, other)
        a, b = (other, self) if swap else (self, other)
        value = f(int(a), int(b))
        if f in (operator.floordiv, operator.mod) and b <= 0:
            return value
        return Size(value, f(size_poly(a), size_poly(b)))

    return method


def _comparison(op: str) -> Callable[[Size, Any], Any]:
    compare = getattr(operator, op)

    def method(self: Size, other: Any) -> Any:
        if type(other) is int:
            found = compare(self.value, other)
            if _watchers:
                _note(op, self.poly, poly(other), found)
        elif type(other) is Size:
            found = compare(self.value, other.value)
            if _watchers:
                _note(op, self.poly, other.poly, found)
        elif type(other) in (bool, float, complex):
            found = compare(as_number(self) if _watchers else self.value, other)
        else:
            return NotImplemented
        return found

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Size, f"__{_name}__", _of_sizes(getattr(operator, _name)))
    setattr(Size, f"__r{_name}__", _of_sizes(getattr(operator, _name), swap=True))
for _name in ("truediv", "and_", "or_", "xor"):
    setattr(Size, f"__{_name.rstrip('_')}__", _of_numbers(getattr(operator, _name)))
    setattr(Size, f"__r{_name.rstrip('_')}__", _of_numbers(getattr(operator, _name), swap=True))
for _name in ("pow", "lshift", "rshift"):
    setattr(Size, f"__r{_name}__", _of_numbers(getattr(operator, _name), swap=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Size, f"__{_name}__", _comparison(_name))


# -- what a trace takes for granted of sizes

_watchers = 0  # traces that note size_guards, in all threads
_lock = threading.RLock()
_watching = threading.local()  # `size_guards` of the trace that this thread runs, where somebody wants them


def _note(op: str, a: Poly, b: Poly, holds: bool) -> None:
    size_guards: dict[SizeGuard, None] | None = getattr(_watching, "size_guards", None)
    if size_guards is not None and not (a - b).is_const:
        size_guards[SizeGuard(op, a, b, holds)] = None


@contextlib.contextmanager
def size_guards_noted() -> Iterator[dict[SizeGuard, None]]:
    """A block in which traces of this thread record their assumptions about sizes."""
    global _watchers
    outer = getattr(_watching, "size_guards", None)
    size_guards: dict[SizeGuard, None] = {}
    is_watching = False
    try:
        with _lock:
            _watchers, is_watching = _watchers + 1, True
        _watching.size_guards = size_guards
        yield size_guards
    finally:
        _watching.size_guards = outer
        with _lock:
            _watchers -= is_watching


def after_fork() -> None:
    """Renew the lock, which another thread of the parent may have held."""
    global _lock
    _lock = threading.RLock()
