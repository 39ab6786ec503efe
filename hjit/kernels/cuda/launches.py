"""The emitter's output: the source of kernels, their parameters, and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.kernels.lower.passes.distribute_threads import THREADS
from hjit.kernels.lower.program import Rows
from hjit.trace.ir.poly import Poly


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a kernel is given.

    Attributes:
        kind: what it is:
            "array": the address of an argument, a result, or a stage in memory.
            "offset": of the first element of an argument from there, "stride": along an axis of it, both in elements.
            "size": a run-time size. "scalar": a scalar argument. "count": iterations of the parallel loops.
            "first": the block that the grid begins with.
            "status": the address of a u32 that is made 1 where an index is out of bounds.
        name: of the array, the size, or the scalar.
        axis: of a stride.
        dtype: of the value, where it is no address.
    """

    kind: str
    name: str = ""
    axis: int = 0
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel to run, where there are `points` to compute.

    Attributes:
        count: the iterations of its parallel loops; None: its body runs once.
        threads: of a block.
        per_thread: is an iteration a thread's? Else it is a block's.
        rows: what its blocks touch; None: that is kept elsewhere.
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    count: Poly | None
    points: Poly
    threads: int = THREADS
    per_thread: bool = True
    rows: Rows | None = None

    def blocks(self, count: int) -> int:
        """How many there are for so many iterations."""
        return -(-count // self.threads) if self.per_thread else count


@dataclass(frozen=True, slots=True)
class Module:
    """The kernels of a Graph, in one text, and how they are run, in order."""

    text: str
    launches: tuple[Launch, ...]
