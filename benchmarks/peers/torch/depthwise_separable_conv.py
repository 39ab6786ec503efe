"""`benchmarks.apps.depthwise_separable_conv` in PyTorch: nine products, which are fused, and a product of matrices."""

from __future__ import annotations

import torch
from torch.nn import functional


def depthwise_separable_conv(
    images: torch.Tensor, depthwise_filter: torch.Tensor, pointwise_filter: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    _, h, w, _ = images.shape
    padded = functional.pad(images, (0, 0, 1, 1, 1, 1))
    depthwise = sum(
        depthwise_filter[dy, dx] * padded[:, dy : dy + h, dx : dx + w] for dy in range(3) for dx in range(3)
    )
    return torch.relu(depthwise @ pointwise_filter + bias)
