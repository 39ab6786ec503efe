"""Where a function may handle an exception, read from its bytecode."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType


@lru_cache(maxsize=1024)
def _handled(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Where an exception may be handled: the ranges under ``try``. A ``with`` block, and what ends a handler, passes it on."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    place = {s.offset: k for k, s in enumerate(steps)}
    found = []
    for e in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        at = place.get(e.target)
        names = [] if at is None else [s.opname for s in steps[at : at + 2]]
        if names[:1] == ["PUSH_EXC_INFO"] and names[1:] != ["WITH_EXCEPT_START"]:
            found.append((e.start, e.end))
    return tuple(found)


def is_handled(code: CodeType, offset: int) -> bool:
    """May the function handle an exception that the instruction at `offset` raises?"""
    return any(start <= offset < end for start, end in _handled(code))
