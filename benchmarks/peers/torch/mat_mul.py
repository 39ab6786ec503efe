"""`benchmarks.apps.mat_mul` in PyTorch; products are in float32 unless something else is asked for."""

from __future__ import annotations

import torch


def mat_mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
