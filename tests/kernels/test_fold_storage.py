"""Circular buffers: an axis is folded where no vectors run along it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check, image


def planes(a: Any) -> Any:
    """Sums over planes: the first one is a definition, the others an update, whose dimensions have another order."""
    return np.cumsum(a, axis=0, dtype=np.int32) * 3


def rows(a: Any) -> Any:
    b = np.exp(a[:-2] + a[2:])
    c = b[:-2] * b[2:]
    return c


def columns(a: Any) -> Any:
    b = np.exp(a[:, :-2] + a[:, 2:])
    c = b[:, :-2] * b[:, 2:]
    return c


def buffers(function: Any, a: Any, schedule: Any = None) -> list[str]:
    """The lines of the loops that say what buffers there are."""
    loops = str(hjit.pipeline(function, cache="off", tune=False).use(schedule).loops(a))
    return [line.strip() for line in loops.splitlines() if line.strip().startswith("buffer")]


def test_vectors_of_one_definition_are_not_those_of_another() -> None:
    """Both have vectors along axis 2, which is dimension 2 of one and dimension 1, axis 1's, of the other."""
    a = image((3, 40, 16), "uint8")
    assert buffers(planes, a) == ["buffer add: 3 from 0 x 1 circular x 16 from 0"]
    check(planes, a)


@pytest.mark.parametrize(("function", "loop", "is_folded"), [(rows, "y", True), (columns, "xo", False)])
def test_an_axis_that_vectors_run_along_is_kept(function: Any, loop: str, is_folded: bool) -> None:
    a = image((40, 67), "float32")
    s = hjit.pipeline(function, cache="off", tune=False).schedule(a)
    s["c"].split("x", "xo", "xi", 8).vectorize("xi", 8)
    s["b"].compute_at("c", loop).store_root().vectorize("x", 8)
    (buffer,) = buffers(function, a, s)
    assert ("circular" in buffer) is is_folded
    check(function, a, exact=False, schedule=s)
