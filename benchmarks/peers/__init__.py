"""What hjit is compared with: NumPy itself, OpenCV, numba and jax.jit by hand, Halide.

Peers in Python have one file per application, `benchmarks/peers/{opencv,numba,jax}/NAME.py`, with
``build(arguments, threads) -> Compiled``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Compiled:
    """A compiled program, ready to be timed: `run(out)` writes into a given NumPy array."""

    run: Callable[[np.ndarray], None]
    shape: tuple[int, ...]
    dtype: np.dtype
    seconds: float
