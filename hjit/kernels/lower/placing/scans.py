"""Scans whose iterations the threads of a block share."""

from __future__ import annotations

import numpy as np

from hjit.kernels.lower.loopir import Scan
from hjit.kernels.lower.placing.context import NestContext, definition_of
from hjit.kernels.lower.placing.environment import Env
from hjit.kernels.lower.placing.leaves import point
from hjit.sched.language.tree import Compute, Loop, dims_of
from hjit.trace.ir.graph import renumber, substitute
from hjit.trace.ir.poly import poly
from hjit.trace.ir.scans import scan_of


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
