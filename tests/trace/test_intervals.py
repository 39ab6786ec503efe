"""Intervals hold every index that the iterations they stand for read."""

from hypothesis import given
from hypothesis import strategies as st

from hjit.sched.analysis.footprint import NUMERIC
from hjit.trace.ir.intervals import INTS, POLYS, Interval, bounds_of
from hjit.trace.ir.poly import Dim, Poly, Sym, Var, boundary, poly

N = 23


@st.composite
def indices(draw: st.DrawFn) -> Poly:
    p = poly(Dim(0)) * draw(st.integers(1, 3)) + draw(st.integers(-4, 4)) + poly(Dim(1)) * draw(st.integers(0, 2))
    if draw(st.booleans()):
        p = p // draw(st.integers(2, 3))
    if draw(st.booleans()):
        p = boundary(draw(st.sampled_from(["clamp", "reflect", "symmetric"])), p, poly(Sym("n")))
    return p


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
