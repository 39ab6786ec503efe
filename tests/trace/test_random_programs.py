"""Random loops that become programs give NumPy's results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numpy_check import check
from tests.trace.programs import Programs


@pytest.mark.parametrize("has_sums", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed: int, has_sums: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hjit.trace.capture.trace.MAX_UNROLLED", 5)  # short loops are no other ones
    f = Programs(seed, has_sums).function()
    n, r = (17, 18, 21)[seed % 3], np.random.default_rng(seed)
    dtype = (np.float64, np.float32)[seed % 2]
    matrices, vectors = ([r.normal(0, 1, shape).astype(dtype) for _ in "ab"] for shape in ((n, n), (n,)))
    args = *matrices, *vectors, r.integers(0, n, n)
    check(f, *args, exact=not has_sums, ulps=1e6, on_unsupported="break")
