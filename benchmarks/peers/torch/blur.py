"""`benchmarks.apps.blur` in PyTorch, whose uint16 has no arithmetic: in int32, of which 16 bits are kept."""

from __future__ import annotations

import torch


def third(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return ((a + b + c) & 0xFFFF) // 3


def blur(img: torch.Tensor) -> torch.Tensor:
    img = img.to(torch.int32)
    blur_x = third(img[:, :-2], img[:, 1:-1], img[:, 2:])
    return third(blur_x[:-2], blur_x[1:-1], blur_x[2:]).to(torch.uint16)
