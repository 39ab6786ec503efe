"""`benchmarks.apps.snake` in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks.apps.snake import AREA, BLUR, LENGTH, REGULARITY, TIME_STEP, TINY, WIDTH, dx, dy, laplacian
from benchmarks.peers.torch.edges import edge

Tensor = Any  # torch.Tensor: helpers of the application have NumPy's types


def gaussian_filter(img: Tensor, sigma: float) -> Tensor:
    radius = int(3.0 * sigma + 0.5)
    taps = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    taps = [t / sum(taps) for t in taps]
    h, w = img.shape
    padded = edge(img, (radius, radius), (radius, radius))
    rows = sum(t * padded[k : k + h] for k, t in enumerate(taps))
    return sum(t * rows[:, k : k + w] for k, t in enumerate(taps))


def evolve(phi: Tensor, g: Tensor, g_x: Tensor, g_y: Tensor) -> Tensor:
    padded = edge(phi, (2, 2), (2, 2))
    phi_x, phi_y = dx(padded), dy(padded)
    slope = torch.sqrt(phi_x * phi_x + phi_y * phi_y)
    normal_x, normal_y = phi_x / (slope + TINY), phi_y / (slope + TINY)

    well = torch.where(slope <= 1.0, torch.sin(2.0 * math.pi * slope) / (2.0 * math.pi), slope - 1.0)
    flow_x, flow_y = well * normal_x - phi_x, well * normal_y - phi_y
    regular = dx(flow_x) + dy(flow_y) + laplacian(padded[1:-1, 1:-1])

    dirac = torch.where(phi.abs() <= WIDTH, (1.0 + torch.cos(math.pi / WIDTH * phi)) / (2.0 * WIDTH), 0.0)
    curvature = dx(normal_x) + dy(normal_y)
    edges = dirac * (g_x * normal_x[1:-1, 1:-1] + g_y * normal_y[1:-1, 1:-1] + g * curvature)
    return phi + TIME_STEP * (REGULARITY * regular + LENGTH * edges + AREA * (dirac * g))


def snake(img: Tensor, phi: Tensor, iterations: int = 8) -> Tensor:
    smooth = edge(gaussian_filter(img, BLUR), (1, 1), (1, 1))
    smooth_x, smooth_y = dx(smooth), dy(smooth)
    g = 1.0 / (1.0 + smooth_x * smooth_x + smooth_y * smooth_y)
    g_padded = edge(g, (1, 1), (1, 1))
    g_x, g_y = dx(g_padded), dy(g_padded)
    for _ in range(iterations):
        phi = evolve(phi, g, g_x, g_y)
    return phi
