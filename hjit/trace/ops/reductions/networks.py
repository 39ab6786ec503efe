"""Sorting networks: the order of a few elements, without a branch.

The elements are expressions; a network of compare-exchange steps (Batcher's odd-even merge sort) puts them in order,
and what a result does not need of it is never part of the Graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.arguments import count
from hjit.trace.ops.limits import MAX_SELECTED, MAX_SORTED, MIN_PLACES
from hjit.trace.tracing.arrays.tracer import Tracer

_BOOL = np.dtype(bool)


@lru_cache(maxsize=64)
def network(n: int) -> tuple[tuple[int, int], ...]:
    """The compare-exchange steps that sort `n` elements."""
    steps = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                steps += [
                    (i + j, i + j + k) for i in range(min(k, n - j - k)) if (i + j) // (2 * p) == (i + j + k) // (2 * p)
                ]
            k //= 2
        p *= 2
    return tuple(steps)


# The median of 9 and of 25 need fewer steps than a full sort (N. Devillard, Fast median search, 1998).
_MEDIAN_9 = "12 45 78 01 34 67 12 45 78 03 58 47 36 14 25 47 42 64 42"
_MEDIAN_25 = """ab de ce cd gh fh fg jk ik ij mn ln lm pq oq op st rt rs vw uw uv xy cf dg ag ad eh bh be lo io il mp
    jp jm nq kq kn ux rx ru vy sy sv tw ir js as aj kt bt bk lu cu cl mv dv dm nw ew en ox fx fo py gy gp hq ht nv px
    hn hp bj dl fr lr jr ek gm ho eg eh mo ko gh km gk gr mr hr hk ms hm ks mu ku km"""


@lru_cache(maxsize=64)
def median_network(n: int) -> tuple[tuple[int, int], ...]:
    """Steps after which the median of `n` elements stands in the middle; the others need not be in order."""
    if n == 9:
        return tuple((int(pair[0]), int(pair[1])) for pair in _MEDIAN_9.split())
    if n == 25:
        return tuple((ord(pair[0]) - ord("a"), ord(pair[1]) - ord("a")) for pair in _MEDIAN_25.split())
    return network(n)


def ranked(wires: list[Expr], rank: int) -> Expr:
    """The element that stands at `rank` when `wires` are sorted; exchanges that it does not need are never made."""
    wires = list(wires)
    steps = median_network(len(wires)) if 2 * rank + 1 == len(wires) else network(len(wires))
    needed, used = {rank}, []
    for i, j in reversed(steps):
        if i in needed or j in needed:
            used.append((i, j, i in needed, j in needed))
            needed |= {i, j}
    for i, j, low, high in reversed(used):
        a, b = wires[i], wires[j]
        if low:
            wires[i] = Op("minimum", (a, b), a.dtype)
        if high:
            wires[j] = Op("maximum", (a, b), a.dtype)
    return wires[rank]


def flag(name: str, *args: Expr) -> Expr:
    """An operation that gives a bool."""
    return Op(name, args, _BOOL)


def _exchange(a: Expr, b: Expr, nan_last: bool) -> tuple[Expr, Expr]:
    """The smaller and the larger of two."""
    dtype = a.dtype
    if dtype.kind != "f":
        return Op("minimum", (a, b), dtype), Op("maximum", (a, b), dtype)
    swap = flag("less", b, a)
    if nan_last:
        swap = flag("logical_or", swap, flag("isnan", a))
    return Op("select", (swap, b, a), dtype), Op("select", (swap, a, b), dtype)


def ordered(items: Sequence[Expr], steps: Sequence[tuple[int, int]], nan_last: bool = True) -> list[Expr]:
    """The expressions after the steps of a network."""
    found = list(items)
    for i, j in steps:
        found[i], found[j] = _exchange(found[i], found[j], nan_last)
    return found


def _before(a: Expr, b: Expr) -> Expr:
    """Does value `a` come before value `b`?"""
    less = flag("less", a, b)
    if a.dtype.kind != "f":
        return less
    return flag("logical_or", less, flag("logical_and", flag("isnan", b), flag("logical_not", flag("isnan", a))))


def arg_ordered(items: Sequence[Expr]) -> list[Expr]:
    """The numbers of the elements in their order, equal ones as they came."""
    values = list(items)
    places: list[Expr] = [Const(k, np.int64) for k in range(len(values))]
    for i, j in network(len(values)):
        a, b, p, q = values[i], values[j], places[i], places[j]
        tie = flag("logical_and", flag("logical_not", _before(a, b)), flag("less", q, p))
        swap = flag("logical_or", _before(b, a), tie)
        values[i], values[j] = Op("select", (swap, b, a), a.dtype), Op("select", (swap, a, b), a.dtype)
        places[i], places[j] = Op("select", (swap, q, p), p.dtype), Op("select", (swap, p, q), p.dtype)
    return places


def are_few(a: Tracer, axes: Sequence[int], most: int = MAX_SORTED) -> bool:
    """Are the elements along `axes` few enough for a network?"""
    return count(tuple(a.shape[k] for k in axes)) <= most


def are_few_to_select(a: Tracer, axes: Sequence[int]) -> bool:
    """Are they for one or a few order statistics, which do not need all of a network?"""
    others = tuple(n for k, n in enumerate(a.shape) if k not in axes)
    return are_few(a, axes) or (are_few(a, axes, MAX_SELECTED) and count(others) >= MIN_PLACES)


def elements(a: Tracer, axes: Sequence[int]) -> list[Expr]:
    """The elements along `axes`, over the dimensions of the other axes."""
    kept = {k: i for i, k in enumerate(k for k in range(a.ndim) if k not in axes)}
    found: list[Expr] = []
    for place in np.ndindex(*(int(a.shape[k]) for k in axes)):
        at = dict(zip(axes, place, strict=True))
        found.append(a.at([poly(at[k]) if k in at else poly(Dim(kept[k])) for k in range(a.ndim)]))
    return found
