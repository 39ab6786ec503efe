"""Integer polynomials compute what Python's integers compute."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hjit.trace.ir.expressions import Load, Op, mentioned_dims
from hjit.trace.ir.poly import (
    ONE,
    SMALL,
    ZERO,
    Dim,
    Extremum,
    Indirect,
    Poly,
    Sym,
    boundary,
    boundary_value,
    extremum,
    is_never_above,
    is_never_negative,
    poly,
)

NAMES = ("h", "w")
VALUES = {"h": 37, "w": 18}


def value(p: Poly, dims: tuple[int, ...] = (5, 3)) -> int:
    return p.evaluate(lambda a: VALUES[a.name] if isinstance(a, Sym) else dims[a.k])


@st.composite
def polys(draw: st.DrawFn, depth: int = 3) -> Poly:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.sampled_from(
                [poly(Sym("h")), poly(Sym("w")), poly(Dim(0)), poly(Dim(1)), poly(draw(st.integers(-9, 9)))]
            )
        )
    a, b = draw(polys(depth - 1)), draw(polys(depth - 1))
    op = draw(st.sampled_from(["+", "-", "*", "//", "%"]))
    divisor = draw(st.sampled_from([poly(2), poly(3), poly(Sym("w"))]))
    return {"+": a + b, "-": a - b, "*": a * b, "//": a // divisor, "%": a % divisor}[op]


@given(polys(), polys(), st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_arithmetic_is_that_of_integers(a: Poly, b: Poly, n: int) -> None:
    assert value(a + b) == value(a) + value(b)
    assert value(a - b) == value(a) - value(b)
    assert value(a * b) == value(a) * value(b)
    assert value(a // n) == value(a) // n
    assert value(a % n) == value(a) % n
    assert value(extremum("min", a, b)) == min(value(a), value(b))
    assert value(extremum("max", a, b)) == max(value(a), value(b))


@st.composite
def bounds(draw: st.DrawFn, depth: int = 4) -> Poly:
    """Minima and maxima, as bounds of regions are."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        leaf = draw(st.sampled_from([poly(Sym("h")), poly(Sym("w")), poly(Dim(0)), poly(Dim(0)) * 2, ZERO]))
        return leaf + draw(st.integers(-20, 3))
    a, b = draw(bounds(depth - 1)), draw(bounds(depth - 1))
    op = draw(st.sampled_from(["min", "max", "min", "max", "//", "+"]))
    return extremum(op, a, b) if op in ("min", "max") else a // 3 if op == "//" else a + draw(st.integers(-3, 3))


@given(bounds(), bounds(), st.integers(SMALL + 1, 40), st.integers(SMALL + 1, 40), st.integers(-30, 60))
@settings(max_examples=400, deadline=None)
def test_what_is_decided_of_minima_holds_for_all_sizes(a: Poly, b: Poly, h: int, w: int, x: int) -> None:
    def at(p: Poly) -> int:
        return p.evaluate(lambda a: {"h": h, "w": w}[a.name] if isinstance(a, Sym) else x)

    assert not is_never_above(a, b) or at(a) <= at(b)
    assert not is_never_negative(a) or at(a) >= 0
    for which, pick in (("min", min), ("max", max)):
        assert at(extremum(which, a, b)) == pick(at(a), at(b))


