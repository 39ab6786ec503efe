"""Functions of packages, and of the kinds of code that are usually written in NumPy, with arguments for each.

`TABLES` has, for each package, the functions by their full names, and their arguments as a text: names of `images` and
Python literals. Functions that no package has are in the modules of this folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.functions.tables import NUMPY_WRITTEN, SCIKIT_IMAGE, SCIPY, SEWAR_AND_COLOUR

Array = np.ndarray[Any, Any]

TABLES: dict[str, dict[str, str]] = {**SCIKIT_IMAGE, **SCIPY, **SEWAR_AND_COLOUR, **NUMPY_WRITTEN}
WRAPPED = "scipy."  # what a function calls of it is compiled; called by itself, it is a function of another package


def load(path: str) -> Callable[..., Any]:
    """A function by its full name; one of SciPy inside a function of ours.

    Raises:
        ImportError: its package is not installed, or has no such function.
    """
    module, _, name = path.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise ImportError(f"{module} has no {name}") from None
    return calling(found) if path.startswith(WRAPPED) else found


def calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def arguments(text: str, names: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments, from their text in a table."""

    def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    found: tuple[tuple[Any, ...], dict[str, Any]] = eval(f"given({text})", {"np": np, "given": given, **names})
    return found


def images(megapixels: float) -> dict[str, Any]:
    """The arguments that tables name: images of about this size with smooth areas, edges and noise."""
    from scipy import ndimage

    h = max(round((megapixels * 1e6 / 1.5) ** 0.5), 24)
    w = h * 3 // 2
    r = np.random.default_rng(7)
    y, x = np.mgrid[:h, :w] / h
    smooth = ndimage.gaussian_filter(r.random((h, w)), max(h / 60, 1))
    smooth = (smooth - smooth.min()) / np.ptp(smooth)
    discs = ((y % 0.25 - 0.125) ** 2 + (x % 0.25 - 0.125) ** 2 < 0.006).astype(float)
    gray64 = np.clip(0.6 * smooth + 0.3 * discs + 0.02 * r.standard_normal((h, w)), 0, 1)
    tints = np.stack([gray64, np.clip(smooth * 0.8 + 0.1, 0, 1), 1 - gray64 * x / x.max()], -1)
    gray, rgb = gray64.astype(np.float32), tints.astype(np.float32)
    noisy = np.clip(gray + 0.05 * r.standard_normal((h, w), np.float32), 0, 1)
    noisy_rgb = np.clip(rgb + 0.05 * r.standard_normal(rgb.shape, np.float32), 0, 1)
    mask = gray > 0.5
    labels = ndimage.label(mask)[0].astype(np.int32)
    to_bytes = {"bytes_": gray, "noisy_bytes": noisy, "rgb_bytes": rgb, "noisy_rgb_bytes": noisy_rgb}
    side = int((h * w) ** 0.5)
    return {
        "h": h, "w": w, "side": side, "gray": gray, "gray64": gray64, "rgb": rgb, "rgb64": tints,
        "noisy": noisy, "noisy_rgb": noisy_rgb, "mask": mask, "labels": labels,
        "other_labels": ndimage.grey_dilation(labels, 3), "lab": tints * [100, 60, 60] - [0, 30, 30],
        "other_lab": noisy_rgb * [100.0, 60.0, 60.0] - [0, 30, 30], "psf": np.ones((5, 5), np.float32) / 25,
        "disc": (np.hypot(*np.mgrid[-3:4, -3:4]) <= 3).astype(np.uint8),
        "stack": r.normal(100, 5, (9, h // 3, w // 3)).astype(np.float32), "square": r.random((side, side)),
        "nir": gray * 0.5 + 0.3, "red": rgb[..., 0] * 0.3 + 0.02, "green": rgb[..., 1] * 0.3 + 0.03,
        "blue": rgb[..., 2] * 0.2 + 0.02, "swir": noisy * 0.3 + 0.1,
        **{name: (a * 255).astype(np.uint8) for name, a in to_bytes.items()},
    }  # fmt: skip
