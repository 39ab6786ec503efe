"""Windows along an axis of an image, whose elements one associative operation combines: sums, minima, maxima.

Windows of neighbours have most of their elements in common. A long one is the combination of blocks, each of which is
computed once, in a stage of its own, for all windows that it is part of: a window of 31 elements is 5 blocks of 6 and
one element, 10 operations an element instead of 30.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, Op, cast
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ops.limits import MAX_LINE_TAPS, MIN_BLOCKED_WINDOW
from hjit.trace.ops.stencils.ndimage_access import MODES, Extended, on_axis, reach
from hjit.trace.tracing.arrays.tracer import Tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

IDEMPOTENT = ("minimum", "maximum")  # blocks may have elements in common


@dataclass(frozen=True, slots=True)
class LineWindow:
    """A window along one axis of an image.

    Attributes:
        first: where it begins, from the element at the iteration dimensions; it has `size` elements.
    """

    near: Extended
    axis: int
    first: int
    size: int

    @classmethod
    def of(cls, image: Tracer, size: int, axis: int, mode: int, cval: float, origin: int) -> LineWindow:
        """That of a filter of `scipy.ndimage` with such arguments."""
        (ahead,), (past,) = reach((size,), (origin,))
        before, after = on_axis(axis, image.ndim, ahead), on_axis(axis, image.ndim, past)
        return cls(Extended.of(image, MODES[static_value(mode)], cval, before, after), axis, -ahead, size)

    def tap(self, work: np.dtype[Any]) -> Expr:
        """The element that a loop over the window is at: its dimension follows those of the image."""
        return cast(self.near.along(self.axis, poly(Dim(self.near.image.ndim)) + self.first), work)


def unrolled_window(window: LineWindow, name: str, work: np.dtype[Any], rounded: Callable[[Expr], Expr]) -> Expr | None:
    """The elements of a window combined, as one expression; None where that would be too long.

    Args:
        name: of the operation, in `work`.
        rounded: marks what is combined in another order than SciPy's.
    """
    near, axis, first, size = window.near, window.axis, window.first, window.size
    ndim = near.image.ndim

    def tap(k: int) -> Expr:
        return cast(near.along(axis, poly(k + first)), work)

    def combined(terms: list[Expr]) -> Expr:
        return rounded(functools.reduce(lambda a, b: Op(name, (a, b), work), terms))

    if size < MIN_BLOCKED_WINDOW:
        return combined([cast(near.along(axis, k + first), work) for k in range(size)])
    length = block_length(size, name)
    starts, rest = blocks(size, length, name)
    if length + len(starts) + len(rest) > MAX_LINE_TAPS:
        return None
    shape = list(current().polys(near.image.shape))
    shape[axis] += starts[-1]
    block = current().stage(combined([tap(k) for k in range(length)]), shape, work, name="block")

    def at(k: int) -> tuple[Poly, ...]:
        return tuple(p + o for p, o in zip(identity(ndim), on_axis(axis, ndim, k), strict=True))

    return combined([Load(block.name, at(k), work) for k in starts] + [tap(k) for k in rest])


def blocks(size: int, length: int, name: str) -> tuple[list[int], list[int]]:
    """Where blocks of a length begin in a window, in order; and the elements after them that are in none."""
    starts = list(range(0, size - length + 1, length))
    rest = list(range(starts[-1] + length, size))
    if rest and name in IDEMPOTENT:
        return [*starts, size - length], []
    return starts, rest


def block_length(size: int, name: str) -> int:
    """The length of blocks that leaves the least to combine; the longest of these, as then the fewest are read."""

    def operations(length: int) -> int:
        starts, rest = blocks(size, length, name)
        return length + len(starts) + len(rest)

    return min(range(size, 0, -1), key=operations)
