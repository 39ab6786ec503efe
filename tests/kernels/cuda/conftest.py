"""Devices that are none: a stand-in for CuPy, and OpenCL in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hjit.kernels.cuda.runtime import device, kernels
from tests.kernels.cuda import fake_cupy


@pytest.fixture
def cp() -> Iterator[Any]:
    """The stand-in for CuPy, or CuPy where there is a GPU."""
    with fake_cupy.installed() as cupy:
        fake_cupy.log.clear()
        yield cupy


@pytest.fixture
def on_opencl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels run on the OpenCL device, and none of them is known."""
    monkeypatch.setenv(device.VARIABLE, "opencl")
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    kernels.after_fork()
