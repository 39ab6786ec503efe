"""Vectors whose lanes are repeated: LLVM ends, and the numbers are NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.runtime.features import LEVELS, host_features
from tests.scripts import run_script

REPEATED = """
    import numpy as np
    import hjit

    def doubled(a):
        return np.repeat(a, 2, axis=1) << 1

    def mixed(a):
        a = a.repeat(2, 0).repeat(2, 1)
        return a[:, 2:] * 2 + a[:, :-2] * 7

    def doubled_before(a):
        return np.stack([a * 2 + 7] * 3, axis=-1) ^ np.arange(3, dtype=np.uint8)

    a = np.arange(77 * 200, dtype=np.uint8).reshape(77, 200)
    for f in (doubled, mixed, doubled_before):
        for lanes in (64, 128):
            g = hjit.pipeline(f, target="x86-64-v4", cache="off", verify="off", tune=False)
            s = g.schedule(a)
            s[s.stages[-1]].vectorize("x", lanes)
            g.use(s).inspect_asm(a)
            print(f.__name__, lanes)
"""


@pytest.mark.skipif(not LEVELS["x86-64-v4"] <= host_features(), reason="needs AVX-512")
def test_llvm_ends_where_lanes_of_bytes_are_repeated(tmp_path: Path) -> None:
    """It moved ``x << 1`` of 64 bytes before the shuffle and back for ever."""
    assert len(run_script(tmp_path, REPEATED).split("\n")) == 7


def doubled(a: Any) -> Any:
    return np.repeat(a, 2, axis=1) * 2


def doubled_before(a: Any) -> Any:
    return np.stack([a * 2 + 7] * 3, axis=-1) ^ np.arange(3, dtype=np.uint8)


@pytest.mark.parametrize("lanes", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("function", [doubled, doubled_before])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2"])
def test_repeated_lanes_are_numpys(function: Any, dtype: str, lanes: int) -> None:
    a = np.random.default_rng(0).integers(0, 127, (9, 300)).astype(dtype)
    f = hjit.pipeline(function, cache="off", verify="off", tune=False)
    s = f.schedule(a)
    s[s.stages[-1]].vectorize("x", lanes)
    np.testing.assert_array_equal(f.use(s)(a), function(a))
