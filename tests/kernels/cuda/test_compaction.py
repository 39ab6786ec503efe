"""Results whose length depends on the image's values, computed on a device: their rows are joined by the host."""

from __future__ import annotations

import numpy as np
import pytest

import hjit
from tests.kernels.cuda.launching import needs_device
from tests.numpy_check import assert_same
from tests.trace.test_compaction import IMAGE, LABELS, RESULTS


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
