"""Scalars of the caller and values that the function captures: read at every call, never frozen.

A `HostScalar` stands for a Python or NumPy number that may differ from call to call. Arithmetic between such
numbers is recorded on a tape that Python itself replays at each call, so it has Python's own semantics,
exceptions included. Where the code needs the value (``if``, ``range``, ``int()``) it becomes *static*: a guard
compares it at later calls, and a change traces anew.

A size in arithmetic that is not of whole numbers (``h / w``, ``0.1 * h``, ``np.float32(w)``) is such a scalar, too: the
shapes of the arguments give its value. It is the same for all calls that a trace serves, but not for all that share
the kernel.

A number in a closure, a default or a `functools.partial` is such a scalar as well, so that the functions that a factory
makes share their kernels. Mostly it is a setting, though, and code may be faster for knowing it: it stays a parameter
in arithmetic that gains nothing by its value, and is static elsewhere.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any, Protocol

import numpy as np

from hjit.errors import raise_if_signalled
from hjit.trace.tracing import forward


@dataclass(slots=True)
class ScalarTape:
    """Host computations: entry k is a leaf of the arguments, or a function of earlier entries and constants.

    Attributes:
        sizes: the scalars that sizes are, by polynomial.
        of_sizes: the values of entries that sizes alone give.
        may_warn: may NumPy warn of a division by zero and the like?
        recorded: what `record` has recorded: the same is computed once, and is one scalar of a kernel.
    """

    ops: list[tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    guards: list[tuple[int, Any]] = field(default_factory=list)
    converted: dict[tuple[Any, ...], HostScalar] = field(default_factory=dict)  # what `number` has recorded
    static: set[int] = field(default_factory=set)  # the entries that a guard is on
    sizes: dict[Any, HostScalar] = field(default_factory=dict)
    of_sizes: dict[int, Any] = field(default_factory=dict)
    may_warn: bool = False
    recorded: dict[tuple[Any, ...], HostScalar] = field(default_factory=dict)

    def settle(self) -> None:
        """Keep what sizes alone give as it is: the trace serves calls of these sizes only."""
        for k, value in self.of_sizes.items():
            self.ops[k] = (_settled, (value,))
        self.guards = [(k, expected) for k, expected in self.guards if k not in self.of_sizes]

    @property
    def is_settled(self) -> bool:
        """Are all values the same for all calls?"""
        return all(f is _settled for f, _ in self.ops)

    def is_fixed(self, k: int) -> bool:
        """Does entry k follow from numbers that guards are on?"""
        f, args = self.ops[k]
        return k in self.static or (
            f not in (_leaf, captured_number) and all(type(a) is not TapeEntry or self.is_fixed(a.k) for a in args)
        )

    def replay(self, leaves: Sequence[Any]) -> list[Any] | None:
        """All values for these leaves of the arguments; None if a guard fails, or an operation raises."""
        if not self.may_warn:
            return self._replayed(leaves)
        with np.errstate(all="ignore"):
            return self._replayed(leaves)

    def _replayed(self, leaves: Sequence[Any]) -> list[Any] | None:
        values: list[Any] = []
        try:
            for f, args in self.ops:
                if f is _leaf:
                    values.append(leaves[args[0]])
                elif f is _settled:
                    values.append(args[0])
                else:
                    values.append(f(*[values[a.k] if type(a) is TapeEntry else a for a in args]))
        except Exception as error:  # after the guards that come before it, the function may not even get there
            raise_if_signalled(error)
            return None
        for k, expected in self.guards:
            if not same(values[k], expected):
                return None
        return values


@dataclass(frozen=True, slots=True)
class TapeEntry:
    """A reference to entry `k` of the tape."""

    k: int


def _leaf(leaf: int) -> Any:
    raise AssertionError("leaves are read by replay")


def _settled(value: Any) -> Any:
    raise AssertionError("it is read by replay")


def size_value(n: int) -> int:
    """A size as a plain int."""
    return int(n)


class CaptureSource(Protocol):
    """The place where a captured value is found."""

    def get(self) -> Any:
        """The value at this call."""


def captured_number(place: CaptureSource, kind: type) -> Any:
    """A captured number at this call; a number of another type requires a new trace."""
    value = place.get()
    if type(value) is not kind:
        raise TypeError
    return value


def same(a: Any, b: Any) -> bool:
    """Are they equal in type and value? NaN equals NaN, and -0.0 differs from 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (complex, np.complexfloating)):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, (tuple, list, set, frozenset)):  # sets of equal numbers, of other types perhaps, in any order
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same([*a.items()], [*b.items()])
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and bool(np.array_equal(a, b))
    try:
        return a is b or bool(a == b)
    except Exception as error:  # a foreign __eq__ may do anything
        raise_if_signalled(error)
        return False


