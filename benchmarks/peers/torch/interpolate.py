"""`benchmarks.apps.interpolate` in PyTorch."""

from __future__ import annotations

import torch

from benchmarks.peers.torch.edges import by_turns, edge


def downsample(img: torch.Tensor) -> torch.Tensor:
    _, h, w = img.shape
    p = edge(img, (1, 2), (1, 2))
    ny, nx = 2 * (h // 2) + 1, 2 * (w // 2) + 1
    downy = (p[:, :ny:2] + 2 * p[:, 1 : ny + 1 : 2] + p[:, 2 : ny + 2 : 2]) * 0.25
    return (downy[:, :, :nx:2] + 2 * downy[:, :, 1 : nx + 1 : 2] + downy[:, :, 2 : nx + 2 : 2]) * 0.25


def upsample(img: torch.Tensor, h: int, w: int) -> torch.Tensor:
    """The samples, and the means of neighbours, by turns."""
    p = edge(img, (0, 1), (0, 1))
    upx = by_turns(p[..., :-1], (p[..., :-1] + p[..., 1:]) / 2, -1)[..., :w]
    return by_turns(upx[:, :-1], (upx[:, :-1] + upx[:, 1:]) / 2, -2)[:, :h]


def interpolate(img: torch.Tensor, levels: int) -> torch.Tensor:
    pyramid = [torch.cat([img[:3] * img[3], img[3:]])]
    for _ in range(1, levels):
        pyramid.append(downsample(pyramid[-1]))
    filled = pyramid[-1]
    for down in reversed(pyramid[:-1]):
        filled = down + (1 - down[3]) * upsample(filled, *down.shape[1:])
    return filled[:3] / filled[3]
