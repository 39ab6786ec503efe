"""Error bounds of extern functions that have a rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning
from hjit.call.checks.first_calls import MAX_DOUBTS
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.recording.results import ExternResult
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx
from hjit.verify.externs import bounds, is_guess
from hjit.verify.tolerances import tolerances
from tests.inexact import verified
from tests.test_verify import wrong_from_now_on
from tests.trace.test_loop_programs import durbin

ERROR = 1e-3


def event(function: Any, rule: str) -> GraphBreak:
    return GraphBreak((), call=lambda *arrays: ExternResult((), (np.asarray(function(*arrays)),)), rule=rule)


def approx(a: Any, error: Any = ERROR) -> Approx:
    errors = np.broadcast_to(np.float64(error), a.shape)
    return Approx(a, (errors, errors, errors))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int64", "bool"])
@pytest.mark.parametrize(
    "function",
    [np.median, np.sort, lambda a: np.percentile(a, [0, 30, 100], axis=0, method="inverted_cdf"), np.nanmedian],
)
def test_all_elements_may_be_off_in_one_direction(function: Any, dtype: str) -> None:
    a = (np.random.default_rng(0).random((40, 50)) * 100).astype(dtype)
    error = ERROR if a.dtype.kind == "f" else 1.0
    found = bounds(event(function, "monotone"), [approx(a, error)], [np.asarray(function(a))])[0]
    assert found is not None
    top = np.inf if a.dtype.kind == "f" else 1 if dtype == "bool" else 255
    for sign in (-1, 1):
        off = np.asarray(function((a.astype(float) + sign * error).clip(0, top).astype(dtype)), np.float64)
        apart = np.abs(off - np.asarray(function(a), np.float64))
        assert (apart <= found[OURS]).all() and (apart <= found[NUMPYS]).all()
    if a.dtype.kind == "f":
        gap = np.spacing(a.dtype.type(100)).astype(float)
        assert (found[SAME_WAY] <= error + 8 * gap).all(), "a rule is no wider than it must be"


def test_infinities_and_nan_have_no_errors() -> None:
    a = np.array([-np.inf, 1.0, np.inf, np.nan])
    found = bounds(event(np.sort, "monotone"), [approx(a)], [np.sort(a)])[0]
    assert found is not None and (found[OURS][[0, 2, 3]] == 0).all() and ERROR <= found[OURS][1] < 2 * ERROR


def test_exact_elements_stay() -> None:
    a = np.arange(9.0)
    found = bounds(event(np.sort, "monotone"), [approx(a, np.where(a > 4, ERROR, 0))], [a])[0]
    assert found is not None and (found[OURS][:5] == 0).all() and (found[OURS][5:] > 0).all()


def test_what_may_be_infinite_has_no_bounds() -> None:
    a = approx(np.arange(9.0))
    a.nonfinite = a.value == 3
    found = bounds(event(np.median, "monotone"), [a], [np.median(a.value)])[0]
    assert found is not None and np.isinf(found[OURS]).all()


def test_in_an_order_each_element_may_be_any_of_them() -> None:
    a = np.arange(9.0)
    found = bounds(event(np.argsort, "arrangement"), [approx(a)], [np.argsort(a)])[0]
    assert found is not None and (found[OURS] == 8).all() and not found[SAME_WAY].any()
    a[3] = np.nan
    found = bounds(event(np.partition, "arrangement"), [approx(a)], [a])[0]
    assert found is not None and np.isinf(found[OURS]).all()


def test_what_is_tried_out_is_a_guess() -> None:
    assert is_guess(event(np.linalg.det, "")) and not is_guess(event(np.median, "monotone"))


# -- in whole functions

SINGLE = np.random.default_rng(0).random((300, 200), dtype=np.float32)


def stretch(a: Any) -> Any:
    x = np.exp(a) - np.float32(1.5)
    low, high = np.percentile(x, (2, 98))
    return (x - low) / (high - low)


def close_to_zero(a: Any) -> Any:
    """The median is less than the errors of what it is of."""
    x = np.exp(a)
    return x - np.median(x), np.median(x - np.median(x) + np.float32(1e-9))


def ranks(a: Any) -> Any:
    return np.argsort(np.exp(a).ravel(), kind="stable")


def levinson(a: Any) -> Any:
    """A recurrence, of arrays and of numbers, that magnifies roundings."""
    return durbin(a[0])


@pytest.mark.parametrize("f", [stretch, close_to_zero, ranks])
def test_inexact_arguments_are_no_fault_of_a_kernel(f: Any) -> None:
    p, said = verified(f, SINGLE)
    assert not said and p.stats.fallbacks == 0
    assert p.stats.verified is True


def test_loops_with_numbers_may_magnify_roundings() -> None:
    r = np.arange(1001.0, 1.0, -1.0)[None]
    p, said = verified(levinson, r)
    assert not said and p.stats.fallbacks == 0
    assert p.stats.verified is True


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, said = verified(stretch, SINGLE)
    assert not said and p.stats.verified is True
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((3, 0), result[3, 0] + np.float32(1e-3)))
    q = hjit.pipeline(stretch, cache="off")
    with pytest.warns(HjitWarning, match=r"the first at \[3, 0\]"):
        for _ in range(MAX_DOUBTS + 1):
            np.testing.assert_array_equal(q(SINGLE), stretch(SINGLE))


def test_only_an_order_is_decided() -> None:
    kept = {False: lambda a: np.sort(np.exp(a), axis=None), True: ranks}
    for decided, f in kept.items():
        p = hjit.pipeline(f, cache="off", verify="off")
        p(SINGLE)
        ((variant,),) = (e.variants for e in p._entries.values())
        found = tolerances(variant.graphs, variant.breaks, False)
        assert [found[n].decided for e in variant.breaks if e is not None for n in e.gives] == [decided]