class HostScalar:
    """A number that is a run-time parameter of the pipeline.

    Attributes:
        captured: does it come from closures, defaults and partials alone?
        of_sizes: does it come from sizes alone?
    """

    __slots__ = ("captured", "k", "of_sizes", "tape", "value")
    __array_priority__ = 1000

    def __init__(self, tape: ScalarTape, k: int, value: Any, captured: bool = False, of_sizes: bool = False) -> None:
        self.tape, self.k, self.value, self.captured, self.of_sizes = tape, k, value, captured, of_sizes

    @classmethod
    def leaf(cls, tape: ScalarTape, leaf: int, value: Any) -> HostScalar:
        """A number among the arguments, by its position in their leaves."""
        tape.ops.append((_leaf, (leaf,)))
        return cls(tape, len(tape.ops) - 1, value)

    @classmethod
    def found(cls, tape: ScalarTape, place: CaptureSource, value: Any) -> HostScalar:
        """A captured number with its current value."""
        tape.ops.append((captured_number, (place, type(value))))
        return cls(tape, len(tape.ops) - 1, value, captured=True)

    @classmethod
    def of_size(cls, tape: ScalarTape, size: Any) -> HostScalar:
        """A `Size` as a number."""
        found = tape.sizes.get(size.poly)
        if found is None:
            tape.ops.append((size_value, (size,)))
            found = tape.sizes[size.poly] = cls(tape, len(tape.ops) - 1, int(size), of_sizes=True)
            tape.of_sizes[found.k] = found.value
        return found

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance(x, float) in the user's code
        return type(self.value)

    def make_static(self) -> Any:
        """The value, which becomes a condition of this trace."""
        if self.k not in self.tape.static:
            self.tape.static.add(self.k)
            self.tape.guards.append((self.k, self.value))
        return self.value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return forward.ufunc_call(ufunc, method, inputs, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        forward.notice_call(sys._getframe(1))
        return np.array(self.make_static(), dtype)

    def __float__(self) -> float:
        forward.notice_call(sys._getframe(1))
        return float(self.make_static())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.make_static(), name)

    def __repr__(self) -> str:
        return repr(self.make_static())

    def __str__(self) -> str:
        return str(self.make_static())

    def __format__(self, spec: str) -> str:
        return format(self.make_static(), spec)

    def __hash__(self) -> int:
        return hash(self.make_static())

    def __round__(self, n: int | None = None) -> Any:
        if self.of_sizes:
            return forward.whole_size(record(round, self)) if n is None else record(round, self, n)
        return round(self.make_static(), n)


def is_run_time(x: Any) -> bool:
    """Is this a number that a kernel takes as a parameter?"""
    if isinstance(x, np.generic):
        return x.dtype.itemsize <= (16 if x.dtype.kind == "c" else 8) and x.dtype.kind in "biufc"
    return type(x) in (int, float, complex)


def is_captured(x: Any) -> bool:
    """Is this a captured number, from a closure or a default?"""
    return type(x) is HostScalar and x.captured


def static_captured(x: Any) -> Any:
    """Captured numbers as plain values, also in the lists, tuples, dicts and slices that `x` is made of."""
    t = type(x)
    if t is HostScalar:
        return x.make_static() if x.captured else x
    if t is slice:
        return slice(static_captured(x.start), static_captured(x.stop), static_captured(x.step))
    return with_items(static_captured, x)


