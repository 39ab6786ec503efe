"""Which arrays of a trace have NumPy's bits."""

from __future__ import annotations

from hjit.trace.ir.analysis.tolerances import EXACT, ToleranceAnalysis, rounding
from hjit.trace.tracing.arrays.tracer import Tracer
from hjit.trace.tracing.recording.recorder import current


def has_numpys_bits(a: Tracer) -> bool:
    """Are the elements NumPy's to the last bit? What is decided by others may be decided otherwise than in NumPy."""
    rec = current()
    given = {n: rounding(x.input.dtype) for n, x in rec.inputs.items() if x.where[0] == "event"}
    analysis = ToleranceAnalysis(given, fast_math=False, reorders_scatters=False)
    for s in rec.stages.values():
        analysis.stage(s)
    return analysis.expr(a.load(), {}) == EXACT
