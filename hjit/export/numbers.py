"""The tape: what is computed from the numbers and sizes of the arguments before a kernel runs, as data for C and
Python.

`hjit.trace.tracing.scalars.host` records the operations as Python functions, which are replayed at each call. Here they
are names in a table.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import HjitError
from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.scalars import host
from hjit.trace.tracing.scalars.host import ScalarTape, TapeEntry, beyond, captured_number, same

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pos", "abs", "and_", "or_", "xor")
_OPERATORS = (*_ARITHMETIC, "lt", "le", "gt", "ge", "eq", "ne")
_MATHS = ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "floor", "ceil")
# of `hjit.trace.tracing.scalars.host`: to the dtype of an array
CONVERSIONS = (
    "as_item",
    "as_array",
    "as_fill",
    "as_cast",
)
# Names of functions; those of `math` and their ufuncs that C has, too
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in _OPERATORS}
FUNCTIONS |= {f"math.{name}": getattr(math, name) for name in _MATHS}
_UFUNCS = ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil")
FUNCTIONS |= {f"np.{name}": getattr(np, name) for name in _UFUNCS}
FUNCTIONS |= {"float": float, "min": min, "max": max}
_NAMES: dict[Any, str] = {f: name for name, f in FUNCTIONS.items()} | {builtins.abs: "abs"}
_BY_TYPE = (np.result_type, type, host._array_dtype)  # their results follow from the types of numbers, which are known

Argument = tuple[str, Any]  # ("entry", k), ("number", x) or ("size", a polynomial)


@dataclass(frozen=True, slots=True)
class Entry:
    """A number: argument number `leaf`, a size, or ``function(*args)``; `kind`: "float", "int", "bool" or a dtype."""

    kind: str
    function: str
    args: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """The entries that are needed, in order, by their numbers on the tape.

    Attributes:
        guards: numbers that entries must be.
    """

    entries: Mapping[int, Entry]
    guards: tuple[tuple[int, Any], ...]

    def values(self, leaves: Sequence[Any], size: Callable[[Any], int]) -> dict[int, Any] | None:
        """All numbers; None where a guard does not hold, or an operation raises."""
        found: dict[int, Any] = {}

        def argument(a: Argument) -> Any:
            return found[a[1]] if a[0] == "entry" else a[1] if a[0] == "number" else size(a[1])

        try:
            for k, e in self.entries.items():
                found[k] = _run(e, leaves, [argument(a) for a in e.args])
        except (ArithmeticError, ValueError, TypeError):
            return None
        return found if all(same(found[k], expected) for k, expected in self.guards) else None

    def leaves_of(self, k: int) -> set[int]:
        """The arguments that a number is computed of."""
        e = self.entries[k]
        if e.function == "leaf":
            return {e.args[0][1]}
        return set().union(*(self.leaves_of(a[1]) for a in e.args if a[0] == "entry"))

    def to_json(self, encode: Callable[[Poly], Any]) -> Any:
        """As lists."""

        def argument(a: Argument) -> Any:
            return [a[0], encode(a[1]) if a[0] == "size" else a[1]]

        entries = [[k, e.kind, e.function, [argument(a) for a in e.args]] for k, e in self.entries.items()]
        return [entries, [[k, _plain(v)] for k, v in self.guards]]


def numbers_from_json(data: Any) -> Numbers:
    """What `Numbers.to_json` has written; its sizes stay encoded."""
    entries, guards = data
    found = {k: Entry(kind, f, tuple((a, b) for a, b in args)) for k, kind, f, args in entries}
    return Numbers(found, tuple((k, _of_kind(found[k].kind, v)) for k, v in guards))


def numbers_of(
    tape: ScalarTape,
    leaves: Sequence[Any],
    needed: Iterable[int],
    of_arguments: Callable[[Poly], Poly],
    is_fixed: Callable[[Poly], bool],
) -> Numbers:
    """Of a tape what kernels and guards need.

    Args:
        of_arguments: a polynomial over sizes of the arguments alone.
        is_fixed: is that the same for all calls? So is then what is computed of it.

    Raises:
        HjitError: something only Python can compute.
    """
    values = tape.replay(leaves) if tape.ops else []
    assert values is not None, "they are those that are traced"
    entries: dict[int, Entry] = {}
    sizes = sizes_of(tape)

    def need(k: int) -> None:
        if k in entries:
            return
        f, args = tape.ops[k]
        if (found := sizes[k]) is not None and all(map(is_fixed, found)):
            entries[k] = Entry(kind_of(values[k]), "constant", (("number", _plain(values[k])),))
            return
        for a in args:
            if type(a) is TapeEntry:
                need(a.k)
        entries[k] = _entry(f, args, values[k], of_arguments)

    guards = []
    for k, expected in tape.guards:
        if _is_by_type(tape, k, values):
            continue
        need(k)
        if entries[k].function != "constant":
            guards.append((k, expected))
    for k in needed:
        need(k)
    return Numbers(dict(sorted(entries.items())), tuple(guards))


def sizes_of(tape: ScalarTape) -> list[frozenset[Poly] | None]:
    """The sizes that each entry is computed of; None where it is not computed of sizes alone."""
    found: list[frozenset[Poly] | None] = []
    for f, args in tape.ops:
        parts = [found[a.k] for a in args if type(a) is TapeEntry]
        known = [x for x in parts if x is not None]
        if f is host.size_value:
            found.append(frozenset({args[0].poly}))
        else:
            found.append(frozenset().union(*known) if parts and len(known) == len(parts) else None)
    return found


def sizes_for_python(tape: ScalarTape) -> Iterator[Poly]:
    """The sizes of which a tape computes what only Python does."""
    for sizes, (f, args) in zip(sizes_of(tape), tape.ops, strict=True):
        is_known = f in _NAMES or f in (host.size_value, host._quiet, beyond, *_BY_TYPE) or _is_conversion(f, args)
        if sizes is not None and not is_known:
            yield from sizes


def _is_conversion(f: Any, args: tuple[Any, ...]) -> bool:
    """Does it make a number of a type of NumPy's?"""
    return isinstance(f, type) and issubclass(f, np.generic) and len(args) == 1 and type(args[0]) is TapeEntry


