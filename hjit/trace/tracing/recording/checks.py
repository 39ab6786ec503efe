"""Checks for inputs that NumPy rejects: indices out of bounds, and values. The plain function then runs, and NumPy
raises."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hjit.trace.ir.analysis.gathers import evaluated_gathers, gather_of
from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.recording.recorder import Recorder


def finish_checks(rec: Recorder, goals: Iterable[str]) -> None:
    """One stage says whether NumPy refuses anything, also an index that is not evaluated for `goals`."""
    _check_indices(rec, goals)
    parts: list[Expr] = []
    for name in dict.fromkeys(rec.checks):
        shape = rec.stages[name].shape if name in rec.stages else rec.inputs[name].input.shape
        load = Load(name, identity(len(shape)), np.dtype(bool))
        parts.append(Load(_any(rec, load, shape), (), load.dtype) if shape else load)
    while len(parts) > 1:
        parts = [Op("logical_or", (a, b), a.dtype) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[
            len(parts) & ~1 :
        ]
    rec.checks = [rec.stage(e, (), e.dtype, name="refused").name for e in parts]


def _any(rec: Recorder, e: Expr, shape: tuple[Poly, ...]) -> str:
    """The stage that says whether `e` holds anywhere."""
    name = rec.unique("anywhere")
    bad = Op("logical_or", (Load(name, (), e.dtype), e), e.dtype)
    update = Definition((), shape, (), bad, "logical_or")
    return rec.stage(Const(False, e.dtype), (), e.dtype, (update,), reserved=name).name


def _check_indices(rec: Recorder, goals: Iterable[str]) -> None:
    seen, needed = evaluated_gathers(rec.stages, goals, rec.sizes) if rec.indices else (set(), set())
    for noted in rec.indices.values():
        # where a re-rolled loop has made it part of what it writes, it is checked there
        stage = rec.stages.get(noted.stage)
        if (
            stage is None
            or stage.initial is None
            or noted.scatters & needed
            or gather_of(stage.initial, stage.shape, noted.length) in seen
        ):
            continue
        index, flag = stage.initial, np.dtype(bool)
        outside = [
            Op("less", (index, Index(-noted.length)), flag),
            Op("greater_equal", (index, Index(noted.length)), flag),
        ]
        rec.checks.append(_any(rec, Op("logical_or", tuple(outside), flag), stage.shape))