def with_items(f: Callable[[Any], Any], x: Any) -> Any:
    """A list, tuple or dict with `f` of its items, itself where these are the same objects; all else as it is."""
    t = type(x)
    if t in (list, tuple):
        found = [f(y) for y in x]
        return t(found) if any(new is not old for new, old in zip(found, x, strict=True)) else x
    if t is dict:
        items = {k: f(y) for k, y in x.items()}
        return items if any(items[k] is not x[k] for k in x) else x
    return x


def is_host(x: Any) -> bool:
    """`isinstance` cannot ask: a HostScalar answers with the class of its value."""
    return type(x) is HostScalar


def record(f: Callable[..., Any], *args: Any) -> Any:
    """``f(*args)`` on host scalars and constants, replayed at every call, without NumPy's warnings.

    Raises:
        Exception: what `f` raises for these numbers, which become static: the traced function may handle it.
    """
    tape = next(a.tape for a in args if type(a) is HostScalar)
    hosts: list[HostScalar] = []
    values, entries = [], []
    for a in args:  # in one loop: a helper of the user's makes thousands of these
        x = HostScalar.of_size(tape, a) if _is_size(a) else a
        is_one = type(x) is HostScalar
        if is_one:
            hosts.append(x)
        values.append(x.value if is_one else x)
        entries.append(TapeEntry(x.k) if is_one else x)
    key = (f, *map(_told_apart, entries))
    if key in tape.recorded:
        return tape.recorded[key]
    is_quiet = type(f) is BuiltinFunctionType and not any(isinstance(x, np.generic) for x in values)
    tape.may_warn = tape.may_warn or not is_quiet
    try:
        if is_quiet:
            value = f(*values)
        else:
            with np.errstate(all="ignore"):
                value = f(*values)
    except Exception:
        for x in hosts:
            x.make_static()
        raise
    tape.ops.append((f, tuple(entries)))
    number, of_sizes = len(tape.ops) - 1, all(x.of_sizes for x in hosts)
    if of_sizes:
        tape.of_sizes[number] = value
    found = tape.recorded[key] = HostScalar(tape, number, value, all(x.captured for x in hosts), of_sizes)
    return found


def _told_apart(x: Any) -> Any:
    """An argument of `record` as part of a key: equal numbers may be of other types, and -0.0 equals 0.0."""
    if x is None or isinstance(x, (TapeEntry, str, type, np.dtype)):
        return x
    return (type(x), repr(x)) if isinstance(x, (int, float, complex, np.generic)) else object()  # others may change


def static_value(x: Any) -> Any:
    """Any value; host scalars become static: another value retraces."""
    return x.make_static() if is_host(x) else x


def known_number(x: Any) -> Any:
    """What an array with known contents takes of a number: the value of a size, or of what is computed of sizes, which
    becomes static; all else as it is, also in lists and tuples."""
    if type(x) in (list, tuple):
        return type(x)(map(known_number, x))
    if _is_size(x):
        return int(x)
    return x.make_static() if is_host(x) and x.of_sizes else x


# -- numbers as elements of arrays
#
# NumPy converts a number to the dtype of an array that it is stored in by one of these, which differ in what they
# refuse with an OverflowError or a ValueError. Each is NumPy's own conversion of one element, so that it is right for
# every pair of types.

Conversion = Callable[[Any, np.dtype[Any]], Any]


def as_item(value: Any, dtype: np.dtype[Any]) -> Any:
    """``a[0] = value``, ``a.fill``, ``np.array([value], dtype)``: Python's numbers must fit, NumPy's in signed ones."""
    one = np.empty((), dtype)
    one[...] = value
    return one[()]


def as_array(value: Any, dtype: np.dtype[Any]) -> Any:
    """``np.array(value, dtype)``, ``a[:] = value``: Python's numbers must fit, NumPy's are cast."""
    return np.array(value, dtype)[()]


def as_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """``np.full``, ``np.copyto(casting="unsafe")``: Python's ints must fit, all others are cast."""
    return np.full((), value, dtype)[()]


def as_cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """``np.asarray(value).astype(dtype)``, ``np.where``, ``np.choose``: all are cast, ints modulo a power of two."""
    return np.asarray(value).astype(dtype)[()]


