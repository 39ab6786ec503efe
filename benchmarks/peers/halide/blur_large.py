"""`benchmarks.apps.blur_large` in Halide."""

from __future__ import annotations

from benchmarks.peers.halide.blur import define

__all__ = ["define"]
