"""Knuth's two-sum, for expressions of the loop IR and for values of an emitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def two_sum(a: T, b: T, apply: Callable[[str, T, T], T]) -> tuple[T, T]:
    """``a + b`` as it is rounded, and the error of that, which is exact whatever the magnitudes of the two.

    Knuth, The Art of Computer Programming, volume 2, section 4.2.2, theorem B.

    Args:
        apply: a ufunc's name and its arguments -> its result.
    """
    total = apply("add", a, b)
    part = apply("subtract", total, a)
    error = apply("add", apply("subtract", a, apply("subtract", total, part)), apply("subtract", b, part))
    return total, error
