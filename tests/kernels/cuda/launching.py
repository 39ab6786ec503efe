"""Where the kernels of these tests run: on PoCL, or, in ``python -m tests.gpu``, on a GPU through CuPy.

A test, or a module of tests, with the mark `needs_device` runs on either; one with `needs_opencl` on PoCL only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.runtime import device, kernels, on_cupy

_gpu = False


def use_gpu() -> None:
    """Run all kernels from now on by CuPy."""
    global _gpu
    _gpu = True


def is_available() -> bool:
    """Is there a device for them?"""
    return _gpu or opencl.is_available()


needs_device = pytest.mark.skipif(not is_available(), reason="needs a device: OpenCL's, or a GPU")
needs_opencl = pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")


def new_pipelines(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Pipelines for NumPy arrays run by new kernels, which are kept in a folder; the fixture `on_device`."""
    if not _gpu:
        monkeypatch.setenv(device.VARIABLE, "opencl")
    monkeypatch.setenv("HJIT_CACHE_DIR", str(folder))
    kernels.after_fork()


def compiled(body: str) -> Any:
    """The kernels of a text, with the prelude before it: they have `launch` of `opencl.Program`."""
    return _on_gpu(body) if _gpu else opencl.compiled(body)


class OnGpu:
    """As `opencl.Program`, through CuPy: arrays are uploaded before a launch, and downloaded after it."""

    def __init__(self, body: str) -> None:
        self.device = on_cupy.current_device()
        self.kernels = self.device.load(body, self.device.compile(body)[0])

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_bytes: int = 0
    ) -> None:
        """Run a kernel on NumPy arrays and scalars, and wait for it."""
        there = [self.device.cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        self.kernels[name](tuple(grid), tuple(block), there, shared_mem=shared_bytes)
        for a, b in zip(args, there, strict=True):
            if isinstance(a, np.ndarray) and a.flags.writeable:
                a[...] = b.get()


@functools.lru_cache(maxsize=64)
def _on_gpu(body: str) -> OnGpu:
    return OnGpu(body)
