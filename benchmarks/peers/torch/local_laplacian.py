"""`benchmarks.apps.local_laplacian` in PyTorch."""

from __future__ import annotations

import itertools

import torch

from benchmarks.apps.local_laplacian import J
from benchmarks.peers.torch.edges import by_turns, edge


def downsample(img: torch.Tensor) -> torch.Tensor:
    h, w = img.shape[-2:]
    ny, nx = h + h % 2, w + w % 2
    p = edge(img, (1, 1 + h % 2), (1, 1 + w % 2))
    downy = (p[..., :ny:2, :] + 3.0 * (p[..., 1 : ny + 1 : 2, :] + p[..., 2 : ny + 2 : 2, :]) + p[..., 3::2, :]) / 8.0
    return (
        downy[..., :nx:2] + 3.0 * (downy[..., 1 : nx + 1 : 2] + downy[..., 2 : nx + 2 : 2]) + downy[..., 3::2]
    ) / 8.0


def upsample(img: torch.Tensor, h: int, w: int) -> torch.Tensor:
    p = edge(img, (1, 1), (1, 1))
    centre = 0.75 * p[..., 1:-1]
    upx = by_turns(centre + 0.25 * p[..., :-2], centre + 0.25 * p[..., 2:], -1)
    centre = 0.75 * upx[..., 1:-1, :]
    return by_turns(centre + 0.25 * upx[..., :-2, :], centre + 0.25 * upx[..., 2:, :], -2)[..., :h, :w]


def local_laplacian(img: torch.Tensor, levels: int, alpha: float, beta: float) -> torch.Tensor:
    floating = img.to(torch.float32)
    gray = (0.299 * floating[0] + 0.587 * floating[1] + 0.114 * floating[2]) / 65535.0

    span = 256 * (levels - 1)
    fx = torch.arange(-span, span + 1, dtype=torch.float32, device=img.device) / 256.0
    remap = alpha * fx * torch.exp(-fx * fx / 2.0)
    k = torch.arange(levels, device=img.device)[:, None, None]
    level = k.to(torch.float32) * (1.0 / (levels - 1))
    idx = (gray * (levels - 1) * 256.0).to(torch.int32).clamp(0, span)
    pyramid, guide = [beta * (gray - level) + level + remap[idx - 256 * k + span]], [gray]
    for _ in range(1, J):
        pyramid.append(downsample(pyramid[-1]))
        guide.append(downsample(guide[-1]))
    laplacian = [fine - upsample(coarse, *fine.shape[-2:]) for fine, coarse in itertools.pairwise(pyramid)]
    laplacian.append(pyramid[-1])

    detail = []
    for g, lap in zip(guide, laplacian, strict=True):
        position = g * (levels - 1)
        li = position.to(torch.int64).clamp(0, levels - 2)
        lf = position - li
        below, above = lap.gather(0, li[None])[0], lap.gather(0, li[None] + 1)[0]
        detail.append((1.0 - lf) * below + lf * above)
    result = detail[-1]
    for d in reversed(detail[:-1]):
        result = upsample(result, *d.shape) + d

    eps = 0.01
    color = floating * (result + eps) / (gray + eps)
    return color.clamp(0.0, 65535.0).to(torch.int32).to(torch.uint16)
