"""Results whose length depends on the image's values, computed on a device: their rows are joined by the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.kernels.cuda.launching import needs_device
from tests.numpy_check import assert_same
from tests.trace.test_compaction import IMAGE, LABELS, RESULTS
from tests.trace.test_lists_that_loops_fill import identical, image, numbers, tuples


@needs_device
@pytest.mark.parametrize(
    "name", ["elements", "computed elements", "places", "rows of places", "flat places", "stencil"]
)
def test_rows_are_joined(name: str, on_device: None) -> None:
    p = hjit.pipeline(RESULTS[name], target="cuda", on_unsupported="raise", cache="off", verify="off")
    for x in (IMAGE, IMAGE[:33] / 2):
        assert_same(p(x), RESULTS[name](x), exact=False)


@needs_device
def test_values_that_occur(on_device: None) -> None:
    p = hjit.pipeline(lambda a: np.unique(a, return_counts=True), target="cuda", on_unsupported="raise", cache="off")
    assert_same(p(LABELS), np.unique(LABELS, return_counts=True))


@needs_device
@pytest.mark.parametrize("f", [tuples, numbers], ids=lambda f: f.__name__)
def test_lists_that_loops_fill(f: Any, on_device: None) -> None:
    p, a = hjit.pipeline(f, target="cuda", on_unsupported="raise", cache="off", verify="off"), image(40, 47)
    assert identical(p(a), f(a))
