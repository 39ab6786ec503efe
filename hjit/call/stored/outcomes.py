"""Outcomes of conditions on the values of arrays, on disk: a later process assumes them while it traces.

So tracing need not evaluate the conditions. The kernels still compute them; if one comes out differently, the function
is traced again, and all conditions are evaluated. The key is made of the function's code and the key of the arguments.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any

import hjit.cache as cache
from hjit.call.stored.names import code_digest, entry_name
from hjit.options import Options
from hjit.trace.tracing.recording.decisions import outcomes
from hjit.trace.tracing.recording.events import ExpectedOutcome
from hjit.trace.tracing.recording.recorder import Recorder

log = logging.getLogger("hjit")

KIND = "outcomes"


def load(function: Any, key: Sequence[Any], options: Options) -> tuple[ExpectedOutcome | None, ...]:
    """The outcomes of the decisions of an earlier process, in order; None for a decision on a number."""
    name = _name(function, key, options)
    text = None if name is None else cache.load(name, options.cache_dir, options.cache, KIND)
    try:
        found = () if text is None else tuple(None if x is None else ExpectedOutcome(*x) for x in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        log.debug("outcomes are not usable: %s", error)
        return ()
    return found if all(x is None or type(x.value) is bool for x in found) else ()


def store(function: Any, key: Sequence[Any], options: Options, rec: Recorder) -> None:
    """Store the outcomes of the decisions of a trace."""
    found = outcomes(rec)
    name = _name(function, key, options) if options.cache == "rw" and any(found) else None
    if name is not None:
        text = json.dumps([None if x is None else (x.file, x.line, x.condition, x.value) for x in found]).encode()
        cache.store(name, text, {"versions": cache.versions()}, options.cache_dir, options.cache, KIND)


def _name(function: Any, key: Sequence[Any], options: Options) -> str | None:
    """Of the entry: of a function in whose closure there are other functions it is another one."""
    name = entry_name(KIND, function, key, options)
    if name is None:
        return None
    contents = [c for c in map(_content, function.__closure__ or ()) if type(c) is FunctionType]
    return f"{KIND}_" + cache.digest(name, *(code_digest(f.__code__) for f in contents))[:40]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None
