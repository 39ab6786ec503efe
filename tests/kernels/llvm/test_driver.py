"""The driver of a kernel: long ones are compiled as they stand, many calls are a table."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm import thresholds
from hjit.kernels.llvm.builder.function_merging import KERNEL
from hjit.kernels.llvm.driver import call_table
from hjit.kernels.lower.params import Params
from hjit.trace.ir.poly import Sym, poly
from tests.numpy_check import check, image

pytestmark = pytest.mark.usefixtures("no_kernels")  # what is changed here is not part of a kernel's key


def halved(a: Any, times: int) -> Any:
    """A pyramid: every level has nests, and sizes, of its own."""
    found = []
    for _ in range(times):
        a = np.exp(-np.pad(a, 1, mode="edge")[:-2:2, :-2:2])
        found.append(a.sum(axis=0))
    return found


def short(a: Any) -> Any:
    return halved(a, 1)


def long(a: Any) -> Any:
    return halved(a, 8)


@pytest.mark.parametrize(("function", "is_long"), [(short, False), (long, True)])
def test_a_long_driver_is_not_optimised(function: Any, is_long: bool) -> None:
    text = hjit.pipeline(function, cache="off").inspect_llvm(image((300, 200), "float32"))
    head = re.search(r"^define i32 [^{]*", text, re.MULTILINE)
    assert head and ("optnone" in head[0]) is is_long
    assert text.count("optnone") == is_long, "what it calls is optimised"
    check(function, image((300, 200), "float32"), exact=False)
    check(function, image((517, 333), "float64"), exact=False, num_threads=1)


def many(a: Any) -> Any:
    """Nests of several kinds: in parallel and not, without elements, that look values up, and fail."""
    found = [np.zeros(a.shape[1]) + a[0]]
    for k in range(1, a.shape[0]):
        found.append(np.cumsum(a[k] + found[-1][::-1]) * a[k, :k].sum() + a[: k - 1, 3].sum())
    return np.stack(found), halved(a, 5)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("least", [0, 24, 10**6])
def test_calls_as_a_table(least: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_CALLS_IN_CODE", least)
    a = image((30, 41), "float64")
    check(many, a, exact=False, num_threads=threads, cache="off")
    text = hjit.pipeline(many, cache="off").inspect_llvm(a)
    assert (".calls = " in text) is (least < 10**6)


@pytest.mark.parametrize("least", [0, 10**6])
def test_a_table_with_a_call_that_fails(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_CALLS_IN_CODE", least)

    def f(a: Any, k: Any) -> Any:
        return np.cumsum(a, axis=0)[k] + a.sum(axis=0)

    p = hjit.pipeline(f, verify="off", cache="off")
    a = image((30, 41), "float64")
    for k in (np.arange(30), np.array([3, 29])):
        np.testing.assert_allclose(p(a, k), f(a, k))
    with pytest.raises(IndexError):
        p(a, np.array([3, 30]))
    np.testing.assert_allclose(p(a, np.array([3, -30])), f(a, np.array([3, -30])))


@pytest.mark.parametrize("few", [0, 10**6])
def test_addresses_in_a_loop(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_SLOTS_IN_CODE", few)
    check(long, image((300, 200), "float32"), exact=False, cache="off")


def test_numbers_of_calls() -> None:
    """Each is computed once, from what it is a sum of."""
    params = Params({}, {"a": 4}, {}, {}, {"n": 5, "m": 6}, {}, {}, 7)
    n, m = poly(Sym("n")), poly(Sym("m"))
    given = [KERNEL, (4, 0), (4, 8), n, m * n * 3 - m + 2, n // m, (n // m) * 2, poly(0), poly(-7), n // m]
    values = call_table.Values(params, given)
    slots = {4: 1000, 5: 50, 6: 7, values.kernel: 12345, values.slot(n // m): 50 // 7}
    rows = iter(values.rows())
    for k in range(len(values.sums)):
        terms, total = next(rows), next(rows)
        for _ in range(terms):
            c, count = next(rows), next(rows)
            total += c * int(np.prod([slots[next(rows)] for _ in range(count)]))
        slots[values.first + k] = total
    assert [slots[values.slot(x)] for x in given] == [12345, 1000, 1008, 50, 3 * 350 - 7 + 2, 7, 14, 0, -7, 7]
    assert values.count == 7 + 1 + 1 + len(values.sums)
