"""Integer polynomials: array sizes and array indices, exact and canonical.

A `Poly` is a sum of products of atoms with whole coefficients. Atoms are loop dimensions, sizes known at
run time only, and the few integer operations that are not polynomial (floor division, remainder, boundary
handling, a value read from an array). Two polynomials are equal when they are the same function in this form.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Union

MAX_DEPTH = 6  # of minima and maxima inside others that are compared
LONGEST_TEXT = 2000  # characters of an index that is read; longer ones end in a digest
ABBREVIATED_TEXT = 200
SMALL = 16  # sizes up to here are constants of the kernel, so that they unroll


class Atom:
    """Base class of the atoms of polynomials; immutable, hashed once.

    Attributes:
        parts: the polynomials, and the expression, inside it.
    """

    __slots__ = ("_hash", "_key", "parts")
    fields: tuple[str, ...] = ()
    parts: tuple[Any, ...]
    _key: tuple[Any, ...]
    _hash: int

    def __init__(self, *values: Any) -> None:
        put = object.__setattr__
        for name, value in zip(self.fields, values, strict=True):
            put(self, name, value)
        put(self, "_key", values)
        put(self, "_hash", hash((type(self).__name__, values)))
        put(self, "parts", tuple([v for v in values if v is not None and not isinstance(v, (int, str))]))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self._hash == other._hash and self._key == other._key)

    def __repr__(self) -> str:
        return str(self)


class Dim(Atom):
    """The k-th iteration dimension of a definition, counted from 0; reduction dimensions follow the pure ones."""

    __slots__ = fields = ("k",)
    k: int

    def __str__(self) -> str:
        return f"d{self.k}"


class Sym(Atom):
    """A run-time size or offset, a parameter of the kernel."""

    __slots__ = fields = ("name",)
    name: str

    def __str__(self) -> str:
        return self.name


class Var(Atom):
    """A loop variable of the loop IR."""

    __slots__ = fields = ("name",)
    name: str

    def __str__(self) -> str:
        return self.name


class FloorDiv(Atom):
    """``arg // by``, rounded towards minus infinity; `by` is positive."""

    __slots__ = fields = ("arg", "by")
    arg: Poly
    by: Poly

    def __str__(self) -> str:
        return f"(({self.arg})//({self.by}))"


class Mod(Atom):
    """``arg % by``, in [0, by); `by` is positive."""

    __slots__ = fields = ("arg", "by")
    arg: Poly
    by: Poly

    def __str__(self) -> str:
        return f"(({self.arg})%({self.by}))"


class Extremum(Atom):
    """The minimum (`which` = "min") or maximum ("max") of two indices."""

    __slots__ = fields = ("which", "a", "b")
    which: str
    a: Poly
    b: Poly

    def __str__(self) -> str:
        return f"{self.which}({self.a}, {self.b})"


class Boundary(Atom):
    """An index mapped into [0, extent) by a boundary condition.

    Modes: ``clamp`` (np.pad's edge), ``wrap``, ``reflect`` (the edge is not repeated), ``symmetric`` (it is).
    """

    __slots__ = fields = ("mode", "arg", "extent")
    mode: str
    arg: Poly
    extent: Poly

    def __str__(self) -> str:
        return f"{self.mode}({self.arg}, {self.extent})"


class Indirect(Atom):
    """A data-dependent index: the integer value of an expression.

    `extent` is the size of the axis that it indexes: NumPy's bounds check and its negative indices apply.
    None: the value is known to be in range.
    """

    __slots__ = ("_text", "expr", "extent")
    fields = ("expr", "extent")
    expr: Any
    extent: Poly | None

    def __str__(self) -> str:
        """Made once, and abbreviated: atoms are sorted by it, and where one holds others, as in a bisection, it doubles
        at each."""
        found: str | None = getattr(self, "_text", None)
        if found is None:
            found = f"[{self.expr}]"
            if len(found) > LONGEST_TEXT:
                digest = hashlib.blake2b(found.encode(), digest_size=12).hexdigest()
                found = f"{found[:ABBREVIATED_TEXT]}... {digest}]"
            object.__setattr__(self, "_text", found)
        return found


Monomial = tuple[Atom, ...]
IntLike = Union[int, "Poly", Atom]


