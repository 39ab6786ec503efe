"""Padding, rolling, differences and one-dimensional convolution give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hjit
from hjit.errors import TraceError
from tests.trace.helpers import check, interpreted
from tests.trace.test_joining import DTYPES, SHAPES, dtypes, graph_text, image, shapes

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
widths = st.tuples(st.tuples(st.integers(0, 70), st.integers(0, 70)), st.tuples(st.integers(0, 70), st.integers(0, 70)))


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.sampled_from(MODES), widths)
def test_pad(shape: tuple[int, ...], dtype: str, mode: str, width: Any) -> None:
    check(lambda x: np.pad(x, width, mode), image(shape, dtype))


@pytest.mark.parametrize(
    "width",
    [0, 2, (1, 2), [3], ((1, 2),), ((1, 2), (3, 0)), [[1], [2]], np.array([[1, 2], [0, 1]]), {0: 1}, {-1: (2, 1)}],
)
@pytest.mark.parametrize("mode", MODES)
def test_pad_widths(width: Any, mode: str) -> None:
    for shape in SHAPES:
        check(lambda x: np.pad(x, width, mode=mode), image(shape))


@pytest.mark.parametrize("values", [0, 3, 2.5, (1, 2), ((1, 2), (3, 4)), [[1], [2]], 300, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_values(values: Any, dtype: str) -> None:
    if dtype == "uint8" and values == -1:
        return
    for shape in SHAPES:
        check(lambda x: np.pad(x, ((1, 2), (3, 0)), constant_values=values), image(shape, dtype))


def test_constant_values_of_the_call() -> None:
    a = image((20, 30))
    check(lambda x, c: np.pad(x, 2, constant_values=c), a, 3.5)
    check(lambda x, c: np.pad(x, 2, constant_values=(c, x[0, 0])), a, 3)
    check(lambda x, w: np.pad(x, w), a, 3)
    check(lambda x: np.pad(x, x.shape[0] // 2, "edge"), image((40, 3)))
    check(lambda: np.pad(np.arange(4), 1, "reflect"))
    check(lambda x: np.pad(x, 1), image((0, 3)))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: np.pad(x, 1.5), TypeError),
        (lambda x: np.pad(x, -1), ValueError),
        (lambda x: np.pad(x, 1, "mirror"), ValueError),
        (lambda x: np.pad(x, 1, "edge", constant_values=1), ValueError),
        (lambda x: np.pad(x[:0], 1, "edge"), ValueError),
        (lambda x: np.pad(x, ((1, 2), (1, 2), (1, 2))), ValueError),
        (lambda x: np.roll(x, 1, 2), np.exceptions.AxisError),
        (lambda x: np.roll(x, (1, 2, 3), (0, 1)), ValueError),
        (lambda x: np.diff(x, -1), ValueError),
        (lambda x: np.diff(x[0, 0]), ValueError),
        (lambda x: np.gradient(x[:1]), ValueError),
        (lambda x: np.gradient(x, 1, 2, 3), TypeError),
        (lambda x: np.gradient(x, edge_order=3), ValueError),
        (lambda x: np.gradient(x, np.arange(5), axis=0), ValueError),
        (lambda x: np.gradient(x > 1), TypeError),
        (lambda x: np.convolve(x, x), ValueError),
        (lambda x: np.convolve(x[0], x[0, :0]), ValueError),
        (lambda x: np.correlate(x[0, :0], x[0]), ValueError),
        (lambda x: np.convolve(x[0], x[0], "mirror"), ValueError),
        (lambda x: np.ediff1d(x.astype(np.uint8), to_end=-1.5), TypeError),
    ],
)
def test_refuses_as_numpy_does(function: Any, kind: type[Exception]) -> None:
    a = image((20, 30))
    with pytest.raises(kind) as expected:
        function(a)
    with pytest.raises(kind) as got:
        interpreted(function, a)
    assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kwargs",
    [
        *({"mode": mode} for mode in ("maximum", "minimum", "mean", "median")),
        {"mode": "maximum", "stat_length": (2, 50)},
        {"mode": "mean", "stat_length": 3},
        {"mode": "reflect", "reflect_type": "odd"},
        {"mode": "symmetric", "reflect_type": "odd"},
        {"mode": "linear_ramp"},
        {"mode": "linear_ramp", "end_values": ((1.5, 2),)},
    ],
)
def test_modes_that_numpy_writes_in_python(kwargs: Any, dtype: str) -> None:
    exact = kwargs["mode"] != "mean" or np.dtype(dtype).kind != "f"
    for shape in ((20, 30), (1, 25), (17,)):
        check(lambda x: np.pad(x, 3, **kwargs), image(shape, dtype), exact=exact)


def test_a_mode_that_is_not_compiled() -> None:
    with pytest.raises(TraceError, match=r"numpy\.pad"):
        interpreted(lambda x: np.pad(x, 1, mode=lambda *a: None), image((20, 30)))


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.integers(-80, 80), st.sampled_from([None, 0, 1, -1, (0, 1), (0, 0)]))
def test_roll(shape: tuple[int, ...], dtype: str, shift: int, axis: Any) -> None:
    check(lambda x: np.roll(x, shift, axis), image(shape, dtype))


def test_roll_forms() -> None:
    a = image((20, 30))
    check(lambda x: np.roll(x, (1, -2), (0, 1)), a)
    check(lambda x: np.roll(x, [1, 2], 1), a)
    check(lambda x, k: np.roll(x, k, 0), a, 3)
    check(lambda x: np.roll(x, x.shape[1] // 2, 1), image((20, 40)))
    check(lambda x: np.roll(x, 1, 0), image((0, 3)))
    check(lambda x: np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1) - 4 * x, a)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, k: np.roll(x, k[0], 0),
        lambda x, k: np.roll(x, k[1]),
        lambda x, k: np.roll(x, (k[0], -k[1]), axis=(0, 1)),
        lambda x, k: np.roll(x, k[:2], axis=(0, 1)),
        lambda x, k: np.roll(x, (k[0], 3, k[1] * 50), axis=(0, 0, -1)),
        lambda x, k: np.roll(x, int(k.max()), axis=1) - np.roll(x, 1, axis=1),
        lambda x, k: np.roll(x, k[2].astype(np.uint8), axis=(0, 1)),
        lambda x, k: np.roll(np.arange(24.0), k[1]),
        lambda x, k: np.roll(x * 1j, k[0], axis=1),
        lambda x, k: np.roll(x.T, k[0], axis=1),
        lambda x, k: np.roll(x[:1], k[0], axis=0),
        lambda x, k: np.roll(x[:0], k[:2], axis=(0, 1)),
        lambda x, k: np.roll(x, np.argmax(np.fft.fft(x[0] * k[0]).real), axis=1),
    ],
)
def test_roll_by_computed_numbers_is_traced_once(f: Any) -> None:
    p = hjit.pipeline(f, cache="off")
    a = image((20, 30))
    for k in ([3, -4, 250], [0, 0, 0], [-1000, 1029, 7], [20, -30, 1]):
        ours, theirs = p(a, np.array(k)), f(a, np.array(k))
        np.testing.assert_array_equal(ours, theirs)
        assert (ours.dtype, ours.strides) == (theirs.dtype, theirs.strides)
    assert p.stats.traces == 1


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.integers(0, 3), st.integers(-2, 1))
def test_diff(shape: tuple[int, ...], dtype: str, n: int, axis: int) -> None:
    a = image(shape, dtype)
    check(lambda x: np.diff(x, n, axis), a)
    check(lambda x: np.diff(x, n, axis, prepend=x[:1, :1], append=0) if n else x, image((1, 1), dtype))
    check(lambda x: np.diff(x, axis=axis, append=x), a)


def test_ediff1d() -> None:
    for a in (image((20, 30)), image((1, 1)), image((7,), "int64")):
        check(lambda x: np.ediff1d(x), a)
        check(lambda x: np.ediff1d(x, to_end=[1, 2], to_begin=-5), a)


@pytest.mark.parametrize("shape", [(20, 30), (3, 3), (3, 40)])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("order", [1, 2])
def test_gradient(shape: tuple[int, ...], dtype: str, order: int) -> None:
    a = image(shape, dtype)
    check(lambda x: np.gradient(x, edge_order=order), a)
    check(lambda x: np.gradient(x, axis=1, edge_order=order), a)
    check(lambda x: np.gradient(x, 0.5, edge_order=order), a)
    check(lambda x, h: np.gradient(x, h, 2, edge_order=order), a, 0.7)
    check(lambda x: np.gradient(x, np.float64(0.3), axis=(1, 0), edge_order=order), a)
    check(lambda x: np.gradient(x, np.arange(x.shape[0]) * 2, axis=0, edge_order=order), a)
    check(lambda x, c: np.gradient(x, c, axis=0, edge_order=order), a, np.cumsum(image((shape[0],), "float64") + 1))


def test_gradient_of_two() -> None:
    check(lambda x: np.gradient(x), image((2, 2)))
    check(lambda x: np.gradient(x), image((33,)))


def test_trapezoid() -> None:
    a = image((20, 30), "float64")
    check(lambda x: np.trapezoid(x), a, exact=False)
    check(lambda x, d: np.trapezoid(x, dx=d, axis=0), a, 0.5, exact=False)
    check(lambda x, c: np.trapezoid(x, c, axis=0), a, np.sort(image((20,), "float64")), exact=False)
    check(lambda x: np.trapezoid(x, x), a, exact=False)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([np.convolve, np.correlate]),
    st.sampled_from([1, 2, 5, 20, 33]),
    st.sampled_from([1, 2, 3, 4, 7, 24]),
    st.sampled_from(["full", "same", "valid"]),
    st.sampled_from([*DTYPES, "float16"]),
    dtypes,
)
def test_convolve(function: Any, n: int, m: int, mode: Any, first: str, second: str) -> None:
    a, v = image((n,), first), image((m,), second, 1)
    taps = v.tolist()
    check(lambda x, w: function(x, w, mode), a, v, exact=False)
    check(lambda x: function(x, np.array(taps, dtype=second), mode), a, exact=False)
    check(lambda x: function(np.array(taps, dtype=second), x, mode), a, exact=False)


def test_convolve_keeps_infinities_apart() -> None:
    a = np.array([np.inf, *np.arange(20.0), -np.inf])
    check(lambda x: np.convolve(x, [1.0, 2.0, 1.0]), a)
    check(lambda x, v: np.convolve(x, v, "same"), a, np.array([1.0, 2.0, 1.0]))
    check(lambda x: np.convolve(x, [0.5, 0.5], mode="valid"), a)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.pad(x, 2),
        lambda x: np.pad(x, ((1, 2), (3, 4)), "reflect"),
        lambda x: np.pad(x, 1, constant_values=((1, 2), (3, 4))),
        lambda x: np.roll(x, 1, 0),
        lambda x: np.roll(x, -1),
        lambda x: np.diff(x, 2),
        lambda x: np.gradient(x),
        lambda x: np.convolve(x[0], [1, 2, 1]),
        lambda x: np.correlate(x[0], x[1, :5], "same"),
    ],
)
def test_one_graph_for_all_sizes(function: Any) -> None:
    assert graph_text(function, image((20, 30))) == graph_text(function, image((21, 37)))


def test_borders_are_not_selects() -> None:
    for function in (
        lambda x: np.pad(x, 2),
        lambda x: np.pad(x, 2, "symmetric"),
        lambda x: np.gradient(x, axis=0),
        lambda x: np.roll(x, 1, 1),
    ):
        assert "select" not in graph_text(function, image((20, 30)))
