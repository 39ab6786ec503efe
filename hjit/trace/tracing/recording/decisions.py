"""Decisions of the traced function on computed values, and their outcomes in earlier traces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hjit.errors import LongLoop, TraceError
from hjit.trace.ir.expressions import Expr, Load, Op, ScalarRef, walk
from hjit.trace.ir.graph import Graph, Stage, identity
from hjit.trace.ir.interpret import interpret_stages
from hjit.trace.ir.poly import sizes_value
from hjit.trace.tracing.recording.events import ExpectedOutcome, GraphBreak
from hjit.trace.tracing.recording.loops import iterations
from hjit.trace.tracing.recording.recorder import Recorder

MAX_DECISIONS = 24  # of a trace: a loop until convergence would compile a segment for each iteration
MAX_SPECULATED = 64  # conditions: more are a loop over pixels
MAX_CONSTANT = 1 << 16  # elements that NumPy computes for a number that no call changes
MAX_TEXT = 200  # characters of a condition, by which its outcome is known


def decide(rec: Recorder, stage: str) -> Any:
    """The value of a one-element stage, now; later calls check that it is the same, where it need not be."""
    if rec.loops:
        return _guarded(rec, stage)
    number = _number(rec, stage)
    if number not in rec.known.decided:
        constant = _constant(rec, stage)
        rec.known.decided[number] = _guarded(rec, stage) if constant is None else constant
    return rec.known.decided[number]


def _number(rec: Recorder, stage: str) -> Expr | str:
    """What a stage without axes is, the same for copies of one number: an expression, or the stage itself."""
    found = rec.stages.get(stage)
    while found is not None and isinstance(found.initial, Load) and not found.updates:
        source = rec.stages.get(found.initial.source)
        if source is None or source.shape:
            break
        found = source
    return stage if found is None or found.updates or found.initial is None else found.initial


def _guarded(rec: Recorder, stage: str) -> Any:
    """The value of a stage, which is a condition of the trace from now on."""
    found = _speculated(rec, stage)
    if found is not None:
        return found
    number = sum(e.call is None for e in rec.breaks)
    try:
        if number >= MAX_DECISIONS:
            raise rec.long_loop(
                f"it has decided on computed values {MAX_DECISIONS} times",
                "iterate outside the decorated function",
                LongLoop if rec.unrolled.has_short and not rec.attempt.rolls_short else TraceError,
            )
        rec.break_in_loop("decisions on computed values", iterations.MAX_DECISIONS)
    except TraceError:
        rec.findings.repeated_decision = rec.line()
        raise
    value: Any = _assumed(rec, number, stage)
    if value is None:
        value = rec.options.evaluate(rec, (stage,))[0].reshape(())[()]
    rec.breaks.append(GraphBreak((stage,), value=value, operation="decision", origin=rec.line()))
    return value


def _speculated(rec: Recorder, stage: str) -> np.bool_ | None:
    """The value of a condition in a loop, which is expected to be that of all its iterations at all calls; None: it is
    to be decided on.

    Raises:
        LongLoop: it differs between iterations, there are many, or computing it takes as long as compiling the loop.
    """
    line = rec.line() if rec.attempt.speculates and not rec.loops else None
    found = rec.stages.get(stage)
    if line is None or (place := (line.filename, line.line)) not in rec.attempt.speculates:
        return None
    if found is None or found.dtype.kind != "b":
        return None
    speculated, before = rec.known.speculated, rec.options.speculated
    value: Any = None
    if len(speculated) < len(before) and before[len(speculated)][0] == place:
        value = np.bool_(before[len(speculated)][1])
        rec.known.assumed += 1
    elif len(speculated) < MAX_SPECULATED and rec.options.is_quick(rec, (stage,)):
        value = rec.options.evaluate(rec, (stage,))[0].reshape(())[()]
    if value is None or any(p == place and v != value for p, v in speculated):
        raise rec.long_loop(
            "its iterations make decisions on computed values", "write it as operations on whole arrays"
        )
    outcome = bool(value)
    speculated.append((place, outcome))
    flag, shape = np.dtype(bool), found.shape
    is_so: Expr = Load(stage, identity(len(shape)), flag)
    other = Op("logical_not", (is_so,), flag) if outcome else is_so
    rec.findings.speculates = True
    rec.checks.append(rec.stage(other, shape, flag, name="otherwise").name)
    return np.bool_(outcome)


def _constant(rec: Recorder, stage: str) -> Any:
    """The value of a stage that is made of known numbers, sizes and guarded scalars alone; None: of others, too."""
    needed = _without_arrays(rec, stage)
    if needed is None or not all(rec.is_fixed(name) for name in _scalars(needed)):
        return None
    return None if not _compute(rec, stage, needed) else rec.known.constants[stage].reshape(())[()]


def settle(rec: Recorder, stage: str) -> np.ndarray[Any, Any] | None:
    """The elements of a stage that is made of known numbers, sizes and scalars alone, which are guarded from now on;
    None: of others, too."""
    needed = _without_arrays(rec, stage)
    if needed is None:
        return None
    for name in _scalars(needed):
        rec.scalars.hosts[name].make_static()
    return rec.known.constants[stage] if _compute(rec, stage, needed) else None


def _without_arrays(rec: Recorder, stage: str) -> dict[str, Stage] | None:
    """What is not computed yet for a stage; None: arrays are needed that the function does not make, or much work."""
    needed: dict[str, Stage] = {}
    names, work = [stage], 0
    while names:
        name = names.pop()
        if name in needed or name in rec.known.constants:
            continue
        if name in rec.inputs:
            if rec.inputs[name].where != ("constant",):
                return None
            continue
        found = needed[name] = rec.stages[name]
        work += sum(math.prod(sizes_value(n, rec.sizes) for n in d.extents) for d in found.definitions)
        if work > MAX_CONSTANT:
            return None
        names += found.sources
    return needed


def _scalars(stages: dict[str, Stage]) -> set[str]:
    return {e.name for s in stages.values() for e in walk(*s.exprs()) if isinstance(e, ScalarRef)}


def _compute(rec: Recorder, stage: str, needed: dict[str, Stage]) -> bool:
    """Add a stage to the known numbers; False: an index is out of bounds, of a condition, perhaps, that does not hold
    there."""
    stages = tuple(s for s in rec.stages.values() if s.name in needed)
    sources = {name for s in stages for name in s.sources}
    arrays = {n: s.array for n, s in rec.inputs.items() if n in sources}
    arrays |= {n: a for n, a in rec.known.constants.items() if n in sources and n not in needed}
    hosts = {name: host.value for name, host in rec.scalars.hosts.items()}
    try:
        rec.known.constants |= interpret_stages(Graph((), (), stages, (stage,)), arrays, rec.sizes, hosts)
    except IndexError:
        return False
    return True


def _assumed(rec: Recorder, number: int, stage: str) -> np.bool_ | None:
    """How a condition in the same place came out before; None: it is not known."""
    expected = rec.options.expected[number] if number < len(rec.options.expected) else None
    if expected is None or expected != _outcome(rec, stage, expected.value):
        return None
    rec.known.assumed += 1
    return np.bool_(expected.value)


def _outcome(rec: Recorder, stage: str, value: Any) -> ExpectedOutcome | None:
    """Of a decision on a stage; None where it is no condition, or has no place."""
    found = rec.stages.get(stage)
    if found is None or found.dtype.kind != "b" or found.origin is None:
        return None
    value_of = found.initial
    while isinstance(value_of, Load) and value_of.source in rec.stages:  # where the condition is computed
        value_of = rec.stages[value_of.source].initial
    text = str(value_of)[:MAX_TEXT]
    return ExpectedOutcome(found.origin.filename, found.origin.line, text, bool(value))


def outcomes(rec: Recorder) -> list[ExpectedOutcome | None]:
    """How the decisions came out, in order, for `expected` of a later trace."""
    return [_outcome(rec, e.needs[0], e.value) for e in rec.breaks if e.call is None]
