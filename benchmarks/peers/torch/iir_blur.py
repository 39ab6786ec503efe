"""`benchmarks.apps.iir_blur` in PyTorch, which has no scan for it: products with the matrix that the recurrence is.

A block of samples by a small matrix, then what the blocks carry by another, as in T. Dao and A. Gu, "Transformers are
SSMs" (2024), section 6.
"""

from __future__ import annotations

import torch
from torch.nn import functional

BLOCK = 64


def powers(decay: float, n: int, like: torch.Tensor) -> torch.Tensor:
    """(n, n): what sample i has of sample j."""
    i = torch.arange(n, device=like.device)
    apart = i[:, None] - i
    return torch.where(apart >= 0, decay ** apart.clamp(min=0).to(like.dtype), 0.0)


def recurrence(img: torch.Tensor, alpha: float, reverse: bool) -> torch.Tensor:
    """The filter one way along axis 1: what it starts with is as it is. (C, N, M) -> (C, N, M)."""
    c, n, m = img.shape
    count = -(-n // BLOCK)
    is_first = torch.arange(n, device=img.device)[:, None] == (n - 1 if reverse else 0)
    value = functional.pad(torch.where(is_first, img, alpha * img), (0, 0, 0, count * BLOCK - n))

    decay = 1 - alpha
    within, between = powers(decay, BLOCK, img), powers(decay**BLOCK, count, img)
    if reverse:
        within, between = within.T, between.T
    inner = within @ value.reshape(c, count, BLOCK, m)
    state = between @ (inner[:, :, 0] if reverse else inner[:, :, -1])  # at the end of each block
    carried = functional.pad(state[:, 1:], (0, 0, 0, 1)) if reverse else functional.pad(state[:, :-1], (0, 0, 1, 0))
    k = torch.arange(BLOCK, device=img.device)
    factor = decay ** ((BLOCK - k) if reverse else k + 1).to(img.dtype)
    return (inner + factor[:, None] * carried[:, :, None]).reshape(c, count * BLOCK, m)[:, :n]


def iir_blur(img: torch.Tensor, alpha: float = 0.5) -> torch.Tensor:
    for _ in range(2):  # down and up the columns, then along and against the rows
        img = recurrence(recurrence(img, alpha, False), alpha, True).transpose(1, 2)
    return img.contiguous()
