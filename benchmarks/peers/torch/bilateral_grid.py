"""`benchmarks.apps.bilateral_grid` in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.apps.bilateral_grid import lerp
from benchmarks.peers.torch.edges import edge

Tensor = Any  # torch.Tensor: helpers of the application have NumPy's types


def blur5(grid: Tensor, axis: int) -> Tensor:
    n = grid.shape[axis] - 4
    a, b, c, d, e = (grid.narrow(axis, k, n) for k in range(5))
    return a + 4 * b + 6 * c + 4 * d + e


def bilateral_grid(img: Tensor, r_sigma: float, s_sigma: int) -> Tensor:
    h, w = img.shape
    bins = int(1 / r_sigma + 0.5) + 1
    before = 2 * s_sigma + s_sigma // 2
    rows, cols = (h - 1) // s_sigma + 6, (w - 1) // s_sigma + 6
    padded = edge(img, (before, rows * s_sigma - before - h), (before, cols * s_sigma - before - w)).clamp(0, 1)

    depth = (padded * (1 / r_sigma) + 0.5).to(torch.int64) + 2
    row = torch.arange(rows * s_sigma, device=img.device)[:, None] // s_sigma
    at = (depth * rows + row) * cols + torch.arange(cols * s_sigma, device=img.device) // s_sigma
    flat = img.new_zeros((bins + 5) * rows * cols)
    sums = [flat.scatter_add(0, at.flatten(), x.flatten()) for x in (padded, torch.ones_like(padded))]
    grid = torch.stack(sums).reshape(2, bins + 5, rows, cols)
    grid = blur5(blur5(blur5(grid, 1), 3), 2)

    position = img.clamp(0, 1) * (1 / r_sigma)
    zi = position.to(torch.int64)
    zf = position - zi
    y, x = torch.arange(h, device=img.device)[:, None], torch.arange(w, device=img.device)
    yi, xi = y // s_sigma, x // s_sigma
    yf, xf = (y % s_sigma).to(img.dtype) / s_sigma, (x % s_sigma).to(img.dtype) / s_sigma
    corners = [[[grid[:, zi + dz, yi + dy, xi + dx] for dx in range(2)] for dy in range(2)] for dz in range(2)]
    near, far = (lerp(lerp(a, b, xf), lerp(c, d, xf), yf) for (a, b), (c, d) in corners)
    total, weight = lerp(near, far, zf)
    return total / weight
