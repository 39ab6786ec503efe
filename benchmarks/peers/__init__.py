"""What hjit is compared with: NumPy itself, OpenCV, numba, jax.jit and torch.compile by hand, Halide.

Peers in Python have one file per application, `benchmarks/peers/{opencv,numba,jax,torch}/NAME.py`. Those of OpenCV and
numba have ``build(arguments, threads) -> Compiled``; those of JAX and PyTorch a function of the application's name on
their arrays, which `benchmarks.gpu` compiles for a GPU and, of JAX, `build` of its package for the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Compiled:
    """A compiled program, ready to be timed: `run(out)` writes into a given NumPy array."""

    run: Callable[[np.ndarray], None]
    shape: tuple[int, ...]
    dtype: np.dtype
    seconds: float


def has(package: str, app: str) -> bool:
    """Is there a version of an application for a package?"""
    return (Path(__file__).parent / package / f"{app}.py").exists()


def function(package: str, app: str) -> Callable[..., Any]:
    """An application in JAX or PyTorch: its arguments are NumPy's version's, with their arrays."""
    found: Callable[..., Any] = getattr(importlib.import_module(f"benchmarks.peers.{package}.{app}"), app)
    return found
