"""Memory of the stages that results are copied from. It is borrowed, so that a warm call touches no new pages."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.call.results import Array, Shape
from hjit.kernels.runtime import arena
from hjit.trace.capture.trace import Result


@dataclass(frozen=True, slots=True)
class ScratchAllocation:
    """How such a stage is allocated: its memory is borrowed until nobody has the array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def allocate(self) -> Array:
        block = arena.borrow(math.prod(self.shape) * self.dtype.itemsize)
        memory, address, _ = block
        array = np.ndarray(self.shape, self.dtype, memory, address - memory.ctypes.data)
        weakref.finalize(array, arena.give_back, block).atexit = False
        return array


def scratch_allocations(leaves: Iterable[Result], shapes: dict[str, Shape]) -> dict[str, ScratchAllocation]:
    """Those of all results, by stage; `shapes`: shapes and dtypes of the stages that kernels compute."""
    rows = [r.name for r in leaves if r.kind == "compacted"]
    rows += [c.rows for r in leaves if r.kind == "list" for c in r.value.columns]
    return {name: ScratchAllocation(*shapes[name]) for name in rows if name in shapes}
