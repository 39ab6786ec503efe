"""Intervals hold every index that the iterations they stand for read."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hjit.sched.analysis.footprint import NUMERIC, concrete
from hjit.trace.ir.intervals import INTS, POLYS, Interval, bounds_of, ends, interval, upper_bound, whole
from hjit.trace.ir.poly import Dim, Poly, Sym, Var, boundary, extremum, poly

N = 23


@st.composite
def indices(draw: st.DrawFn) -> Poly:
    p = poly(Dim(0)) * draw(st.integers(1, 3)) + draw(st.integers(-4, 4)) + poly(Dim(1)) * draw(st.integers(0, 2))
    if draw(st.booleans()):
        p = p // draw(st.integers(2, 3))
    if draw(st.booleans()):
        p = boundary(draw(st.sampled_from(["clamp", "reflect", "symmetric"])), p, poly(Sym("n")))
    return p


@given(indices(), st.integers(0, 12), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_every_index_is_inside(p: Poly, low: int, length: int, taps: int) -> None:
    ranges = {0: Interval.of(poly(low), poly(low + length)), 1: Interval.of(poly(0), poly(taps - 1))}
    found = interval(p, ranges, {0: Interval.of(poly(0), poly(19)), 1: ranges[1]})
    assert found is not None

    def number(q: Poly, d0: int = 0, d1: int = 0) -> int:
        return q.evaluate(lambda a: N if isinstance(a, Sym) else (d0, d1)[a.k])

    first, last = number(found.low), number(found.high)
    assert number(found.base + found.first) <= first or first >= 0
    for d0 in range(low, low + length + 1):
        for d1 in range(taps):
            assert first <= number(p, d0, d1) <= last


def test_the_loose_length_of_a_window_is_a_constant() -> None:
    row, n = poly(Sym("y")), poly(Sym("n"))
    around = [
        interval(boundary("reflect", poly(Dim(0)) + k, n), {0: Interval.point(row)}, {0: whole(n)}) for k in (-2, 0, 2)
    ]
    assert all(around)
    total = around[0].hull(around[1]).hull(around[2])  # type: ignore[union-attr,arg-type]
    assert total.length == poly(5)


@pytest.mark.parametrize("mode", ["clamp", "reflect", "symmetric"])
@given(st.integers(0, 20), st.integers(0, 6), st.sets(st.integers(-30, 30), min_size=1, max_size=9))
@settings(max_examples=100, deadline=None)
def test_the_ends_of_mirrored_indices_need_all_that_those_between_need(
    mode: str, low: int, length: int, offsets: set[int]
) -> None:
    n, domain = poly(Sym("n")), {0: whole(poly(Sym("n")))}
    every = [boundary(mode, poly(Dim(0)) + k, n) for k in sorted(offsets)]
    assert len(ends(every)) <= 2

    def hull(indices: Sequence[Poly]) -> tuple[int, ...]:
        total = None
        for p in indices:
            x = interval(p, {0: Interval.of(poly(low), poly(low + length))}, domain)
            assert x is not None
            total = x if total is None else total.hull(x)
        assert total is not None
        return tuple(q.evaluate(lambda _: N) for q in (total.low, total.high, total.base + total.first, total.length))

    assert hull(ends(every)) == hull(every)


def test_wrapped_indices_and_those_of_other_axes_are_ends_of_their_own() -> None:
    n, m = poly(Sym("n")), poly(Sym("m"))
    wrapped = [boundary("wrap", poly(Dim(0)) + k, n) for k in range(3)]
    others = [boundary("reflect", poly(Dim(0)) + k, x) for x in (n, m) for k in range(2)]
    assert ends([*wrapped, *others]) == (*wrapped, *others)


def test_what_falls_as_the_dimension_grows_is_turned_round() -> None:
    n = poly(Sym("n"))
    assert interval(n - poly(Dim(0)), {0: Interval.of(poly(3), poly(5))}, {}) == Interval.of(n - 5, n - 3)


def test_a_wrapped_index_needs_the_whole_axis() -> None:
    n = poly(Sym("n"))
    assert interval(boundary("wrap", poly(Dim(0)), n), {0: Interval.point(poly(3))}, {0: whole(n)}) == whole(n)


def test_the_loose_length_of_a_division_is_known() -> None:
    """Two rows of a halved image may lie in two of its rows or in one, wherever the tile begins."""
    v = poly(Var("v"))
    tile = Interval(v, v + 7, v, poly(0), poly(7))
    found = interval(poly(Dim(0)) // 2, {0: tile}, {})
    assert found is not None and found.length == poly(5)
    assert interval(
        (poly(Dim(0)) + 1) // 2, {0: Interval(v * 2, v * 2 + 7, v * 2, poly(0), poly(7))}, {}
    ).length == poly(5)  # type: ignore[union-attr]


@given(indices(), st.integers(0, 12), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_numbers_and_symbols_have_the_same_bounds(p: Poly, low: int, length: int, taps: int) -> None:
    """But where symbols cannot tell how far an index is ever beyond the axis: then they take all of it."""
    ranges = {0: Interval.of(poly(low), poly(low + length)), 1: Interval.of(poly(0), poly(taps - 1))}
    found = interval(p, ranges, {0: Interval.of(poly(0), poly(Sym("n")) + 9), 1: ranges[1]})
    assert found is not None
    numbers = bounds_of(concrete(p, {"n": N}), NUMERIC)([(float(low), float(low + length)), (0.0, taps - 1.0)])
    ends = [q.evaluate(lambda a: N) for q in found.clipped(poly(Sym("n"))).exact]
    assert ends in ([min(max(x, 0.0), N - 1.0) for x in numbers], [0, N - 1])


@given(st.integers(-9, 9), st.integers(0, 9), st.integers(1, 4), st.integers(-5, 5), st.integers(1, 9))
def test_an_index_is_solved_for_its_dimension(low: int, length: int, c: int, rest: int, n: int) -> None:
    x = low, low + length
    first, last = INTS.solved(x, c, rest, n)
    assert [d for d in range(n) if x[0] <= c * d + rest <= x[1]] == list(range(first, last + 1))
    assert POLYS.solved((poly(x[0]), poly(x[1])), poly(c), poly(rest), poly(n)) == (first, last)


def test_one_evaluation_has_a_range_of_constants() -> None:
    """Loads that differ by constants are one index with the least and the greatest of these."""
    assert bounds_of(poly(Dim(0)) * -2 + 3, NUMERIC, first=-1)([(1.0, 4.0)]) == (-9.0, 1.0)


def test_an_iteration_adds_the_last_elements_of_a_window() -> None:
    v = poly(Var("v"))
    window = Interval(v, v + 4, v, poly(0), poly(4))
    assert window.newest(1) == Interval(v + 4, v + 4, v, poly(4), poly(4))
    assert NUMERIC.newest((3.0, 7.0), 2.0) == (6.0, 7.0)


def test_the_hull_of_an_index_and_its_rounding_moves_with_it() -> None:
    x = poly(Var("x"))
    for other in (x // 2 * 2, (x + 3) // 4 * 8 - x - 1, 1 - x // 3 * 3 + x * 2):
        hull = Interval.point(x + 1).hull(Interval.point(other))
        assert hull is not None and hull.length.is_const and hull.base == x
        for at in range(-20, 20):
            value = dict.fromkeys(hull.base.atoms(), at)
            first, last = (p.evaluate(value.__getitem__) for p in (hull.base + hull.first, hull.base + hull.last))
            assert all(first <= p.evaluate(value.__getitem__) <= last for p in (x + 1, other))
    assert Interval.point(x).hull(Interval.point(x // 2)) is None


@pytest.mark.parametrize("mode", ["clamp", "reflect", "symmetric"])
def test_what_is_brought_into_an_axis_twice_moves_with_the_tile(mode: str) -> None:
    """As where one step of a chain is inlined into the next one."""
    h, x = poly(Sym("h")), poly(Var("x"))
    index = boundary(mode, boundary(mode, poly(Dim(0)) - 1, h) - 1, h)
    found = interval(index, {0: Interval.tile(x, 32, h - 1)}, {0: whole(h)})
    assert found is not None and found.base == x
    assert found.length.is_const and 32 <= found.length.const <= 40


def nested_quotient(n: Poly, by: int, times: int) -> Poly:
    return (n // by + 1) // 2 * times


@pytest.mark.parametrize("by, times", [(2, 4), (2, 3), (3, 5)])
def test_bounds_of_quotients_inside_others_hold(by: int, times: int) -> None:
    """As of an image that was halved twice and doubled twice: ``4 * ((n // 2 + 1) // 2)``."""
    n = poly(Sym("n"))
    p = nested_quotient(n * 2 * by, by, times) - n * times
    bound = upper_bound(p)
    assert bound is not None and upper_bound(-p) is not None
    assert bound <= times
    for k in range(17, 99):
        assert -upper_bound(-p) <= p.evaluate(lambda _, k=k: k) <= bound  # type: ignore[operator, misc]
    halved_twice = nested_quotient(n, 2, 4) - n
    assert upper_bound(halved_twice) == 2


def test_a_tile_cut_short_by_the_size_and_halved_has_a_constant_bound() -> None:
    begin, n = poly(Sym("begin")), poly(Sym("n"))
    length = extremum("min", begin + 32, n) - begin
    assert upper_bound(length) == 32
    assert upper_bound((length + 1) // 2) == 16
    assert upper_bound(extremum("max", begin + 32, n) - begin) is None
