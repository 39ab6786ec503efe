"""The applications: plain NumPy, as a working imaging engineer writes it, one file each.

Every module has a docstring that names the algorithm's source, one function of the module's own name (`channels_last`
too, where most NumPy code has the channels last), and

    SHAPE, SMALL     the size that is timed, and one for tests, with everything the algorithm does still in it
    inputs(rng, shape) -> tuple of the function's arguments: NumPy arrays first, then numbers
    TOLERANCE        (rtol, atol) within which peers with a fast-math contract must agree
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

NAMES = (
    "blur", "blur_large", "unsharp", "harris", "camera_pipe", "local_laplacian", "bilateral_grid", "interpolate",
    "stencil_chain", "hist", "max_filter", "nl_means", "iir_blur", "conv_layer", "lens_blur", "bgu",
    "depthwise_separable_conv", "mat_mul", "snake",
)  # fmt: skip


def load(name: str) -> ModuleType:
    """The module of an application."""
    return importlib.import_module(f"benchmarks.apps.{name}")


def by_hand(name: str) -> Path | None:
    """The file of the schedule that was written by hand for an application; None: there is none."""
    path = Path(__file__).parent / "schedules" / f"{name}.json"
    return path if path.exists() else None
