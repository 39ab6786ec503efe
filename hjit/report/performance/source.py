"""Lines of source with what they cost."""

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
    """The function's own lines, and of those that it calls the lines that take time."""
    own = python_function(function).__code__ if lines or breaks else None
    notes: dict[int, str] = {}
    for b in breaks:
        if b.line is not None:
            notes[b.line] = f"{notes[b.line]}; {b.what}" if b.line in notes else b.what
    found: dict[str, tuple[SourceLine, ...]] = {}
    by_function: dict[tuple[str, str], dict[int, float]] = {}
    for origin, seconds in lines.items():
        by_function.setdefault((origin.filename, origin.function), {})[origin.line] = seconds
    if own is not None:
        by_function.setdefault((own.co_filename, own.co_name), {})
    for (file, name), of in by_function.items():
        text = linecache.getlines(file)
        is_own = own is not None and (file, name) == (own.co_filename, own.co_name)
        shown = _own_lines(function) if is_own else ()
        if not shown and of:
            shown = range(min(of) - FEW_LINES, max(of) + FEW_LINES + 1)
        rows = (
            SourceLine(n, text[n - 1].rstrip("\n"), of.get(n, 0.0), notes.get(n, "") if is_own else "")
            for n in shown
            if 0 < n <= len(text)
        )
        found[name] = (*found.get(name, ()), *rows)
    return {name: rows for name, rows in found.items() if rows}


def _own_lines(function: Any) -> range:
    try:
        lines, first = inspect.getsourcelines(python_function(function))
    except (OSError, TypeError):
        return range(0)
    return range(first, first + len(lines))
