"""Devices that are none: a stand-in for CuPy, and OpenCL in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.cuda import fake_cupy, launching


@pytest.fixture
def cp() -> Iterator[Any]:
    """The stand-in for CuPy, or CuPy where there is a GPU."""
    with fake_cupy.installed() as cupy:
        fake_cupy.log.clear()
        yield cupy


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pipelines for NumPy arrays run on the device of the tests, and none of their kernels is known."""
    launching.new_pipelines(monkeypatch, tmp_path)
