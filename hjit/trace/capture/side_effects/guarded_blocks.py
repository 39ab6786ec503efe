"""Blocks under a condition on computed values that only warn, or that end in an exception, of which there is no trace.

``if bad.any(): warnings.warn("...")`` gives its warning at the calls at which the condition holds; at those at which
that of ``if x.min() < 0: raise ValueError(...)`` does, the plain function runs and raises. Neither is a decision, which
would cut the function into segments.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
import warnings
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from hjit.trace.capture.side_effects.effects import may_be_error
from hjit.trace.tracing.arrays.tracer import Tracer, call, stage_of
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import is_own
from hjit.trace.tracing.recording.recorder import Recorder, current

# of its functions that ignore NaN
NUMPYS_COPYTO: Any = inspect.unwrap(np.nanvar).__globals__["_copyto"]
_SKIPPED = ("CACHE", "PRECALL", "NOP", "PUSH_NULL", "KW_NAMES", "EXTENDED_ARG", "RESUME")
_ENDS = ("RAISE_VARARGS",)
_LOADS = ("LOAD_CONST", "LOAD_GLOBAL")
_LOCALS = ("LOAD_FAST", "LOAD_FAST_CHECK")


class _Block(NamedTuple):
    """What follows a condition.

    Attributes:
        raises: for which outcome an exception follows.
        category: the name of the global that is the class of the warning which is all that follows where it holds; "":
            that of `warnings.warn`; None: there is something else.
        warns: the names by which the block finds `warnings.warn`.
        holds: the outcome at which it is given.
        sets: are elements set after it, by `NUMPYS_COPYTO`?
    """

    raises: bool | None = None
    category: str | None = None
    warns: tuple[str, ...] = ()
    holds: bool = True
    sets: bool = False


@provides
def outcome_assumed(frame: FrameType, truth: Tracer) -> bool | None:
    """What a condition is taken for, where nothing but a warning or an exception depends on it; None: it is decided.

    Args:
        frame: of the code that asks for its truth.
    """
    rec = current()
    if is_own(frame.f_code) or rec.loops or rec.options.postpone is not None:
        return None
    found = _blocks(frame.f_code).get(frame.f_lasti)
    if found is None:
        return None
    if found.raises is not None:
        if _is_handled(rec, frame):
            return None
        rec.checks.append(stage_of(truth if found.raises else call(np.logical_not, truth)))
        return not found.raises
    if not _is_warn(frame, found.warns) or (found.sets and _named(frame, "_copyto") is not NUMPYS_COPYTO):
        return None
    category = UserWarning if not found.category else _named(frame, found.category)
    if not (isinstance(category, type) and issubclass(category, Warning)) or may_be_error(category):
        return None
    rec.externs.warns_if = truth if found.holds else call(np.logical_not, truth)
    return found.holds


def _named(frame: FrameType, name: str) -> Any:
    """A global of traced code."""
    names = getattr(frame.f_globals, "under", frame.f_globals)
    return names.get(name, getattr(sys.modules["builtins"], name, None))


def _is_warn(frame: FrameType, names: tuple[str, ...]) -> bool:
    found = _named(frame, names[0])
    for name in names[1:]:
        found = vars(found).get(name) if isinstance(found, types.ModuleType) else None
    return found is warnings.warn


def _is_handled(rec: Recorder, frame: FrameType) -> bool:
    """May traced code handle the exception? Then it may be one that many calls raise."""
    here: FrameType | None = frame
    while here is not None and type(here.f_globals) is not dict:
        if any(start <= here.f_lasti < end for start, end in _protected(here.f_code)):
            return True
        here = here.f_back
        while here is not None and is_own(here.f_code) and here.f_code.co_name != "_traced":
            here = here.f_back
    return False


@lru_cache(maxsize=1024)
def _protected(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Where a handler may be for exceptions that the code raises, as offsets."""
    if not code.co_exceptiontable:
        return ()
    return tuple((e.start, e.end) for e in dis._parse_exception_table(code))  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _blocks(code: CodeType) -> dict[int, _Block]:
    """The blocks after conditions, by the offsets at which a frame may stand that asks for one's truth."""
    if "warn" not in code.co_names and not any(dis.opname[op] in _ENDS for op in code.co_code[::2]):
        return {}
    steps = [s for s in dis.get_instructions(code) if s.opname not in _SKIPPED]
    at = {s.offset: k for k, s in enumerate(steps)}
    found = {}
    for k, s in enumerate(steps):
        if (
            s.opname.startswith("POP_JUMP")
            and s.opname.endswith(("IF_TRUE", "IF_FALSE"))
            and "BACKWARD" not in s.opname
        ):
            jumps_if = s.opname.endswith("TRUE")
            block = _after(steps, k + 1, _place(steps, at, s.argval), jumps_if)
            if block is not None:
                found[s.offset] = block
                if k and steps[k - 1].opname == "TO_BOOL":
                    found[steps[k - 1].offset] = block
    return found


