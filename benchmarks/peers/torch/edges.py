"""Edges that are repeated, of tensors of any kind: `torch.nn.functional.pad` has floats only."""

from __future__ import annotations

import torch


def edge(x: torch.Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> torch.Tensor:
    """A tensor (..., H, W) with so many more before and after, which are its edges."""
    h, w = x.shape[-2:]
    y = torch.arange(-rows[0], h + rows[1], device=x.device).clamp(0, h - 1)
    return x[..., y[:, None], torch.arange(-columns[0], w + columns[1], device=x.device).clamp(0, w - 1)]


def by_turns(even: torch.Tensor, odd: torch.Tensor, axis: int) -> torch.Tensor:
    """The elements of two tensors by turns, along an axis from the end."""
    return torch.stack([even, odd], even.ndim + axis + 1).flatten(even.ndim + axis, even.ndim + axis + 1)
