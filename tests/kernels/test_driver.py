"""The driver of a kernel: long ones are compiled as they stand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check, image


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
    driver = re.search(r"^define i32 [^{]*", text, re.MULTILINE)
    assert driver and ("optnone" in driver[0]) is is_long
    assert text.count("optnone") == is_long, "what it calls is optimised"
    check(function, image((300, 200), "float32"), exact=False)
    check(function, image((517, 333), "float64"), exact=False, num_threads=1)
