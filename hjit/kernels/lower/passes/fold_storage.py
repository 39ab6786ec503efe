"""Storage folding: a stage with a sliding window keeps only what one iteration reads (Halide 2012, section 4.3).

The axis that moves becomes a circular buffer, whose length is rounded up to a power of two so that indices wrap by a
mask. If `SlidingProduce` has no window, the whole axis is kept.
"""

from __future__ import annotations

from dataclasses import replace

from hjit.kernels.lower.loopir import SlidingProduce
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import every
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ZERO, Poly, poly


def fold_storage(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Give stages with sliding windows circular buffers, if possible."""
    slides: dict[str, list[SlidingProduce]] = {}
    for s in every(nest.body):
        if isinstance(s, SlidingProduce):
            slides.setdefault(s.stage, []).append(s)
    if not slides:
        return nest
    folded = {
        stage: _folded(nest.buffers[stage], found[0].axis, max(s.window for s in found))
        for stage, found in slides.items()
        if all(s.window for s in found)
    }
    return replace(nest, buffers=nest.buffers | folded)


def _folded(b: Buffer, axis: int, window: int) -> Buffer:
    def with_axis(ps: tuple[Poly, ...], p: Poly) -> tuple[Poly, ...]:
        return (*ps[:axis], p, *ps[axis + 1 :])

    length = poly(1 << (window - 1).bit_length())
    return replace(b, origin=with_axis(b.origin, ZERO), lengths=with_axis(b.lengths, length), fold=axis)
