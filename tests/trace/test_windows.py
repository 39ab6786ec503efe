"""Long windows along an axis, which are combined from blocks that neighbours share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hjit
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ops.limits import MIN_BLOCKED_WINDOW
from hjit.trace.ops.stencils.ndimage_windows import block_length, blocks
from hjit.trace.passes.canonical import canonicalise
from tests.trace.helpers import check
from tests.trace.test_canonical import graphs
from tests.trace.test_ndimage import DTYPES, MODES, image

FILTERS = {"add": ndi.uniform_filter1d, "minimum": ndi.minimum_filter1d, "maximum": ndi.maximum_filter1d}
SIZES = (MIN_BLOCKED_WINDOW - 1, MIN_BLOCKED_WINDOW, 17, 25, 31, 32, 64, 130, 307)
quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(
    st.sampled_from(sorted(FILTERS)),
    st.sampled_from(DTYPES),
    st.sampled_from(MODES),
    st.sampled_from(SIZES),
    st.sampled_from([(1, 1), (1, 40), (19, 23), (33, 5), (3, 120)]),
    st.integers(0, 99),
)
def test_numbers_are_scipy_s(name: str, dtype: str, mode: str, size: int, shape: Any, seed: int) -> None:
    origin = (-1, 0, 1)[seed % 3] * (size // 2 - 1)

    def f(a: Any) -> Any:
        return FILTERS[name](a, size, axis=seed % 2, mode=mode, cval=2, origin=origin)

    check(f, image(shape, dtype, seed), exact=name != "add" or np.dtype(dtype).kind != "f")


@pytest.mark.parametrize("size", [31, 48])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FILTERS)
def test_compiled(name: str, dtype: str, size: int) -> None:
    def f(a: Any) -> Any:
        smooth = FILTERS[name](a, size, axis=0)
        return FILTERS[name](smooth, size, axis=1, mode="nearest") - a

    p = hjit.pipeline(f, on_unsupported="raise", tune=False)
    for shape in ((200, 130), (31, 90), (7, 5)):
        a = image(shape, dtype)
        if name == "add" and a.dtype.kind == "f":
            np.testing.assert_allclose(p(a), f(a), rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(p(a), f(a))
    assert not p.stats.fallbacks


@pytest.mark.parametrize("size", [MIN_BLOCKED_WINDOW - 1, 31])
def test_extremes_of_both_zeros(size: int) -> None:
    a = np.where(image((60, 90)) > 0, 0.0, -0.0)
    for name in ("minimum", "maximum"):
        found, expected = (
            f(a)
            for f in (hjit.pipeline(lambda a: FILTERS[name](a, size), tune=False), lambda a: FILTERS[name](a, size))
        )
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def operations(f: Callable[..., Any], *args: Any) -> int:
    """Of an element, in all stages."""
    graph = canonicalise(graphs(f, *args)[0])
    return sum(cost(s.initial) for s in graph.stages if s.initial is not None)


def test_long_windows_take_few_operations() -> None:
    a = image((400, 500), "int32")
    assert operations(lambda a: ndi.maximum_filter1d(a, 9), a) == 8
    assert operations(lambda a: ndi.maximum_filter1d(a, 31), a) == 10
    assert operations(lambda a: ndi.maximum_filter1d(a, 307), a) < 40


@pytest.mark.parametrize("name", FILTERS)
def test_blocks_cover_each_element(name: str) -> None:
    for size in range(MIN_BLOCKED_WINDOW, 400):
        length = block_length(size, name)
        starts, rest = blocks(size, length, name)
        covered = [k for s in starts for k in range(s, s + length)] + rest
        assert set(covered) == set(range(size)) and starts == sorted(starts)
        assert name != "add" or covered == list(range(size)), "each of them once, in their order"
        assert length + len(starts) + len(rest) <= 2 * size**0.5 + 12
