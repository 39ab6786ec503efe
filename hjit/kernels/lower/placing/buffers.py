"""Buffers of a task: memory of stages that are computed inside its nest."""

from __future__ import annotations

from hjit.kernels.lower.loopir import Let
from hjit.kernels.lower.placing.context import NestContext, Stmts
from hjit.kernels.lower.program import Buffer
from hjit.sched.analysis.bounds import Region
from hjit.sched.language.kinds import Memory
from hjit.sched.language.limits import check_buffer
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.poly import ZERO, Poly, Sym, Var, extremum, poly


def allocate(n: NestContext, stage: str, held: Region, in_thread: bool) -> Stmts:
    """The buffer for a region of a stage; its origin gets a name if the nest has separate code for different places."""
    if stage in n.buffers and not n.is_doubled:
        return ()
    origin = [s.low for s in held]
    lengths = [_at_least_one(s.length) for s in held]
    for k, length in enumerate(lengths):
        if not all(isinstance(a, Sym) for a in length.atoms()):  # minima of minima: a whole axis, and a short text
            origin[k], lengths[k] = ZERO, n.reads.stages[stage].shape[k]
    memory: Memory = "heap" if not n.in_blocks else "register" if in_thread else "shared"
    check_buffer(stage, [length.const for length in lengths if length.is_const], memory)
    lets: Stmts = ()
    if n.is_doubled:
        names = [Var(f"{stage}.from{k}") for k in range(len(origin))]
        lets = tuple(map(Let, names, origin))
        old = n.buffers.get(stage)
        if old is not None:
            lengths = [extremum("max", a, b) for a, b in zip(lengths, old.lengths, strict=True)]
        origin = list(map(poly, names))
    layout = n.layouts.get(stage, C_ORDER)
    n.buffers[stage] = Buffer(stage, tuple(origin), tuple(lengths), layout, shared=memory == "shared")
    return lets


def _at_least_one(n: Poly) -> Poly:
    """Regions are never empty, even where their consumers are."""
    return poly(max(n.const, 1)) if n.is_const else n
