"""`benchmarks.apps.nl_means` in PyTorch: all shifts at once, as a view of the image that repeats nothing."""

from __future__ import annotations

import torch

from benchmarks.peers.torch.edges import edge


def nl_means(img: torch.Tensor, patch: int = 7, search: int = 7, sigma: float = 0.12) -> torch.Tensor:
    _, height, width = img.shape
    margin, far = patch // 2, search // 2
    padded = edge(img, (margin + far,) * 2, (margin + far,) * 2)
    tall, wide = height + 2 * margin, width + 2 * margin
    shifted = padded.unfold(1, tall, 1).unfold(2, wide, 1)  # (3, search, search, tall, wide)
    centre = padded[:, None, None, far : far + tall, far : far + wide]

    distance = ((centre - shifted) ** 2).sum(dim=0)
    blur_y = sum(distance[..., k : k + height, :] for k in range(patch))
    blur = sum(blur_y[..., k : k + width] for k in range(patch))
    weight = torch.exp(blur * (-1.0 / (sigma * patch) ** 2))
    inner = shifted[..., margin : margin + height, margin : margin + width]
    return ((weight * inner).sum(dim=(1, 2)) / weight.sum(dim=(0, 1))).clamp(0.0, 1.0)
