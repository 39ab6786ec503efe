"""`benchmarks.apps.unsharp` in PyTorch."""

from __future__ import annotations

import torch

from benchmarks.apps.unsharp import gaussian_taps
from benchmarks.peers.torch.edges import edge


def unsharp(rgb: torch.Tensor, sigma: float) -> torch.Tensor:
    taps = gaussian_taps(sigma)
    height, width = rgb.shape[1:]
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    padded = edge(gray, (3, 3), (3, 3))
    blur_y = taps[0] * padded[3:-3]
    for k in range(1, 4):
        blur_y = blur_y + taps[k] * (padded[3 - k : height + 3 - k] + padded[3 + k : height + 3 + k])
    blur_x = taps[0] * blur_y[:, 3:-3]
    for k in range(1, 4):
        blur_x = blur_x + taps[k] * (blur_y[:, 3 - k : width + 3 - k] + blur_y[:, 3 + k : width + 3 + k])
    return (2 * gray - blur_x) / gray * rgb
