"""Sums of few elements in NumPy's order, to the last bit.

NumPy copies an array with gaps to a buffer, in the order of memory, and adds up what is there: one element after the
other where they are fewer than 8, else in 8 partial sums (`pairwise_sum` of its loops for floats).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import poly
from hjit.trace.ops.layout import strides
from hjit.trace.tracing.arrays.tracer import Tracer

T = TypeVar("T")
MAX_ADDED = 64  # elements: a window of 8 x 8 (chosen); NumPy halves runs of more than 128
PARTIAL = 8  # sums


def sum_of_all(a: Tracer) -> Expr | None:
    """The sum of all elements of a small array, in its dtype; None where NumPy's order is not known."""
    if not a.ndim or any(type(n) is not int for n in a.shape) or not 0 < a.size <= MAX_ADDED:
        return None
    steps = strides(a)
    if steps is None or not is_as_known():
        return None
    start: Expr = Const(start_value("add", a.dtype), a.dtype)
    return partial_sums([a.at([poly(k) for k in at]) for at in places(a.shape, steps)], start, _add)


def _add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def places(shape: Sequence[int], steps: Sequence[int]) -> list[tuple[int, ...]]:
    """Where the elements are, in the order of memory but for steps backwards; `steps`: the strides."""
    order = sorted(range(len(shape)), key=lambda k: -abs(steps[k]))  # a stable sort: of equal steps in C order
    found = (dict(zip(order, at, strict=True)) for at in itertools.product(*(range(shape[k]) for k in order)))
    return [tuple(at[k] for k in range(len(shape))) for at in found]


def partial_sums(elements: Sequence[T], start: T, add: Callable[[T, T], T]) -> T:
    """What `pairwise_sum` makes of at most 128 elements."""
    if len(elements) < PARTIAL:
        return functools.reduce(add, elements, start)
    whole = len(elements) - len(elements) % PARTIAL
    parts = [functools.reduce(add, elements[k:whole:PARTIAL]) for k in range(PARTIAL)]
    while len(parts) > 1:
        parts = [add(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return functools.reduce(add, elements[whole:], parts[0])


@functools.lru_cache(maxsize=1)
def is_as_known() -> bool:
    """Does this NumPy add up in the order that is described here?"""
    numbers: Any = np.random.default_rng(3).standard_normal((64, 5, 8))[:, :, :5]
    known = places(numbers.shape[1:], numbers.strides[1:])
    return all(partial_sums([x[at] for at in known], np.float64(-0.0), operator.add) == x.sum() for x in numbers)
