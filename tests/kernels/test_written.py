"""What a nest reads of the memory that it writes itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.schedules import RandomScheduler


def counted(a: Any, n: Any) -> Any:
    """A sum, and then additions to it, which schedules may put into one loop."""
    found = np.sum(a > 0, axis=-1, keepdims=True)
    np.add.at(found, [0, 0, -1], n)
    return found


def greatest(a: Any, n: Any) -> Any:
    found = np.max(a, axis=-1, keepdims=True)
    found[0] = found[0] * n + found[0]
    found[0] = found[0] - n
    return found


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("function", [counted, greatest])
def test_what_was_read_before_it_was_written_is_read_again(function: Any, seed: int) -> None:
    a = np.arange(1, 9, dtype=np.float32)
    f = hjit.pipeline(function, cache="off", verify="off").use(RandomScheduler(seed))
    np.testing.assert_array_equal(f(a, -2), function(a, -2))
