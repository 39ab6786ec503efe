"""Histograms are counted in parts, which run in parallel, with NumPy's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hjit.trace.passes.limits import HISTOGRAM_PARTS
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

IMAGE = np.random.default_rng(1).integers(0, 200, (37, 70)).astype(np.uint8)


def counted(a: Any) -> Any:
    return np.bincount(np.minimum(a, 90).ravel(), minlength=91)


def largest(a: Any) -> Any:
    out = np.zeros(256, np.int32)
    np.maximum.at(out, a, a.astype(np.int32) * 3)
    return out


@pytest.mark.parametrize("function", [counted, largest])
@pytest.mark.parametrize("shape", [(37, 70), (1, 5), (8, 8), (9, 1), (64, 33)])
def test_histograms_are_counted_in_parts(function: Any, shape: tuple[int, int]) -> None:
    a = np.random.default_rng(2).integers(0, 200, shape).astype(np.uint8)
    check(function, a)


def test_the_parts_of_a_histogram_run_in_parallel() -> None:
    graph = canonical(counted, IMAGE)
    parts = next(s for s in graph.stages if len(s.shape) == 2 and s.updates)
    assert parts.shape[0] == HISTOGRAM_PARTS and len(parts.updates[0].dims) == 1 and len(parts.updates[0].rdims) == 2
