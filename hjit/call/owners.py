"""Memory of results that are not laid out as the stages that kernels compute: complex ones, and those in another order.

The result is allocated, and the kernel writes to it as it lies in memory. So it owns its memory, as NumPy's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.capture.trace import Result
from hjit.trace.tracing.complex_memory import complex_dtype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """How such a result is allocated.

    Attributes:
        like: of its shape, dtype and order of axes, without memory of its own.
        axes: of the stage, those of the result; None: they are the same.
        stage: shape and dtype of the stage.
    """

    like: Array
    axes: tuple[int, ...] | None
    stage: tuple[tuple[int, ...], np.dtype[Any]]

    def allocate(self) -> Array:
        """New memory, seen as the stage; its `base` is the result."""
        made = np.empty_like(self.like)
        if self.axes is not None:
            made = made.transpose(self.axes)
        shape, dtype = self.stage
        return made if made.dtype == dtype else made.view(dtype).reshape(shape)


def owner_of(result: Result, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Owner | None:
    """How a result is allocated, of which a kernel computes the stage; None: as the stage, or it is a scalar.

    Args:
        shape, dtype: of the stage.
    """
    if result.kind != "array" or result.is_scalar or result.is_plain or 0 in shape:
        return None
    order = result.order[:-1] if result.is_complex else result.order
    whole, kind = (shape[:-1], complex_dtype(dtype)) if result.is_complex else (shape, dtype)
    like = np.broadcast_to(np.zeros((), kind), whole)
    strides = np.cumprod((kind.itemsize, *whole[:0:-1]))[::-1] if whole else ()
    like = np.lib.stride_tricks.as_strided(like, whole, tuple(map(int, strides)))
    if not order:
        return Owner(like, None, (shape, dtype))
    return Owner(like.transpose(order), tuple(map(int, np.argsort(order))), (shape, dtype))


def owners(leaves: list[Result], shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, Owner]:
    """Those of all results, by stage.

    Args:
        shapes: shapes and dtypes of the stages that kernels compute.
    """
    found = {r.name: owner_of(r, *shapes[r.name]) for r in leaves if r.name in shapes}
    return {name: owner for name, owner in found.items() if owner is not None}
