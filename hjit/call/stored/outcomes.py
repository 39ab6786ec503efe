"""Outcomes of conditions on the values of arrays, on disk: a later process assumes them while it traces.

So tracing need not evaluate the conditions. The kernels still compute them; if one comes out differently, the function
is traced again, and all conditions are evaluated. The key is made of the function's code and the key of the arguments.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import hjit.cache as cache
from hjit.call.stored.names import code_digest, entry_name
from hjit.options import Options
from hjit.trace.tracing.recording.decisions import outcomes
from hjit.trace.tracing.recording.events import ExpectedOutcome
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.recording.state.known_values import Speculated

log = logging.getLogger("hjit")

KIND = "outcomes"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of conditions in an earlier process.

    Attributes:
        expected: of the decisions, in order; None for a decision on a number.
        speculated: those in loops that were speculated on, in order, with their lines.
    """

    expected: tuple[ExpectedOutcome | None, ...] = ()
    speculated: tuple[Speculated, ...] = ()

    def __bool__(self) -> bool:
        return any(self.expected) or bool(self.speculated)


def load(function: Any, key: Sequence[Any], options: Options) -> Outcomes:
    """The outcomes of an earlier process."""
    name = _name(function, key, options)
    text = None if name is None else cache.load(name, options.cache_dir, options.cache, KIND)
    try:
        decided, speculated = ([], []) if text is None else json.loads(text)
        found = tuple(None if x is None else ExpectedOutcome(*x) for x in decided)
        places = tuple(((str(file), int(line)), bool(value)) for file, line, value in speculated)
    except (ValueError, TypeError, RecursionError) as error:
        log.debug("outcomes are not usable: %s", error)
        return Outcomes()
    return Outcomes(found if all(x is None or type(x.value) is bool for x in found) else (), places)


def store(function: Any, key: Sequence[Any], options: Options, rec: Recorder) -> None:
    """Store the outcomes of the decisions of a trace."""
    found = Outcomes(tuple(outcomes(rec)), tuple(rec.known.speculated))
    name = _name(function, key, options) if options.cache == "rw" and found else None
    if name is not None:
        decided = [None if x is None else (x.file, x.line, x.condition, x.value) for x in found.expected]
        text = json.dumps([decided, [(*place, value) for place, value in found.speculated]]).encode()
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