class Poly:
    """A sum of ``coefficient * product of atoms``, plus a constant."""

    __slots__ = ("_deep", "_exprs", "_hash", "const", "terms")
    terms: dict[Monomial, int]
    const: int
    _deep: dict[Atom, None] | None
    _exprs: tuple[Any, ...] | None
    _hash: int | None

    def __init__(self, terms: dict[Monomial, int], const: int) -> None:
        self.terms, self.const = terms, const
        self._hash = self._exprs = self._deep = None  # found on demand: most polynomials are intermediate results

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash((self.const, frozenset(self.terms.items()))) if self.terms else hash(self.const)
        return found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Poly):
            return self is other or (
                self.const == other.const and hash(self) == hash(other) and self.terms == other.terms
            )
        return isinstance(other, int) and not self.terms and self.const == other

    def __bool__(self) -> bool:
        raise TypeError("a Poly has no truth value; compare it, or ask is_const")

    @property
    def unbounded(self) -> Poly:
        """An index as it is where no boundary condition applies: without the `Boundary` that all of it may be."""
        if len(self.terms) == 1 and not self.const:
            ((m, c),) = self.terms.items()
            if c == 1 and len(m) == 1 and isinstance(m[0], Boundary):
                return m[0].arg
        return self

    # -- arithmetic
    def __add__(self, other: IntLike) -> Poly:
        return self._plus(other, 1)

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()}, -self.const)

    def __sub__(self, other: IntLike) -> Poly:
        return self._plus(other, -1)

    def _plus(self, other: IntLike, factor: int) -> Poly:
        """self + factor * other, for a factor of 1 or -1."""
        if type(other) is int:
            return Poly(self.terms, self.const + factor * other) if other else self
        o = other if type(other) is Poly else poly(other)  # without a call: there are many
        if not o.terms:
            return Poly(self.terms, self.const + factor * o.const) if o.const else self
        terms = dict(self.terms)
        for m, c in o.terms.items():
            s = terms.get(m, 0) + factor * c
            if s:
                terms[m] = s
            else:
                del terms[m]
        return Poly(terms, self.const + factor * o.const)

    def __rsub__(self, other: IntLike) -> Poly:
        return poly(other) + (-self)

    def __mul__(self, other: IntLike) -> Poly:
        o = poly(other)
        if not o.terms:
            c = o.const
            return (
                self if c == 1 else ZERO if c == 0 else Poly({m: k * c for m, k in self.terms.items()}, self.const * c)
            )
        if not self.terms:
            return o * self.const
        total = ZERO
        for m, c in o.terms.items():
            terms: dict[Monomial, int] = {}
            for n, k in self.terms.items():
                product = _ordered(m + n)
                terms[product] = terms.get(product, 0) + k * c
            if self.const:
                terms[m] = terms.get(m, 0) + self.const * c
            total = total + Poly({t: v for t, v in terms.items() if v}, 0)
        return total + self * o.const

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> Poly:
        """Floor division by a positive number."""
        by = poly(other)
        if by == ONE:
            return self
        if not self.terms and not by.terms:
            return Poly({}, self.const // by.const)
        whole, rest = self.divide(by)
        if rest is ZERO or (not rest.terms and not by.terms):
            return whole
        return whole + Poly({(FloorDiv(rest, by),): 1}, 0)

    def __mod__(self, other: IntLike) -> Poly:
        """Remainder by a positive number."""
        by = poly(other)
        if by == ONE:
            return ZERO
        if not self.terms and not by.terms:
            return Poly({}, self.const % by.const)
        _, rest = self.divide(by)
        if rest is ZERO or (not rest.terms and not by.terms):
            return rest
        return Poly({(Mod(rest, by),): 1}, 0)

    def divide(self, by: Poly) -> tuple[Poly, Poly]:
        """Quotient and rest, self = quotient * by + rest, with the terms that `by` divides exactly in the quotient.

        By several terms it is long division, by the one of the highest degree.
        """
        if not by.terms:
            d = by.const
            whole = Poly({m: c // d for m, c in self.terms.items() if c % d == 0}, self.const // d)
            rest = Poly({m: c for m, c in self.terms.items() if c % d}, self.const % d)
            return whole, (ZERO if rest == ZERO else rest)
        if len(by.terms) == 1 and by.const == 0:
            ((mono, k),) = by.terms.items()
            whole_terms: dict[Monomial, int] = {}
            rest_terms: dict[Monomial, int] = {}
            for m, c in self.terms.items():
                left = _without(m, mono)
                if left is None or c % k:
                    rest_terms[m] = c
                elif left:
                    whole_terms[left] = c // k
                else:
                    whole_terms[()] = c // k
            const = whole_terms.pop((), 0)
            rest = Poly(rest_terms, self.const)
            return Poly(whole_terms, const), (ZERO if rest == ZERO else rest)
        return (ONE, ZERO) if self == by else self._long_division(by)

    def _long_division(self, by: Poly) -> tuple[Poly, Poly]:
        lead, k = max(by.terms.items(), key=_rank)
        quotient, rest = ZERO, self
        for _ in range(len(self.terms) * len(by.terms)):
            found = [(m, c) for m, c in rest.terms.items() if c % k == 0 and _without(m, lead) is not None]
            if not found:
                break
            m, c = max(found, key=_rank)
            part = math.prod(map(poly, _without(m, lead) or ()), start=ONE) * (c // k)
            quotient, rest = quotient + part, rest - part * by
        return quotient, (ZERO if rest == ZERO else rest)

    # -- questions
    @property
    def is_const(self) -> bool:
        """Is it a number?"""
        return not self.terms

    @property
    def exprs(self) -> tuple[Any, ...]:
        """The expressions inside gathers."""
        found = self._exprs
        if found is None:
            inner = [part for m in self.terms for a in m for part in a.parts]
            found = self._exprs = tuple(
                [e for part in inner for e in (part.exprs if isinstance(part, Poly) else (part,))]
            )
        return found

    def atoms(self) -> Iterator[Atom]:
        """The atoms of this polynomial, not those inside them."""
        for m in self.terms:
            yield from m

    def coefficient(self, atom: Atom) -> Poly | None:
        """The factor of `atom` where the polynomial is linear in it; None where `atom` hides elsewhere."""
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            n = m.count(atom)
            if n > 1 or any(a is not atom and a != atom and mentions(a, atom) for a in m):
                return None
            if n == 1:
                left = _without(m, (atom,)) or ()
                terms[left] = terms.get(left, 0) + c
        const = terms.pop((), 0)
        return Poly(terms, const)

    def mentions(self, atom: Atom) -> bool:
        """Is `atom` anywhere in the polynomial, also inside of other atoms?"""
        return bool(self.terms) and (atom in deep_atoms(self) or any(e.mentions(atom) for e in self.exprs))

    def has(self, kind: type[Atom]) -> bool:
        """Is there an atom of a kind in it, also inside of other atoms?"""
        return any(isinstance(a, kind) for a in deep_atoms(self))

    def evaluate(self, values: Callable[[Atom], int]) -> int:
        """The number that this polynomial is, `values` giving each atom's."""
        total = self.const
        for m, c in self.terms.items():
            for a in m:
                c *= atom_value(a, values)
            total += c
        return total

    def substitute(self, change: Callable[[Atom], IntLike | None]) -> Poly:
        """The polynomial with atoms replaced; `change` returns None for an atom that stays."""
        if not self.terms:
            return self
        terms: dict[Monomial, int] = {}
        const, changed = self.const, False
        for m, c in self.terms.items():
            product: IntLike = ONE
            for a in m:
                new = change(a)
                if new is None:
                    new = rebuild(a, change) if a.parts else a
                changed = changed or new is not a
                product = new if product is ONE else poly(product) * new
            p = poly(product)
            const += c * p.const
            for n, k in p.terms.items():
                total = terms.get(n, 0) + c * k
                if total:
                    terms[n] = total
                else:
                    del terms[n]
        return _rejoined(Poly(terms, const)) if changed else self

    def __str__(self) -> str:
        if not self.terms:
            return str(self.const)
        parts = []
        # each text is made once: they nest
        for atoms, c in sorted(([str(a) for a in m], c) for m, c in self.terms.items()):
            body = "*".join(atoms)
            parts.append(body if c == 1 else f"-{body}" if c == -1 else f"{c}*{body}")
        text = " + ".join(parts) + (f" + {self.const}" if self.const else "")
        return text.replace("+ -", "- ")

    __repr__ = __str__


ZERO, ONE = Poly({}, 0), Poly({}, 1)


def poly(x: IntLike) -> Poly:
    """An int or an atom as a polynomial."""
    if isinstance(x, Poly):
        return x
    if isinstance(x, Atom):
        return Poly({(x,): 1}, 0)
    return Poly({}, int(x))


def _rank(term: tuple[Monomial, int]) -> tuple[int, str]:
    """Terms of a higher degree are divided first; what that leaves is of a lower one."""
    return len(term[0]), str(term[0])


def _ordered(m: Monomial) -> Monomial:
    return m if len(m) < 2 else tuple(sorted(m, key=str))


def _without(m: Monomial, drop: Monomial) -> Monomial | None:
    """m / drop, or None where `drop` does not divide m."""
    left = list(m)
    for a in drop:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def _rejoined(p: Poly) -> Poly:
    """A polynomial with ``x`` in place of ``x // n * n + x % n``: a flat index, taken apart and put together."""
    for m, c in p.terms.items():
        for a in m:
            if isinstance(a, Mod):
                factor = math.prod(map(poly, _without(m, (a,)) or ()), start=ONE) * c
                for quotient in _quotients(a.arg, a.by):
                    rows = factor * a.by * quotient
                    if all(p.terms.get(n) == k for n, k in rows.terms.items()):
                        return _rejoined(p - rows - factor * a + factor * a.arg)
    return p


def _quotients(x: Poly, by: Poly) -> Iterator[Poly]:
    """``x // by`` and, where `x` has a quotient ``y // n`` in it, the same as a quotient by ``n * by``."""
    yield poly(FloorDiv(x, by))
    for m, c in x.terms.items():
        if c == 1 and len(m) == 1 and isinstance(a := m[0], FloorDiv):
            yield ((x - a) * a.by + a.arg) // (a.by * by)


def deep_atoms(p: Poly) -> Mapping[Atom, None]:
    """The atoms of a polynomial and those inside them, but for those of expressions, outer ones first: the keys, which
    are a set that has an order."""
    found = p._deep
    if found is None:
        found = {}
        for m in p.terms:
            for a in m:
                found[a] = None
                for q in a.parts:
                    if isinstance(q, Poly) and q.terms:
                        found.update(deep_atoms(q))
        p._deep = found
    return found


def mentions(a: Atom, atom: Atom) -> bool:
    """Is `atom` somewhere inside `a`?"""
    return any(p.mentions(atom) for p in a.parts)


def rebuild(a: Atom, change: Callable[[Atom], IntLike | None]) -> IntLike:
    """`a` with the atoms inside it replaced; `a` itself where none was."""
    match a:
        case FloorDiv() | Mod():
            arg, by = a.arg.substitute(change), a.by.substitute(change)
            if arg is a.arg and by is a.by:
                return a
            return arg // by if isinstance(a, FloorDiv) else arg % by
        case Extremum():
            x, y = a.a.substitute(change), a.b.substitute(change)
            return a if x is a.a and y is a.b else extremum(a.which, x, y)
        case Boundary():
            arg, extent = a.arg.substitute(change), a.extent.substitute(change)
            return a if arg is a.arg and extent is a.extent else boundary(a.mode, arg, extent)
        case Indirect():
            expr = a.expr.substitute(change)
            axis = None if a.extent is None else a.extent.substitute(change)
            return a if expr is a.expr and axis is a.extent else Indirect(expr, axis)
    return a


def extremum(which: str, a: IntLike, b: IntLike) -> Poly:
    """min or max of two, decided now where one is never the larger."""
    a, b = poly(a), poly(b)
    if is_never_above(a, b):
        return a if which == "min" else b
    if is_never_above(b, a):
        return b if which == "min" else a
    return poly(Extremum(which, a, b))


def boundary(mode: str, arg: IntLike, extent: IntLike) -> Poly:
    """`Boundary`, or its value where index and extent are constants."""
    arg, extent = poly(arg), poly(extent)
    if mode == "wrap":
        arg = _unwrapped(arg, extent)
    if arg.is_const and extent.is_const:
        return poly(boundary_value(mode, arg.const, extent.const))
    return poly(Boundary(mode, arg, extent))


def _unwrapped(p: Poly, extent: Poly) -> Poly:
    """An index that is about to wrap around, without the wraps by the same extent that it was made of."""
    inner = [
        (a, c) for (a, *others), c in p.terms.items() if not others and isinstance(a, Boundary) and a.mode == "wrap"
    ]
    return sum(((poly(a.arg) - a) * c for a, c in inner if a.extent == extent), start=p)


def boundary_value(mode: str, i: int, n: int) -> int:
    """The index in [0, n) that boundary `mode` puts in place of `i`."""
    if mode == "clamp":
        return min(max(i, 0), n - 1)
    if mode == "wrap":
        return i % n
    if mode == "symmetric":
        i %= 2 * n
        return min(i, 2 * n - 1 - i)
    if n == 1:
        return 0
    i %= 2 * n - 2
    return min(i, 2 * n - 2 - i)


def atom_value(a: Atom, values: Callable[[Atom], int]) -> int:
    """The number that an atom is."""
    match a:
        case FloorDiv():
            return a.arg.evaluate(values) // a.by.evaluate(values)
        case Mod():
            return a.arg.evaluate(values) % a.by.evaluate(values)
        case Extremum():
            pick = min if a.which == "min" else max
            return pick(a.a.evaluate(values), a.b.evaluate(values))
        case Boundary():
            return boundary_value(a.mode, a.arg.evaluate(values), a.extent.evaluate(values))
    return values(a)


def lower_bound(n: Poly) -> int:
    """A constant lower bound of a length; sizes that are not constants are above `SMALL`."""
    total = n.const
    for m, c in n.terms.items():
        if c < 0 or not all(isinstance(a, Sym) for a in m):
            return 0
        total += c * (SMALL + 1) ** len(m)
    return total


@lru_cache(maxsize=1 << 14)
def is_never_above(a: Poly, b: Poly, depth: int = MAX_DEPTH) -> bool:
    """Is one polynomial over sizes and loop variables provably <= another?

    Args:
        depth: how many minima and maxima, one inside another, are looked into.
    """
    if is_never_negative(b - a):
        return True
    x, y = _extremum_of(a), _extremum_of(b)
    if depth == 0 or (x is None and y is None):
        return False
    below = partial(is_never_above, depth=depth - 1)
    if x is not None and y is not None and x[0] == y[0] and below(x[1], y[1]) and below(x[2], y[2]):
        return True
    if x is not None and (any if x[0] == "min" else all)(below(p, b) for p in x[1:]):
        return True
    return y is not None and (any if y[0] == "max" else all)(below(a, p) for p in y[1:])


def _extremum_of(p: Poly) -> tuple[str, Poly, Poly] | None:
    """`which`, and the two that a polynomial is the smaller or the larger of."""
    if len(p.terms) == 1:
        ((m, c),) = p.terms.items()
        if c == 1 and len(m) == 1 and isinstance(m[0], Extremum):
            return m[0].which, m[0].a + p.const, m[0].b + p.const
    return None


def is_never_negative(p: Poly) -> bool:
    """Is a polynomial over sizes provably >= 0, as sizes are above `SMALL`?

    Quotients by constants are bounded by what they are rounded from: ``(a - k + 1) / k <= a // k <= a / k``.
    """
    for m, c in p.terms.items():
        if is_quotient(m):
            least, k = without_quotient(p, m, above=False)
            return k > 0 and is_never_negative(least)
        if c < 0 or not all(isinstance(a, Sym) for a in m):
            return False
    return lower_bound(p) >= 0


def is_quotient(m: Monomial) -> bool:
    """Is a term a quotient by a constant?"""
    return len(m) == 1 and isinstance(m[0], FloorDiv) and m[0].by.is_const


def without_quotient(p: Poly, m: Monomial, above: bool) -> tuple[Poly, int]:
    """What is never below (`above`), or never above, `k` times a polynomial, without such a term, by whose divisor `k`.

    ``(a - k + 1) / k <= a // k <= a / k``
    """
    quotient, c = m[0], p.terms[m]
    assert isinstance(quotient, FloorDiv)
    a, k = quotient.arg, quotient.by.const
    return (p - Poly({m: c}, 0)) * k + (a if (c > 0) == above else a - (k - 1)) * c, k


def sizes_value(p: Poly, sizes: Mapping[str, int]) -> int:
    """The number that a polynomial over sizes is."""

    def value(a: Atom) -> int:
        assert isinstance(a, Sym)
        return sizes[a.name]

    return p.evaluate(value) if p.terms else p.const
