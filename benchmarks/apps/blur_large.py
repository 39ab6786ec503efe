"""`blur` of an image that does not fit into the last cache."""

from __future__ import annotations

from benchmarks.apps.blur import SMALL, TOLERANCE, blur, inputs

__all__ = ["SHAPE", "SMALL", "TOLERANCE", "blur_large", "inputs"]

SHAPE = (4802, 6402)
blur_large = blur