def _is_by_type(tape: ScalarTape, k: int, values: Sequence[Any]) -> bool:
    """Does an entry follow from the types of numbers?"""
    f, args = tape.ops[k]
    is_int = any(type(a) is TapeEntry and type(values[a.k]) is int for a in args)
    return f in _BY_TYPE and (f is host._array_dtype or not is_int or f is np.result_type)


def _entry(f: Any, args: tuple[Any, ...], value: Any, of_arguments: Callable[[Poly], Poly]) -> Entry:
    kind = kind_of(value)
    if f is host._leaf:
        return Entry(kind, "leaf", (("number", args[0]),))
    if f is host.size_value:
        return Entry(kind, "size", (("size", of_arguments(args[0].poly)),))
    depends = any(type(a) is TapeEntry for a in args)
    if f is captured_number or not depends:
        return Entry(kind, "constant", (("number", _plain(value)),))
    if f is host._quiet:
        how, x, dtype = args
        return Entry(kind, how.__name__, (("entry", x.k), ("number", np.dtype(dtype).str)))
    if _is_conversion(f, args):
        return Entry(kind, "type", (("entry", args[0].k),))
    name = _NAMES.get(f)
    if f is beyond:
        return Entry("int", "beyond", (("entry", args[0].k), ("number", np.dtype(args[1]).str)))
    if name is None:
        what = getattr(f, "__name__", repr(f))
        raise HjitError(
            f"export: {what} is computed of an argument that is a number, which only Python does. What to do: compute "
            "it before the call, and pass the result"
        )

    def argument(a: Any) -> Argument:
        return ("entry", a.k) if type(a) is TapeEntry else ("number", _plain(a))

    return Entry(kind, name, tuple(map(argument, args)))


def kind_of(x: Any) -> str:
    """ "float", "int" or "bool" of Python's numbers, the dtype of NumPy's."""
    return x.dtype.str if isinstance(x, np.generic) else type(x).__name__


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x


def _of_kind(kind: str, x: Any) -> Any:
    return (
        {"float": float, "int": int, "bool": bool}[kind](x)
        if kind in ("float", "int", "bool")
        else np.dtype(kind).type(x)
    )


def _run(e: Entry, leaves: Sequence[Any], args: Sequence[Any]) -> Any:
    match e.function:
        case "leaf":
            return leaves[args[0]]
        case "size":
            return args[0]
        case "constant":
            return _of_kind(e.kind, args[0])
        case "type":
            return np.dtype(e.kind).type(args[0])
        case "beyond":
            info = np.iinfo(np.dtype(args[1]))
            return (args[0] > info.max) - (args[0] < info.min)
        case conversion if conversion in CONVERSIONS:
            return host._quiet(getattr(host, conversion), args[0], np.dtype(args[1]))
    return FUNCTIONS[e.function](*args)
