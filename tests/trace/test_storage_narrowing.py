"""What is read through one narrowing cast only is kept as what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.trace.passes.dtypes.storage_narrowing import narrow_storage
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

IMAGE = np.random.default_rng(0).random((30, 61), np.float32)
BYTES = (IMAGE * 255).astype(np.uint8)
TABLE = np.arange(0, 1024, 2, dtype=np.int32)


def woven(a: Any) -> Any:
    """Sums in int32, written alternately, of which the readers take 16 bits."""
    wide = np.empty((2 * len(a), a.shape[1]), np.int32)
    wide[0::2] = a.astype(np.int32) * 3 + a[::-1]
    wide[1::2] = a.astype(np.int32) * 700 - a[:, ::-1]
    return wide.astype(np.int16)


def looked_up(a: Any) -> Any:
    return TABLE[np.clip(woven(a), 0, 511)] + 1


def neighbours(a: Any) -> Any:
    return np.maximum(woven(a)[1:], woven(a)[:-1])


def tapped(a: Any) -> Any:
    taps = [woven(a)[dy : dy + 28, dx : dx + 59] for dy in range(3) for dx in range(3)]
    return np.stack(taps).max(0)


def twice(a: Any) -> Any:
    """One cast, and another one of what comes of it."""
    return np.maximum((woven(a)[1:] > 0).astype(np.uint16) + 1, woven(a)[:-1].astype(np.uint8).astype(np.uint32))


def truth(a: Any) -> Any:
    wide = np.empty((2 * len(a), a.shape[1]), np.int32)
    wide[0::2] = a.astype(np.int32) * 256 - a[::-1]
    wide[1::2] = a // 128
    return wide.astype(bool).astype(np.uint16) + wide[::-1].astype(bool)


def half_wide(a: Any) -> Any:
    wide = np.sqrt(a[1:].astype(np.float64) + a[:-1]) * 3 + np.exp(a[1:] * 0.01)
    return wide.astype(np.float32)[:, 1:] + wide[:, :-1]


def running(a: Any) -> Any:
    return np.cumsum(a.astype(np.int64), axis=0).astype(np.int16)


NARROW: dict[str, tuple[Callable[..., Any], str]] = {
    "a table": (looked_up, "int32"),
    "neighbours": (neighbours, "int32"),
    "a window": (tapped, "int32"),
    "twice": (twice, "int32"),
    "truth": (truth, "int32"),
}
WIDE: dict[str, tuple[Callable[..., Any], str]] = {
    "read both ways": (half_wide, "float64"),
    "a running sum": (running, "int64"),
}


@pytest.mark.parametrize("name", NARROW)
def test_the_wide_value_is_not_kept(name: str) -> None:
    f, dtype = NARROW[name]
    stages = canonical(f, BYTES).stages
    assert not any(s.dtype == dtype for s in stages[:-1])
    check(f, BYTES)


@pytest.mark.parametrize("name", WIDE)
def test_others_keep_their_dtype(name: str) -> None:
    f, dtype = WIDE[name]
    assert any(s.dtype == dtype for s in canonical(f, BYTES).stages)
    check(f, BYTES, exact=name != "read both ways")


def test_a_graph_without_such_reads_stays_as_it_is() -> None:
    graph = canonical(lambda a: np.sqrt(a) + a, IMAGE)
    assert narrow_storage(graph) is graph
