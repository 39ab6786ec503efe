"""Source lines with their costs."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Mapping, Sequence
from typing import Any

from hjit.errors import Origin
from hjit.report.performance.facts import BreakFacts, SourceLine
from hjit.trace.capture.trace import python_function

FEW_LINES = 1  # of source around those of a helper that take time


def source_of(
    function: Any, lines: Mapping[Origin, float], breaks: Sequence[BreakFacts]
) -> dict[str, tuple[SourceLine, ...]]:
    """The function's own lines, and of those that it calls the lines that take time; by function."""
    if not lines and not breaks:
        return {}
    code = python_function(function).__code__
    notes: dict[int, str] = {}
    for b in breaks:
        if b.line is not None:
            notes[b.line] = f"{notes[b.line]}; {b.what}" if b.line in notes else b.what
    own = _own_lines(function)
    costs: dict[tuple[str, str], dict[int, float]] = {(code.co_filename, code.co_name): {}}
    for origin, seconds in lines.items():
        is_own = origin.filename == code.co_filename and origin.line in own  # comprehensions are
        name = code.co_name if is_own else origin.function
        of = costs.setdefault((origin.filename, name), {})
        of[origin.line] = of.get(origin.line, 0.0) + seconds
    found: dict[str, tuple[SourceLine, ...]] = {}
    for (file, name), of in costs.items():
        text = linecache.getlines(file)
        is_own = (file, name) == (code.co_filename, code.co_name)
        shown = own if is_own else range(min(of) - FEW_LINES, max(of) + FEW_LINES + 1)
        rows = [
            SourceLine(n, text[n - 1].rstrip("\n"), of.get(n, 0.0), notes.get(n, "") if is_own else "")
            for n in shown
            if 0 < n <= len(text)
        ]
        if rows:
            found[name] = (*found.get(name, ()), *rows)
    return found


def _own_lines(function: Any) -> range:
    try:
        lines, first = inspect.getsourcelines(python_function(function))
    except (OSError, TypeError):
        return range(0)
    return range(first, first + len(lines))
