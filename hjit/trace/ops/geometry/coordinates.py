"""Where scipy.ndimage reads an image that it moves, by the mode: the arithmetic of its ni_interpolation.c.

All in double precision and in the order of SciPy's operations, on tracers or arrays of coordinates. NaN, infinite and
huge coordinates lead to no element outside of the image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# SciPy's codes of the modes of geometric transforms
NEAREST, WRAP, REFLECT, MIRROR, CONSTANT, GRID_WRAP, GRID_CONSTANT = range(7)
UNMAPPED = (NEAREST, CONSTANT, GRID_CONSTANT)  # modes that leave coordinates as they are
TINY = 1e-15  # SciPy's, where an element lies on the edge

Beyond = Callable[[Any, Any], tuple[Any, Any]]  # a coordinate before the first element, and one behind the last


def _mirror(x: Any, n: Any) -> tuple[Any, Any]:
    period = 2 * n - 2
    before = np.trunc(-x / period) * period + x
    behind = x - np.trunc(x / period) * period
    return np.where(before <= 1 - n, before + period, -before), np.where(behind >= n, period - behind, behind)


def _reflect(x: Any, n: Any) -> tuple[Any, Any]:
    period = 2 * n
    before = np.where(x < -period, np.trunc(-x / period) * period + x, x)
    behind = x - np.trunc(x / period) * period
    folded = np.where(before > -TINY, TINY, -before) - 1
    return np.where(before < -n, before + period, folded), np.where(behind >= n, period - behind - 1, behind)


def _wrap(x: Any, n: Any) -> tuple[Any, Any]:
    period = n - 1
    return x + (np.trunc(-x / period) + 1) * period, x - np.trunc(x / period) * period


def _grid_wrap(x: Any, n: Any) -> tuple[Any, Any]:
    return x + (np.trunc((-1 - x) / n) + 1) * n, x - np.trunc(x / n) * n


_BEYOND: dict[int, Beyond] = {MIRROR: _mirror, REFLECT: _reflect, WRAP: _wrap, GRID_WRAP: _grid_wrap}


def mapped(x: Any, n: Any, mode: int) -> Any:
    """A coordinate along an axis of `n` elements, brought near them; at most -1: the border is read."""
    if mode in UNMAPPED:
        return x
    before, behind = (0.0, 0.0) if int(n) <= 1 else _BEYOND[mode](x, n)
    return np.where(x < 0, before, np.where(x > n - 1, behind, x))


def inside(x: Any, n: Any) -> Any:
    """Is a coordinate one of an image of `n` elements? NaN is not."""
    return (x >= 0) & (x <= n - 1)


_TAPS: dict[int, Beyond] = {  # of whole numbers less than `n` away from the axis
    MIRROR: lambda k, n: (-k, 2 * n - 2 - k),
    REFLECT: lambda k, n: (-k - 1, 2 * n - 1 - k),
    GRID_WRAP: lambda k, n: (k + n, k - n),
}


def tap(k: Any, n: Any, order: int, mode: int) -> Any:
    """The index of an element near a coordinate that is inside, as int64; always one of the axis."""
    beyond = MIRROR if mode in (CONSTANT, WRAP) else mode
    if beyond in _TAPS:
        if int(n) <= order + 1:
            k = mapped(k, n, beyond)
        else:
            before, behind = _TAPS[beyond](k, n)
            k = np.where(k > n - 1, behind, k if mode == CONSTANT and order <= 1 else np.where(k < 0, before, k))
    return np.maximum(np.minimum(k.astype(np.int64), n - 1), 0)


def weights(x: Any, first: Any, order: int) -> list[Any]:
    """The weights of ``order + 1`` elements, that of the last is what is missing to 1."""
    y = x - first
    z = 1.0 - y
    if order == 1:
        found = [z]
    else:
        found = [z * z * z / 6.0, (y * y * (y - 2.0) * 3.0 + 4.0) / 6.0, (z * z * (z - 2.0) * 3.0 + 4.0) / 6.0]
    last: Any = 1.0
    for w in found:
        last = last - w
    return [*found, last]