def _place(steps: list[dis.Instruction], at: dict[int, int], offset: int) -> int:
    """The instruction at an offset, or the first one behind it that counts."""
    return at[offset] if offset in at else next((k for k, s in enumerate(steps) if s.offset >= offset), len(steps))


def _after(steps: list[dis.Instruction], on: int, target: int, jumps_if: bool) -> _Block | None:
    """What follows a condition: `on` where there is no jump, and else `target`, where it is `jumps_if`."""
    if _raises(steps, on):
        return None if _raises(steps, target) else _Block(raises=not jumps_if)
    if _raises(steps, target):
        return _Block(raises=jumps_if)
    return _warning(steps[on:target], not jumps_if)


def _raises(steps: list[dis.Instruction], k: int) -> bool:
    """Do the instructions from here on end in an exception, without a jump?"""
    for n, s in enumerate(steps[k:]):
        if s.opname in _ENDS:
            return s.arg in (1, 2)
        if "JUMP" in s.opname or s.opname in ("RETURN_VALUE", "RETURN_CONST", "FOR_ITER", "SEND", "YIELD_VALUE"):
            return False
        if n and s.is_jump_target and "FINALLY" in s.opname:
            return False
    return False


def _warning(steps: list[dis.Instruction], holds: bool) -> _Block | None:
    """A block that calls `warnings.warn` with constants, and may then set elements for which the condition holds, as
    NumPy does: ``var = _copyto(var, np.nan, isbad)``."""
    names: list[str] = []
    k = 0
    while k < len(steps) and (
        steps[k].opname == "LOAD_GLOBAL" if k == 0 else steps[k].opname in ("LOAD_ATTR", "LOAD_METHOD")
    ):
        names.append(str(steps[k].argval))
        k += 1
    given = k
    while k < len(steps) and steps[k].opname in _LOADS:
        k += 1
    if not names or names[-1] != "warn" or k == given or [s.opname for s in steps[k : k + 2]] not in _CALLS:
        return None
    category = next((str(s.argval) for s in steps[given:k] if s.opname == "LOAD_GLOBAL"), "")
    rest = steps[k + 2 :]
    if rest and not (holds and _sets_where(rest)):
        return None
    return _Block(category=category, warns=tuple(names), holds=holds, sets=bool(rest))


_CALLS = (["CALL", "POP_TOP"], ["CALL_KW", "POP_TOP"])
_SETS = [("LOAD_GLOBAL",), _LOCALS, ("LOAD_GLOBAL",), ("LOAD_ATTR",), _LOCALS, ("CALL",), ("STORE_FAST",)]


def _sets_where(steps: list[dis.Instruction]) -> bool:
    """Is this ``x = _copyto(x, np.nan, condition)``, which changes nothing where the condition holds nowhere?"""
    is_it = len(steps) == len(_SETS) and all(s.opname in names for s, names in zip(steps, _SETS, strict=True))
    return is_it and steps[0].argval == "_copyto" and steps[1].argval == steps[-1].argval