def test_minima_of_what_is_clamped_alike_are_decided() -> None:
    x, h = poly(Dim(0)), poly(Sym("h"))

    def clamped(p: Poly) -> Poly:
        return extremum("min", extremum("max", p, ZERO), h - 1)

    assert extremum("min", clamped(x - 1), clamped(x)) == clamped(x - 1)
    assert extremum("max", clamped(clamped(x) + 1), clamped(clamped(x))) == clamped(clamped(x) + 1)
    assert clamped(clamped(x)) == clamped(x)
    assert extremum("max", ZERO, extremum("min", h - 1, 2 * h - 40)) != ZERO, "it may be below for a small size"
    assert extremum("min", (h + 1) // 2, h - 4) == (h + 1) // 2
    assert isinstance(next(iter(extremum("min", (h + 1) // 2, h - 9).terms))[0], Extremum)


@given(polys(), polys())
@settings(max_examples=100, deadline=None)
def test_equal_sums_are_equal_objects(a: Poly, b: Poly) -> None:
    assert a + b == b + a
    assert hash(a + b) == hash(b + a)
    assert a + b - b == a
    assert a - a == ZERO


@pytest.mark.parametrize("mode", ["clamp", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_boundary_modes_are_those_of_pad(mode: str, n: int) -> None:
    import numpy as np

    name = {"clamp": "edge"}.get(mode, mode)
    padded = np.pad(np.arange(n), 9, mode=name)
    assert [boundary_value(mode, k - 9, n) for k in range(n + 18)] == list(padded)


def test_division_moves_what_divides_exactly() -> None:
    x = poly(Dim(0))
    assert (x * 6 + 3) // 3 == x * 2 + 1
    assert (x * 6 + 5) % 3 == poly(2)
    w = poly(Sym("w"))
    assert (x * w) // w == x


@given(polys(), polys())
@settings(max_examples=200, deadline=None)
def test_quotients_by_several_terms_and_their_rests_are_the_whole(a: Poly, b: Poly) -> None:
    h, w = poly(Sym("h")), poly(Sym("w"))
    by = w * 2 - h - 3
    quotient, rest = (a * by + b).divide(by)
    assert quotient * by + rest == a * by + b


def test_flat_indices_of_crops_are_taken_apart() -> None:
    h, w, y, x = poly(Sym("h")), poly(Sym("w")), poly(Dim(0)), poly(Dim(1))
    assert ((h - 4) * (w - 2)).divide(w - 2) == (h - 4, poly(0))
    assert (y * (w - 2) + x).divide(w - 2) == (y, x)
    assert (y * (w - 2)) // (w - 2) == y and (y * (w - 2)) % (w - 2) == poly(0)


def put_together(shape: list[Poly], flat: Poly) -> Poly:
    """The flat index of rows, columns, ... that a flat index was taken apart into."""
    parts: list[Poly] = []
    for k in range(len(shape)):
        below = math.prod(shape[k + 1 :], start=ONE)
        parts.append(flat // below % shape[k] if k else flat // below)
    row_major = sum((poly(Dim(k)) * math.prod(shape[k + 1 :], start=ONE) for k in range(len(shape))), start=ZERO)
    return row_major.substitute(lambda a: parts[a.k] if isinstance(a, Dim) else None)


def test_flat_indices_that_were_taken_apart_are_put_together() -> None:
    h, w, x, three = poly(Sym("h")), poly(Sym("w")), poly(Dim(0)), poly(3)
    for flat in (x - 1, x * w + Dim(1) - 1, boundary("wrap", x * 3 * w + Dim(1) - 5, h * w * 3)):
        for shape in ([h, w], [h, w, three], [h, three, w], [h, w, three, poly(2)], [three, three, w]):
            assert put_together(shape, flat) == flat


@given(polys(), st.sampled_from([poly(2), poly(3), poly(Sym("w"))]), st.integers(-3, 3))
@settings(max_examples=200, deadline=None)
def test_what_is_put_together_has_its_value(a: Poly, by: Poly, factor: int) -> None:
    found = (poly(Dim(0)) * by + Dim(1) * poly(factor)).substitute(
        lambda d: (a // by, a % by)[d.k] if isinstance(d, Dim) else None
    )
    assert value(found) == value(a) // value(by) * value(by) + value(a) % value(by) * factor


def test_wraps_inside_of_a_wrap_by_the_same_extent_are_none() -> None:
    x, n = poly(Dim(0)), poly(Sym("h"))
    once = boundary("wrap", x - 1, n)
    assert boundary("wrap", once * 2 + 3 - n, n) == boundary("wrap", x * 2 + 1 - n, n)
    assert boundary("wrap", once - 1, n + 1) != boundary("wrap", x - 2, n + 1)
    for k in range(-50, 50):
        assert value(boundary("wrap", boundary("wrap", x + k, n) * 3 - 70, n)) == (3 * (5 + k) - 70) % 37


def test_substitution_reaches_into_boundaries() -> None:
    p = boundary("clamp", poly(Dim(0)) - 1, poly(Sym("h")))
    q = p.substitute(lambda a: poly(Dim(0)) + 1 if a == Dim(0) else None)
    assert q == boundary("clamp", poly(Dim(0)), poly(Sym("h")))
    assert p.substitute(lambda a: None) is p


def test_coefficient_says_where_it_is_linear() -> None:
    x, h = poly(Dim(0)), poly(Sym("h"))
    assert (x * 3 + h).coefficient(Dim(0)) == poly(3)
    assert (x * h).coefficient(Dim(0)) == h
    assert (x // 2).coefficient(Dim(0)) is None
    assert h.coefficient(Dim(0)) == ZERO
    assert ONE.coefficient(Dim(0)) == ZERO


def test_an_index_away_from_the_borders_has_no_bound() -> None:
    inside = 2 * poly(Dim(0)) - 1
    bounded = boundary("clamp", inside, poly(Sym("h")))
    assert bounded.unbounded == inside and inside.unbounded == inside
    assert (bounded + 1).unbounded == bounded + 1 and (2 * bounded).unbounded == 2 * bounded


def test_indices_of_arrays_inside_others_are_ordered_and_mentioned_without_walking_them_twice() -> None:
    p = poly(Dim(1))
    for step in range(60):  # each twice in the next one: 2**60 in a text, or a walk, that does not share them
        x = Load(f"table{step}", (p,), np.int64)
        p = poly(Indirect(Op("maximum", (x, Op("add", (x, x), np.int64)), np.int64), None)) * Dim(0)
    assert mentioned_dims(p) == {0, 1}
    assert p.mentions(Dim(1)) and not p.mentions(Dim(2))
    assert len(str(p)) < 10_000
    other = poly(Indirect(Load("table", (p + 1,), np.int64), None))
    assert str(other) != str(poly(Indirect(Load("table", (p + 2,), np.int64), None)))
    assert other * p == p * other