def number(x: Any, dtype: np.dtype[Any], how: Conversion) -> Any:
    """A number as the element of `dtype` that NumPy makes of it; that of a run-time number is made again at every call.

    Raises:
        OverflowError, ValueError: NumPy refuses it, and so do later calls, before anything is written.
    """
    x = forward.as_number(x)
    if not is_host(x):
        return _quiet(how, x, dtype)
    alike = how in (as_item, as_array, as_fill) or type(x.value) is not int
    if alike and (np.result_type(x.value) == dtype or (dtype.kind == "f" and type(x.value) in (bool, int, float))):
        return x  # the parameters of kernels are filled by the same conversion
    found = x.tape.converted.get((x.k, dtype, how))
    if found is None:
        found = x.tape.converted[x.k, dtype, how] = record(_quiet, how, x, dtype)
    return found


def dtype_of(x: HostScalar) -> np.dtype[Any]:
    """The dtype of the array that NumPy makes of a run-time number; of a Python int it depends on its size: a guard."""
    return record(_array_dtype, x).make_static() if type(x.value) is int else np.result_type(x.value)


def _array_dtype(value: int) -> np.dtype[Any]:
    return np.asarray(value).dtype


def beyond(x: int, dtype: np.dtype[Any]) -> int:
    """-1 or 1 where an int is below or above the range of an integer dtype, else 0."""
    info = np.iinfo(dtype)
    return (x > info.max) - (x < info.min)


def _quiet(how: Conversion, value: Any, dtype: np.dtype[Any]) -> Any:
    """Compiled code does not warn where a NaN is cast, nor does this."""
    if type(value) is int:
        return how(value, dtype)
    with np.errstate(all="ignore"):
        return how(value, dtype)


def _is_size(x: Any) -> bool:
    """A size that remembers what it was computed from? Arithmetic with constants keeps it one."""
    t = type(x)
    return t is not int and t is not HostScalar and isinstance(x, int) and hasattr(x, "poly")


def _method(f: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    def method(self: HostScalar, other: Any) -> Any:
        if not is_host(other):
            if self.captured and _is_size(other):
                return f(other, self.make_static()) if swap else f(self.make_static(), other)
            if not isinstance(other, (bool, int, float, complex, np.generic)):
                return NotImplemented
        result = record(f, other, self) if swap else record(f, self, other)
        if f is operator.pow:
            record(type, result).make_static()  # 2 ** k is an int or a float, after the sign of k
        return result

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    _dunder = _name.rstrip("_")
    setattr(HostScalar, f"__{_dunder}__", _method(getattr(operator, _name)))
    setattr(HostScalar, f"__r{_dunder}__", _method(getattr(operator, _name), swap=True))


def _divmod(swap: bool) -> Callable[..., Any]:
    def method(self: HostScalar, other: Any) -> Any:
        quotient = _method(operator.floordiv, swap)(self, other)
        return NotImplemented if quotient is NotImplemented else (quotient, _method(operator.mod, swap)(self, other))

    return method


for _name, _swap in (("divmod", False), ("rdivmod", True)):
    setattr(HostScalar, f"__{_name}__", _divmod(_swap))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(HostScalar, f"__{_name}__", _method(getattr(operator, _name)))
for _name, _f in (("neg", operator.neg), ("pos", operator.pos), ("abs", operator.abs), ("invert", operator.invert)):
    setattr(HostScalar, f"__{_name}__", lambda self, f=_f: record(f, self))
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "complex": complex,
    "index": operator.index,
}
for _name, _conversion in _CONVERSIONS.items():
    setattr(HostScalar, f"__{_name}__", lambda self, f=_conversion: f(self.make_static()))


def _whole(f: Callable[[Any], Any]) -> Callable[[HostScalar], Any]:
    def method(self: HostScalar) -> Any:
        return forward.whole_size(record(f, self)) if self.of_sizes else f(self.make_static())

    return method


for _name in ("trunc", "floor", "ceil"):
    setattr(HostScalar, f"__{_name}__", _whole(getattr(math, _name)))
