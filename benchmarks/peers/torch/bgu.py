"""`benchmarks.apps.bgu` in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.apps.bgu import R_SIGMA, REGULARISATION, S_SIGMA, TAPS, brightness, lerp, solve_symmetric
from benchmarks.peers.torch.edges import edge

Tensor = Any  # torch.Tensor: helpers of the application have NumPy's types


def blur7(grid: Tensor, axis: int) -> Tensor:
    n = grid.shape[axis] - 6
    return sum(t * grid.narrow(axis, k, n) for k, t in enumerate(TAPS))


def affine_models(
    splat: Tensor, value: Tensor, rows: int, cols: int, r_sigma: float, s_sigma: int
) -> list[list[Tensor]]:
    """For each cell the model of each colour, by its four coefficients: 4 x 3 tensors (bins, rows, cols)."""
    bins = int(1 / r_sigma)
    affine = [*splat, torch.ones_like(splat[0])]
    products = [affine[i] * affine[j] for i in range(4) for j in range(i, 4)] + [v * a for v in value for a in affine]
    zi = torch.round(torch.clamp(brightness(splat), 0.0, 1.0) * (1.0 / r_sigma)).to(torch.int64) + 3
    row = torch.arange(rows * s_sigma, device=splat.device)[:, None] // s_sigma
    at = (zi * rows + row) * cols + torch.arange(cols * s_sigma, device=splat.device) // s_sigma
    flat = splat.new_zeros(22, (bins + 8) * rows * cols)
    histogram = flat.index_add(1, at.flatten(), torch.stack(products).flatten(1)).reshape(22, bins + 8, rows, cols)
    blurred = blur7(blur7(blur7(histogram, 1), 2), 3)

    upper = {(i, j): 4 * i - i * (i - 1) // 2 + j - i for i in range(4) for j in range(i, 4)}
    gram = [[blurred[upper[min(i, j), max(i, j)]] for j in range(4)] for i in range(4)]
    target = [[blurred[10 + 4 * c + i] for c in range(3)] for i in range(4)]
    for i in range(4):
        gram[i][i] = gram[i][i] + REGULARISATION
    for i in range(3):
        target[i][i] = target[i][i] + REGULARISATION
    return solve_symmetric(gram, target)


def bgu(
    splat_loc: Tensor,
    values: Tensor,
    slice_loc: Tensor,
    r_sigma: float = R_SIGMA,
    s_sigma: int = S_SIGMA,
) -> Tensor:
    _, small_h, small_w = splat_loc.shape
    _, h, w = slice_loc.shape
    big_sigma = s_sigma * max(-(-h // small_h), -(-w // small_w))
    bins = int(1 / r_sigma)
    before = 3 * s_sigma + s_sigma // 2
    rows, cols = (h - 1) // big_sigma + 8, (w - 1) // big_sigma + 8
    around = (before, rows * s_sigma - before - small_h), (before, cols * s_sigma - before - small_w)
    models = affine_models(edge(splat_loc, *around), edge(values, *around), rows, cols, r_sigma, s_sigma)
    line = torch.stack([models[i][c] for c in range(3) for i in range(4)])

    y, x = torch.arange(h, device=slice_loc.device), torch.arange(w, device=slice_loc.device)
    yi, xi = y // big_sigma, x // big_sigma
    yf = (y % big_sigma).to(torch.float32)[:, None] / big_sigma
    xf = (x % big_sigma).to(torch.float32) / big_sigma
    matrix_y = lerp(line[:, :, yi], line[:, :, yi + 1], yf)
    position = torch.clamp(brightness(slice_loc), 0.0, 1.0) * bins
    zi = position.to(torch.int64)
    zf = position - zi
    y = y[:, None]
    near = lerp(matrix_y[:, zi, y, xi], matrix_y[:, zi, y, xi + 1], xf)
    far = lerp(matrix_y[:, zi + 1, y, xi], matrix_y[:, zi + 1, y, xi + 1], xf)
    model = lerp(near, far, zf).reshape(3, 4, h, w)
    r, g, b = slice_loc
    return (model[:, 0] * r + model[:, 1] * g + model[:, 2] * b + model[:, 3]).clamp(0.0, 1.0)
