"""Sorting networks and order statistics give what NumPy gives, NaN and ties included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hjit.trace.ir.key import graph_key
from hjit.trace.ops.reductions.counting import METHODS as quantile_methods
from hjit.trace.ops.reductions.networks import median_network, network
from tests.trace.helpers import check, interpreted, trace_of
from tests.trace.test_joining import DTYPES, graph_text, image

CASES: list[tuple[tuple[int, ...], Any]] = [
    ((20, 30, 3), -1),
    ((5, 20), 0),
    ((2, 9, 17), 1),
    ((1, 20), 0),
    ((32,), 0),
    ((3, 4, 5), (0, 2)),
    ((3, 3, 2), (0, 1)),
    ((5, 5, 2), (0, 1)),
    ((3, 2), None),
    ((1,), None),
]
METHODS = tuple(quantile_methods)


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0, nans: float = 0.1) -> np.ndarray[Any, Any]:
    """Few different values, so that there are ties; NaN and infinities where the dtype has them."""
    rng = np.random.default_rng(seed)
    a = (rng.random(shape) * 20).round().astype(dtype)
    if a.dtype.kind == "f":
        a[rng.random(shape) < nans] = np.nan
        a[rng.random(shape) < 0.05] = np.inf
        a -= a.dtype.type(7)
    return a


@pytest.mark.parametrize("n", range(1, 14))
def test_networks_sort_all_zeros_and_ones(n: int) -> None:
    lines = [(np.arange(1 << n) >> k) & 1 for k in range(n)]
    middle = [np.array(x) for x in lines]
    for steps, wires in ((network(n), lines), (median_network(n), middle)):
        for i, j in steps:
            wires[i], wires[j] = np.minimum(wires[i], wires[j]), np.maximum(wires[i], wires[j])
    assert all((a <= b).all() for a, b in itertools.pairwise(lines))
    assert (middle[n // 2] == lines[n // 2]).all()


def test_network_for_the_median_of_25() -> None:
    wires = list(np.random.default_rng(0).random((25, 4000)))
    expected = np.median(wires, axis=0)
    for i, j in median_network(25):
        wires[i], wires[j] = np.minimum(wires[i], wires[j]), np.maximum(wires[i], wires[j])
    np.testing.assert_array_equal(wires[12], expected)


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "uint64"])
@pytest.mark.parametrize(("shape", "axis"), [c for c in CASES if not isinstance(c[1], tuple)])
def test_sort(shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    a = sample(shape, dtype)
    check(lambda x: np.sort(x, axis), a)
    check(lambda x: np.argsort(x, axis, kind="stable"), a)


def test_ties_of_one_array_are_in_numpys_order() -> None:
    a = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 2.0, 1.0])
    check(lambda x: np.argsort(x), a)  # not stable in NumPy, where the processor has AVX-512
    check(lambda x: np.argsort(np.array([*a])) + x, 1)
    check(lambda x: (np.argsort(x), x.argsort(kind="stable")), np.arange(9, dtype=np.int16) // 4)


def test_sort_in_place_and_partition() -> None:
    def method(x: Any) -> Any:
        y = x.copy()
        y.sort(axis=0)
        return y, x.argsort(0, kind="stable")

    a = np.random.default_rng(1).permutation(np.arange(100.0)).reshape(5, 20)
    check(method, a)
    check(lambda x: np.partition(x, 2, axis=0)[2], a)
    check(lambda x: np.argpartition(x, (1, 2), axis=0)[1:3], a)
    check(lambda x: np.sort(x, 0), np.zeros((0, 20)))
    check(lambda x: np.sort(np.array([3, 1, 2])) + x, 2)


@pytest.mark.parametrize("dtype", [*DTYPES, "float16"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_median(shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    for nans in (0.0, 0.1):
        a = sample(shape, dtype, nans=nans)
        check(lambda x: np.median(x, axis), a)
        check(lambda x: np.median(x, axis=axis, keepdims=True), a)


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_nanmedian(shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    for nans in (0.1, 0.6):
        check(lambda x: np.nanmedian(x, axis), sample(shape, dtype, nans=nans))


def test_median_of_shifted_images() -> None:
    def filter3(x: Any) -> Any:
        p = np.pad(x, 1, mode="reflect")
        return np.median(
            np.stack([p[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3)]), axis=0
        )

    def windows(x: Any) -> Any:
        return np.median(np.lib.stride_tricks.sliding_window_view(x, (5, 5)), axis=(-2, -1))

    for dtype in ("uint8", "float32"):
        check(filter3, image((20, 30), dtype))
        check(windows, image((20, 30), dtype))


def test_out() -> None:
    def into(x: Any) -> Any:
        out = np.zeros(20)
        np.median(x, axis=0, out=out)
        return out

    check(into, image((5, 20)))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([c for c in CASES if c[1] is not None]),
    st.sampled_from([d for d in DTYPES if d != "bool"]),
    st.sampled_from(METHODS),
    st.one_of(st.floats(0, 100), st.integers(0, 100), st.lists(st.floats(0, 100), min_size=1, max_size=3)),
)
def test_percentile(case: Any, dtype: str, method: Any, q: Any) -> None:
    shape, axis = case
    a = sample(shape, dtype, nans=0.02)
    check(lambda x: np.percentile(x, q, axis, method=method, keepdims=True), a)
    check(lambda x: np.quantile(x, np.asarray(q) / 100, axis, method=method, keepdims=True), a)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    "q", [50, 30.0, np.float64(20), np.float32(12.5), (10, 20), [[10, 20], [30, 99]], np.array([5, 95]), 0, 100]
)
def test_forms_of_q(q: Any) -> None:
    check(lambda x: np.percentile(x, q, 0), sample((5, 20), "float32"))


@pytest.mark.filterwarnings("ignore:invalid value")
def test_q_of_the_call() -> None:
    a = sample((5, 20), "float32")
    check(lambda x, q: np.percentile(x, q, axis=0), a, 30.0)
    check(lambda x, q: np.percentile(x, [q, 50], axis=0), a, 30.0)
    check(lambda x, q: np.percentile(x, q * 50, axis=0), a, np.array([0.2, 1.9]))
    check(lambda x: np.percentile(x[:3], np.nanmin(x) + 20, axis=0), a)
    check(lambda x: np.quantile(x, 1, 0), a)
    check(lambda x: np.percentile(x, 25), image((3, 5)))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: np.percentile(x, 101, 0), ValueError),
        (lambda x: np.quantile(x, -0.1, 0), ValueError),
        (lambda x: np.percentile(x, 10, 0, method="best"), ValueError),
        (lambda x: np.percentile(x > 3, 30, 0), TypeError),
        (lambda x: np.sort(x, 2), np.exceptions.AxisError),
        (lambda x: np.median(x, (0, 0)), ValueError),
        (lambda x: np.partition(x, 9, 0), ValueError),
    ],
)
def test_refuses_as_numpy_does(function: Any, kind: type[Exception]) -> None:
    a = image((5, 20))
    with pytest.raises(kind):
        function(a)
    with pytest.raises(kind):
        interpreted(function, a)


def test_the_key_of_a_large_network_is_short() -> None:
    traced, _ = trace_of(lambda x: np.median(x, 0), image((25, 40)))
    assert len(graph_key(traced.recorder.graph((traced.result.name,))).text) < 30_000


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sort(np.stack([x, x + 1, x * 2]), 0),
        lambda x: np.median(np.stack([x, x + 1, x * 2]), 0),
        lambda x: np.percentile(x[:4], [30, 60], axis=0),
        lambda x: np.argsort(x[:3], 0),
    ],
)
def test_one_graph_for_all_sizes(function: Any) -> None:
    assert graph_text(function, image((20, 30))) == graph_text(function, image((21, 37)))
