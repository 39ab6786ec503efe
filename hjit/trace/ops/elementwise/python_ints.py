"""Operations on ints of Python that are computed: Python's have no end, those of a kernel have 64 bits, and Python
raises where a shift counts less than nothing.

In loops that are traced as one iteration each operation is noted. At the end of an iteration it is known what numbers
it can meet (`hjit.trace.capture.loops.python_ints`); where one may be too large, the loop is traced again, and the
operation is checked in each iteration. Elsewhere it is checked at once, unless its operands are small. Where a result
is too large, Python runs.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.analysis.ranges import Range
from hjit.trace.tracing.arrays.tracer import as_value, is_tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host

LARGE = 9.2e18  # a float below which a result has 63 bits, whatever the roundings of its operands were
EXACT = 1 << 53  # ints up to which are floats
_SHIFTS = (np.left_shift, np.right_shift)
_BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.right_shift)
_MONOTONE: dict[Any, Callable[..., int]] = {  # in each operand, whatever the others are
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.negative: operator.neg,
}
_SMALLER = frozenset((*_BITS, np.floor_divide, np.remainder, np.positive))  # results need no more bits than operands


_OF_KNOWN: dict[Any, Callable[[int, int], Any]] = {
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.power: operator.pow,
}


def of_known(f: Any, a: Any, b: Any) -> Any:
    """``f(a, b)`` of ints that are decided on: powers and shifts outside of loops. None: it is computed."""
    if f not in _OF_KNOWN or current().loops or not (_is_int(a) and _is_int(b)):
        return None
    return _OF_KNOWN[f](*(int(as_value(x)) if is_tracer(x) else x for x in (a, b)))


def check_operands(f: Any, a: Any, b: Any) -> None:
    """Have Python run where it raises, or where an int is no float of the same value, before ``f(a, b)``."""
    rec = current()
    if not (_is_int(a) and _is_int(b)):
        return
    if f in _SHIFTS and is_tracer(b) and not _is_within(b, 0, None):
        rec.check(b < 0)
    if f is np.true_divide:
        for x in (a, b):
            if is_tracer(x) and not _is_within(x, -EXACT, EXACT):
                rec.check((x < -EXACT) | (x > EXACT))


def note(f: Any, operands: tuple[Any, ...], result: Any) -> None:
    """Note that a result is an int of Python, and check that it is no large one where that has been asked for."""
    rec = current()
    if f in _SMALLER or not is_tracer(result) or result.dtype.kind != "i" or result.known is not None:
        return
    if rec.loops and not any(loop.checks_ints for loop in rec.loops):
        rec.rerolled.python_ints.add(result.buffer.source())
        return
    if not rec.loops and _is_small(f, operands):
        return
    floats = [x.astype(np.float64) if is_tracer(x) else np.float64(x) for x in operands]
    if rec.loops:
        rec.findings.checked_int = rec.findings.checked_int or rec.line()
    size = floats[0] * np.exp2(floats[1]) if f is np.left_shift else f(*floats)
    rec.check(~(abs(size) < LARGE))


def _is_int(x: Any) -> bool:
    return bool(x.dtype.kind in "ib") if is_tracer(x) else isinstance(x.value if is_host(x) else x, int)


def _is_within(x: Any, low: int | None, high: int | None) -> bool:
    rec = current()
    found: Range | None = (rec.loops[-1] if rec.loops else rec).range_of(x.load())
    return found is not None and (low is None or found[0] >= low) and (high is None or found[1] <= high)


def _is_small(f: Any, operands: tuple[Any, ...]) -> bool:
    """Do the operands tell that a result has 64 bits?"""
    ranges = [current().range_of(x.load()) if is_tracer(x) else (x, x) if type(x) is int else None for x in operands]
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges) or f not in _MONOTONE:
        return False
    return all(abs(_MONOTONE[f](*map(int, ends))) < 1 << 63 for ends in itertools.product(*known))
