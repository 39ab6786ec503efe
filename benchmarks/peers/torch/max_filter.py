"""`benchmarks.apps.max_filter` in PyTorch."""

from __future__ import annotations

import torch

from benchmarks.apps.max_filter import run_reach
from benchmarks.peers.torch.edges import edge


def max_filter(img: torch.Tensor, radius: int = 26) -> torch.Tensor:
    _, height, width = img.shape
    tallest = run_reach(0, radius)
    runs = [edge(img, (tallest, tallest), (radius, radius))]
    for k in range((2 * tallest + 1).bit_length() - 1):
        runs.append(torch.maximum(runs[k][:, : -(1 << k)], runs[k][:, 1 << k :]))

    out = img
    for dx in range(radius + 1):
        reach = run_reach(dx, radius)
        level = (2 * reach + 1).bit_length() - 1
        first, second = tallest - reach, tallest + reach + 1 - (1 << level)
        run = torch.maximum(runs[level][:, first : first + height], runs[level][:, second : second + height])
        both = torch.maximum(run[:, :, radius - dx : radius - dx + width], run[:, :, radius + dx : radius + dx + width])
        out = torch.maximum(out, both)
    return out
