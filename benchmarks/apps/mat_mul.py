"""A product of two matrices.

Source: Halide's `apps/cuda_mat_mul`, on the CPU; K. Goto and R. van de Geijn, "Anatomy of high-performance matrix
multiplication" (2008).
"""

from __future__ import annotations

import numpy as np

SHAPE = (1024, 1024, 1024)
SMALL = (37, 53, 43)
TOLERANCE = (1e-5, 1e-4)


def mat_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 (M, K) and (K, N) -> float32 (M, N)."""
    return a @ b


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Two random matrices, float32 (M, K) and (K, N), for `shape` (M, K, N)."""
    m, k, n = shape
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
