"""`benchmarks.apps.stencil_chain` in PyTorch, whose uint16 has no arithmetic: in int32, of which 16 bits
are kept. The weights are products, and so rows are summed first.
"""

from __future__ import annotations

import torch

from benchmarks.apps.stencil_chain import STENCILS
from benchmarks.peers.torch.edges import edge


def stencil(img: torch.Tensor) -> torch.Tensor:
    h, w = img.shape[0] - 4, img.shape[1] - 4
    rows = sum((dy + 1) * img[dy : dy + h] for dy in range(5))
    return sum((dx + 1) * rows[:, dx : dx + w] for dx in range(5)) & 0xFFFF


def stencil_chain(img: torch.Tensor) -> torch.Tensor:
    stage = edge(img.to(torch.int32), (2 * STENCILS,) * 2, (2 * STENCILS,) * 2)
    for _ in range(STENCILS):
        stage = stencil(stage)
    return stage.to(torch.uint16)
