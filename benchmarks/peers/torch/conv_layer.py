"""`benchmarks.apps.conv_layer` in PyTorch, with its own convolution; memory is as it likes it."""

from __future__ import annotations

import torch
from torch.nn import functional


def conv_layer(images: torch.Tensor, filters: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    conv = functional.conv2d(images.permute(0, 3, 1, 2), filters.permute(3, 2, 0, 1), bias)
    return torch.relu(conv).permute(0, 2, 3, 1)
