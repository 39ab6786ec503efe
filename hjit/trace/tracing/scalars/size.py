"""`Size`: an int that remembers how it was computed from the sizes of the arguments.

Tracing runs with real numbers, so Python code that branches on sizes just works; the polynomial beside the
number lets one compiled kernel serve other sizes. What loses the polynomial (``int(h * 0.5)``) stays right:
the number then becomes a run-time parameter of its own.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hjit.trace.ir.poly import SMALL, Poly, poly
from hjit.trace.tracing.scalars.host import is_captured


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """What a trace assumes of sizes: the outcome of ``a op b``.

    Attributes:
        op: a comparison, as "lt"; "is" where a small number has taken the place of `a`.
    """

    op: str
    a: Poly
    b: Poly
    holds: bool


_watching = threading.local()  # `size_guards` of the trace that this thread runs, where somebody wants them


def _note(op: str, a: Poly, b: Poly, holds: bool) -> None:
    size_guards: dict[SizeGuard, None] | None = getattr(_watching, "size_guards", None)
    if size_guards is not None and not (a - b).is_const:
        size_guards[SizeGuard(op, a, b, holds)] = None


class Size(int):
    """A whole number with its polynomial; small ones are plain ints, constants of the kernel."""

    poly: Poly

    def __new__(cls, value: int, p: Poly) -> Any:
        if -SMALL <= value <= SMALL or p.is_const:
            if _watchers and not p.is_const:
                _note("is", p, poly(int(value)), True)
            return int(value)
        self = super().__new__(cls, value)
        self.poly = p
        return self

    def __neg__(self) -> Any:
        return Size(-int(self), -self.poly)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


def size_poly(n: int) -> Poly:
    """The polynomial of a `Size`, or the constant."""
    return n.poly if isinstance(n, Size) else poly(int(n))


def _binary(f: Callable[[Any, Any], Any], swap: bool) -> Callable[[Size, Any], Any]:
    def method(self: Size, other: Any) -> Any:
        if type(other) not in (int, Size):
            if is_captured(other):
                return method(self, other.make_static())
            return f(other, int(self)) if swap else f(int(self), other)
        a, b = (other, self) if swap else (self, other)
        value = f(int(a), int(b))
        if f in (operator.floordiv, operator.mod) and b <= 0:
            return value
        return Size(value, f(size_poly(a), size_poly(b)))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _f = getattr(operator, _name)
    setattr(Size, f"__{_name}__", _binary(_f, False))
    setattr(Size, f"__r{_name}__", _binary(_f, True))


# -- what a trace takes for granted of sizes

_watchers = 0  # traces that note size_guards, in all threads
_lock = threading.Lock()


def _comparison(op: str) -> Callable[[Size, Any], Any]:
    compare = getattr(int, f"__{op}__")

    def method(self: Size, other: Any) -> Any:
        found = compare(self, other)
        if type(other) in (int, Size):
            _note(op, self.poly, size_poly(other), found)
        return found

    return method


def _truth(self: Size) -> bool:
    _note("ne", self.poly, poly(0), True)  # a `Size` is never 0
    return True


def _hash(self: Size) -> int:
    _note("eq", self.poly, poly(int(self)), True)  # it is looked up: of another number something else is found
    return int.__hash__(self)


_NOTED: dict[str, Any] = {f"__{op}__": _comparison(op) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
_NOTED |= {"__bool__": _truth, "__hash__": _hash}


@contextlib.contextmanager
def size_guards_noted() -> Iterator[dict[SizeGuard, None]]:
    """A block whose traces, of this thread, note what they take for granted of sizes.

    Only while there is such a block has `Size` comparisons written in Python, which take several times as long.
    """
    global _watchers
    with _lock:
        _watchers += 1
        for name, method in _NOTED.items():
            setattr(Size, name, method)
    outer = getattr(_watching, "size_guards", None)
    size_guards: dict[SizeGuard, None] = {}
    _watching.size_guards = size_guards
    try:
        yield size_guards
    finally:
        _watching.size_guards = outer
        with _lock:
            _watchers -= 1
            if not _watchers:
                for name in _NOTED:
                    delattr(Size, name)


def after_fork() -> None:
    """Renew the lock, which another thread of the parent may have held."""
    global _lock
    _lock = threading.Lock()
