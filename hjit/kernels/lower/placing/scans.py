"""Scans that the threads of a block compute together, and scans of which each thread computes a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hjit.kernels.lower.loopir import For, Scan, Stmt
from hjit.kernels.lower.placing.context import NestContext, Stmts, definition_of
from hjit.kernels.lower.placing.environment import Env
from hjit.kernels.lower.placing.innermost import point
from hjit.kernels.lower.traverse import at, with_parts
from hjit.sched.language.tree import Compute, Loop, dims_of
from hjit.trace.ir.analysis.scans import scan_of
from hjit.trace.ir.expressions import Const, Expr, Index, Op, renumber, rewrite, substitute
from hjit.trace.ir.poly import poly


def scan_over(n: NestContext, node: Loop, compute: Compute, env: Env) -> Scan | None:
    """The iterations of a loop over threads as one statement; None where they are no scan."""
    s, d = n.reads.stages[compute.stage], definition_of(n.reads, compute)
    found = scan_of(s, d)
    if node.kind != "gpu_thread" or found is None or dims_of(node.dim)[0] < len(d.dims):
        return None
    left, var = env.remains(node), n.loop_var(node)
    change, first = (renumber(point(env.at(node, p).intervals[s.name], len(d.extents))) for p in (poly(var), left.low))
    initial = found.before if found.start is None else found.start
    is_sum = found.op == "add" and s.dtype.kind == "f"
    dtype = np.dtype(np.float64) if is_sum else s.dtype
    return Scan(
        s.name,
        found.op,
        var,
        left.low,
        left.end,
        tuple(p.substitute(change) for p in d.target),
        substitute(initial, first),
        substitute(found.element, change),
        dtype,
        s.dtype,
        is_sum and s.dtype == dtype and not n.fast,
    )


def from_start(n: NestContext, node: Loop, compute: Compute, stmts: Stmts) -> Stmts:
    """The iterations of a part of a scan, one after the other: the first one goes on from what comes before the part,
    and does not read what another thread writes."""
    s, d = n.reads.stages[compute.stage], definition_of(n.reads, compute)
    found = scan_of(s, d) if n.in_blocks and node.size is not None and dims_of(node.dim)[0] >= len(d.dims) else None
    if found is None or found.restart != node.size or len(stmts) != 1:
        return stmts
    (loop,) = stmts
    if not isinstance(loop, For) or loop.step != 1:
        return stmts
    at_start = Op("equal", (Index(poly(loop.var) % found.restart), Const(0, np.int64)), np.bool_)

    def chosen(arm: int) -> tuple[Stmt, ...]:
        def change(e: Expr) -> Expr | None:
            return e.args[arm] if isinstance(e, Op) and e.name == "select" and e.args[0] == at_start else None

        return tuple(with_parts(x, lambda p: p, lambda e: rewrite(e, change)) for x in loop.body)

    return (*at(chosen(1), {loop.var: loop.begin}), replace(loop, begin=loop.begin + 1, body=chosen(2)))
