"""Sums of few elements in NumPy's order, to the last bit.

NumPy goes over an array in the order of memory. The fastest axes, where they are all added up, make one run, in a
buffer if the array has gaps: one element after the other where a run has fewer than 8, else in 8 partial sums
(`pairwise_sum` of its loops for floats). What the runs give is added up one after the other.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.layout import strides
from hjit.trace.tracing.arrays.tracer import Tracer

T = TypeVar("T")
MAX_ADDED = 64  # elements: a window of 8 x 8 (chosen); NumPy halves runs of more than 128
PARTIAL = 8  # sums


def sum_over(a: Tracer, axes: Sequence[int]) -> Expr | None:
    """The sum over some axes of a small array, in its dtype; None where NumPy's order is not known."""
    if not axes or any(type(n) is not int for n in a.shape):
        return None
    if not 0 < math.prod(a.shape[k] for k in axes) <= MAX_ADDED:
        return None
    steps = strides(a)
    if steps is None or not is_as_known():
        return None
    kept = {k: poly(Dim(i)) for i, k in enumerate(k for k in range(a.ndim) if k not in axes)}
    start: Expr = Const(start_value("add", a.dtype), a.dtype)
    runs = [
        partial_sums([a.at([kept[k] if k in kept else poly(at[k]) for k in range(a.ndim)]) for at in run], start, _add)
        for run in runs_of(a.shape, steps, axes)
    ]
    return functools.reduce(_add, runs)


def _add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def runs_of(shape: Sequence[int], steps: Sequence[int], axes: Sequence[int]) -> list[list[dict[int, int]]]:
    """Where the elements of a sum are, run by run: indices by axis.

    Args:
        steps: the strides of all axes.
        axes: those that are summed over.
    """
    moving = [k for k, n in enumerate(shape) if n > 1]
    order = sorted(moving, key=lambda k: -abs(steps[k]))  # a stable sort: of equal steps in C order
    inner: list[int] = []
    while order and order[-1] in axes:
        inner.insert(0, order.pop())
    still = {k: 0 for k in axes if k not in moving}
    runs = [{**still, **at} for at in _places(shape, inner)]
    return [[{**at, **run} for run in runs] for at in _places(shape, [k for k in order if k in axes])]


def _places(shape: Sequence[int], axes: Sequence[int]) -> list[dict[int, int]]:
    return [dict(zip(axes, at, strict=True)) for at in itertools.product(*(range(shape[k]) for k in axes))]


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
    (run,) = runs_of(numbers.shape[1:], numbers.strides[1:], (0, 1))
    known = [(at[0], at[1]) for at in run]
    return all(partial_sums([x[at] for at in known], np.float64(-0.0), operator.add) == x.sum() for x in numbers)
