"""As in a new process: what hjit remembers of kernels and schedules is forgotten."""

from __future__ import annotations

from hjit.kernels.runtime import kernel
from hjit.tuning import plans


def forget() -> None:
    """Of kernels and of plans there are those on disk, and no others."""
    kernel._kernels.clear()
    kernel._others.clear()
    plans._plans.clear()
