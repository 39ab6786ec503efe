"""How conditions on the values of images came out, on disk: a later process takes them for the same while it traces.

So it computes nothing before it runs. The kernels compute the conditions all the same: where one comes out otherwise,
the function is traced again, and each is computed. Outcomes are known by the function's code and the key of arguments.
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
    """The outcomes of an earlier process's decisions, in order; None: of one on a number."""
    name = _name(function, key, options)
    text = None if name is None else cache.load(name, options.cache_dir, options.cache, KIND)
    try:
        found = () if text is None else tuple(None if x is None else ExpectedOutcome(*x) for x in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        log.debug("outcomes are not usable: %s", error)
        return ()
    return found if all(x is None or type(x.value) is bool for x in found) else ()


def store(function: Any, key: Sequence[Any], options: Options, rec: Recorder) -> None:
    """Keep the outcomes of the decisions of a trace."""
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
