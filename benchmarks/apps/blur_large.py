"""`blur` of an image that does not fit into the last cache."""

from __future__ import annotations

import numpy as np

from benchmarks.apps import blur
from benchmarks.apps.blur import SMALL, TOLERANCE

__all__ = ["SHAPE", "SMALL", "TOLERANCE", "blur_large", "inputs"]

SHAPE = (4802, 6402)
blur_large = blur.blur


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image that is this large, uint16 (H, W)."""
    return blur.inputs(rng, shape)
