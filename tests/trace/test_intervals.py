"""Intervals hold every index that the iterations they stand for read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hjit.trace.intervals import Interval, interval
from hjit.trace.poly import Dim, Poly, Sym, bound, poly

N = 23


@st.composite
def indices(draw: st.DrawFn) -> Poly:
    p = poly(Dim(0)) * draw(st.integers(1, 3)) + draw(st.integers(-4, 4)) + poly(Dim(1)) * draw(st.integers(0, 2))
    if draw(st.booleans()):
        p = p // draw(st.integers(2, 3))
    if draw(st.booleans()):
        p = bound(draw(st.sampled_from(["clamp", "reflect", "symmetric"])), p, poly(Sym("n")))
    return p


@given(indices(), st.integers(0, 12), st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_every_index_is_inside(p: Poly, low: int, length: int, taps: int) -> None:
    ranges = {0: Interval.of(poly(low), poly(low + length)), 1: Interval.of(poly(0), poly(taps - 1))}
    found = interval(p, ranges)
    assert found is not None

    def number(q: Poly, d0: int = 0, d1: int = 0) -> int:
        return q.evaluate(lambda a: N if isinstance(a, Sym) else (d0, d1)[a.k])

    first, last = number(found.low), number(found.high)
    for d0 in range(low, low + length + 1):
        for d1 in range(taps):
            assert first <= number(p, d0, d1) <= last


def test_the_loose_length_of_a_window_is_a_constant() -> None:
    row, n = poly(Sym("y")), poly(Sym("n"))
    around = [interval(bound("reflect", poly(Dim(0)) + k, n), {0: Interval.point(row)}) for k in (-2, 0, 2)]
    assert all(around)
    total = around[0].hull(around[1]).hull(around[2])  # type: ignore[union-attr,arg-type]
    assert total.length == poly(5)


def test_what_falls_as_the_dimension_grows_is_refused() -> None:
    assert interval(poly(Sym("n")) - poly(Dim(0)), {0: Interval.point(poly(3))}) is None
    assert interval(bound("wrap", poly(Dim(0)), poly(Sym("n"))), {0: Interval.point(poly(3))}) is None
