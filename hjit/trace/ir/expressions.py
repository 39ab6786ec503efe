"""Expressions: the values of definitions, and of the loop IR.

    Expr = Const | ScalarRef | Index | Load(source, Poly*) | Op(name, args) | Cast

All nodes are immutable, hashed once, and print. Expressions share what they have in common: walks see it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import copysign
from operator import is_
from typing import Any

import numpy as np

from hjit.trace.ir.poly import Atom, Dim, Indirect, IntLike, Poly, deep_atoms

Change = Callable[[Atom], IntLike | None]
_put = object.__setattr__  # of what is immutable


def _setters(cls: type, *slots: str) -> tuple[Callable[[Any, Any], None], ...]:
    """Setters of an immutable class's slots, twice as fast as `_put`; a trace makes many expressions."""
    return tuple(vars(cls)[slot].__set__ for slot in slots)


class Expr:
    """Base class of expressions. Subclasses are immutable; equality is structural.

    Attributes:
        args: the expressions that this one is computed from, those inside indices not counted.
        polys: the polynomials that this one holds itself.
    """

    __slots__ = ("_hash", "_key", "_loads", "dtype")
    dtype: np.dtype[Any]
    args: tuple[Expr, ...] = ()
    polys: tuple[Poly, ...] = ()
    _loads: tuple[Load, ...]
    _key: tuple[Any, ...]
    _hash: int

    def _seal(self, dtype: np.dtype[Any], *key: Any) -> None:
        _SET_DTYPE(self, dtype)
        _SET_KEY(self, key)
        _SET_HASH(self, hash((type(self), key)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or self._hash != other._hash:
            return False
        if self._key is other._key:
            return True
        if self._key != other._key:
            return False
        # equal ones share their key from now on: comparing two equal graphs of shared nodes stays linear
        _put(other, "_key", self._key)
        return True

    def __repr__(self) -> str:
        return str(self)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Every distinct load in the expression."""
        try:
            return self._loads
        except AttributeError:
            found = tuple([e for e in walk(self) if isinstance(e, Load)])
            _put(self, "_loads", found)
            return found

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        """The same node over other arguments."""
        return self

    def substitute(self, change: Change) -> Expr:
        """The expression with the atoms of all its indices replaced."""
        return substitute(self, change)

    def mentions(self, atom: Atom) -> bool:
        """Does any index in this expression depend on `atom`?"""
        return any(atom in deep_atoms(p) for e in walk(self) for p in e.polys)


_SET_DTYPE, _SET_KEY, _SET_HASH = _setters(Expr, "dtype", "_key", "_hash")


class Const(Expr):
    """A number of exactly this dtype."""

    __slots__ = ("bits",)
    bits: bytes

    def __init__(self, value: Any, dtype: Any) -> None:
        dtype = np.dtype(dtype)
        is_common = type(value) in _COMMON and (value or copysign(1.0, value) > 0)  # -0.0 equals 0.0
        kind: Any = type(value)
        bits = _common_bits(value, kind, dtype) if is_common else _bits(value, dtype)
        _put(self, "bits", bits)
        self._seal(dtype, bits, dtype)

    @property
    def value(self) -> Any:
        """The number as a NumPy scalar."""
        return np.frombuffer(self.bits, self.dtype)[0]

    def __str__(self) -> str:
        return f"{self.dtype.str[1:]}:{self.value}"


def _bits(value: Any, dtype: np.dtype[Any]) -> bytes:
    """The bits of a number in its dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype).tobytes()


_COMMON = frozenset((bool, int, float, np.float64, np.float32))


@lru_cache(maxsize=4096)
def _common_bits(value: Any, kind: type, dtype: np.dtype[Any]) -> bytes:
    """As `_bits`, for numbers of common types; 1, 1.0 and True, of other types, are equal."""
    return _bits(value, dtype)


class ScalarRef(Expr):
    """A scalar argument of the kernel."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str, dtype: Any) -> None:
        _put(self, "name", name)
        dtype = np.dtype(dtype)
        self._seal(dtype, name, dtype)

    def __str__(self) -> str:
        return f"${self.name}"


class Index(Expr):
    """An index as an int64 value."""

    __slots__ = ("poly", "polys")
    poly: Poly

    def __init__(self, p: Poly) -> None:
        _put(self, "poly", p)
        _put(self, "polys", (p,))
        self._seal(np.dtype(np.int64), p)

    def __str__(self) -> str:
        return f"({self.poly})"


class Load(Expr):
    """One element of an input or of a stage."""

    __slots__ = ("index", "polys", "source")
    source: str
    index: tuple[Poly, ...]

    def __init__(self, source: str, index: tuple[Poly, ...], dtype: Any) -> None:
        _SET_SOURCE(self, source)
        _SET_INDEX(self, index)
        _SET_POLYS(self, index)
        self._seal(np.dtype(dtype), source, index)

    def __str__(self) -> str:
        return f"{self.source}[{', '.join(map(str, self.index))}]"


_SET_SOURCE, _SET_INDEX, _SET_POLYS = _setters(Load, "source", "index", "polys")


class Op(Expr):
    """An operation, named as NumPy's ufunc is; its arguments already have the dtypes of NumPy's loop."""

    __slots__ = ("args", "name")
    name: str

    def __init__(self, name: str, args: tuple[Expr, ...], dtype: Any) -> None:
        _SET_NAME(self, name)
        _SET_ARGS(self, args)
        dtype = np.dtype(dtype)
        self._seal(dtype, name, args, dtype)

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        return Op(self.name, args, self.dtype)

    def __str__(self) -> str:
        return _text(self)


_SET_NAME, _SET_ARGS = _setters(Op, "name", "args")


class Cast(Expr):
    """``astype``: NumPy's conversion; out-of-range values are converted as by this machine's C compiler."""

    __slots__ = ("arg", "args")
    arg: Expr

    def __init__(self, arg: Expr, dtype: Any) -> None:
        _put(self, "arg", arg)
        _put(self, "args", (arg,))
        dtype = np.dtype(dtype)
        self._seal(dtype, arg, dtype)

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        return Cast(args[0], self.dtype)

    def __str__(self) -> str:
        return _text(self)


def cast(e: Expr, dtype: Any) -> Expr:
    """`e` as `dtype`; `e` itself if it has that dtype, a constant if `e` is one."""
    if e.dtype is dtype or e.dtype == (dtype := np.dtype(dtype)):
        return e
    if isinstance(e, Const):
        return Const(e.value, dtype)
    return Cast(e, dtype)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """`a` if the bool `condition` holds, else `b`; both have the same dtype."""
    return Op("select", (condition, a, b), a.dtype)


# -- walks, all over shared sub-expressions only once


def walk(*roots: Expr, args: Callable[[Expr], Iterable[Expr]] | None = None) -> Iterator[Expr]:
    """Every sub-expression once, those inside indices too; users before what they use.

    Args:
        args: which arguments of an expression to walk, in place of all.
    """
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        known = len(seen)
        seen.add(e)
        if len(seen) == known:
            continue
        yield e
        stack += e.args if args is None else args(e)
        for p in e.polys:
            if p.exprs:
                stack += p.exprs


# The state of a walk that rewrites is an object with methods. Functions inside a function that call themselves are
# cycles: these, and all that they remember, would be left to the garbage collector, a twentieth of a first call's time.


class _Rewriting:
    """The state of one `rewrite`; `memo` maps expressions to their replacements."""

    __slots__ = ("change", "memo")

    def __init__(self, change: Callable[[Expr], Expr | None], memo: dict[Expr, Expr]) -> None:
        self.change, self.memo = change, memo

    def of(self, e: Expr) -> Expr:
        done = self.memo.get(e)
        if done is not None:
            return done
        new: Expr = e
        if e.args:
            args = tuple(map(self.of, e.args))
            if not all(map(is_, args, e.args)):
                new = e.with_args(args)
        elif any(p.exprs for p in e.polys):
            new = map_polys(e, self.of_poly)
        changed = self.change(new)
        self.memo[e] = new = new if changed is None else changed
        return new

    def of_poly(self, p: Poly) -> Poly:
        return p.substitute(self.of_atom)

    def of_atom(self, a: Atom) -> IntLike | None:
        if isinstance(a, Indirect):
            new = self.of(a.expr)
            return None if new is a.expr else Indirect(new, a.extent)
        return None


def rewrite(e: Expr, change: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Rebuild bottom-up: `change` sees each node after its arguments, and returns None to keep it."""
    return _Rewriting(change, {} if memo is None else memo).of(e)


def map_polys(e: Expr, f: Callable[[Poly], Poly]) -> Expr:
    """A `Load` or `Index` with its polynomials replaced."""
    if isinstance(e, Load):
        index = tuple(map(f, e.index))
        return e if all(map(is_, index, e.index)) else Load(e.source, index, e.dtype)
    if isinstance(e, Index):
        p = f(e.poly)
        return e if p is e.poly else Index(p)
    return e


class _Substitution:
    """The state of one `substitute`; `memo` maps expressions to their replacements."""

    __slots__ = ("change", "memo")

    def __init__(self, change: Change, memo: dict[Expr, Expr]) -> None:
        self.change, self.memo = change, memo

    def of(self, e: Expr) -> Expr:
        done = self.memo.get(e)
        if done is None:
            if e.args:
                args = tuple(map(self.of, e.args))
                done = e if all(map(is_, args, e.args)) else e.with_args(args)
            else:
                done = map_polys(e, self.of_poly)
            self.memo[e] = done
        return done

    def of_poly(self, p: Poly) -> Poly:
        return p.substitute(self.of_atom)

    def of_atom(self, a: Atom) -> IntLike | None:
        """An expression that is an index may hold others: each is rewritten once."""
        new = self.change(a)
        if new is not None or not isinstance(a, Indirect):
            return new
        expr, extent = self.of(a.expr), None if a.extent is None else self.of_poly(a.extent)
        return a if expr is a.expr and extent is a.extent else Indirect(expr, extent)


def substitute(e: Expr, change: Change, memo: dict[Expr, Expr] | None = None) -> Expr:
    """Replace atoms in all indices of `e`."""
    return _Substitution(change, {} if memo is None else memo).of(e)


def renumber(dims: Sequence[Poly]) -> Change:
    """A substitution of atoms that replaces dimension k by ``dims[k]``."""

    def change(a: Atom) -> IntLike | None:
        return dims[a.k] if isinstance(a, Dim) else None

    return change


def mentioned_dims(p: Poly) -> set[int]:
    """The dimensions that an index depends on, those inside of expressions too."""
    inside = (q for e in walk(*p.exprs) for q in e.polys)
    return {a.k for q in (p, *inside) for a in deep_atoms(q) if isinstance(a, Dim)}


def loads(*roots: Expr) -> tuple[Load, ...]:
    """Every distinct load in several expressions."""
    return tuple(dict.fromkeys(x for e in roots for x in e.loads))


def describe(*roots: Expr, share_loads: bool = False) -> tuple[list[str], list[str]]:
    """Expressions as text, common sub-expressions written once: the lines that define them, and the texts.
    `share_loads`: also loads."""
    nodes = list(arguments_first(roots))
    readers = Counter(a for e in nodes for a in e.args) + Counter(roots)
    text: dict[Expr, str] = {}
    lines: list[str] = []
    for e in nodes:
        name = e.name if isinstance(e, Op) else e.dtype.str[1:]
        text[e] = f"{name}({', '.join(text[a] for a in e.args)})" if e.args else str(e)
        if readers[e] > 1 and (e.args or (share_loads and isinstance(e, Load))):
            lines.append(f"v{len(lines)} = {text[e]}")
            text[e] = f"v{len(lines) - 1}"
    return lines, [text[e] for e in roots]


def arguments_first(roots: Sequence[Expr]) -> Iterator[Expr]:
    """Every distinct node, after its arguments, from left to right."""
    done: set[Expr] = set()
    stack = [(e, False) for e in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if e in done:
            continue
        if ready:
            done.add(e)
            yield e
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args))


def _text(e: Expr) -> str:
    """An expression in one line, as long as its distinct nodes: written out in full it may be exponentially longer."""
    lines, (text,) = describe(e)
    return " where ".join([text, ", ".join(lines)] if lines else [text])
