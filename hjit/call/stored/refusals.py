"""Refusals on disk: why functions could not be traced. A later process splits them at once, without tracing.

The key is made of the function's code and the key of the arguments. A refusal is valid while the source files of the
functions that were being traced are unchanged, and for a day, as it may depend on what else the process had imported. A
stale one does no harm: a split function has the same results.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import hjit.cache as cache
from hjit.call.stored.names import entry_name
from hjit.errors import LongLoop, TraceError
from hjit.options import Options
from hjit.trace.splitting.locations import SourceRange, is_deeper, location_of

log = logging.getLogger("hjit")

KIND = "refusal"
MAX_SECONDS = 86400.0  # that one is believed


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a function cannot be traced.

    Attributes:
        why: in short.
        message: in full.
        place: where in the function: a source range, or a name that is read there, or None if it is not known.
        is_loop: is the loop around the place too long to trace, and not the place itself untraceable?
        is_deeper: is the cause in a function that is called at the place?
    """

    why: str
    message: str
    place: SourceRange | str | None
    is_loop: bool
    is_deeper: bool

    @property
    def line(self) -> int | None:
        """Of the place, where it is known."""
        return self.place.line if isinstance(self.place, SourceRange) else None

    @property
    def advice(self) -> str:
        """What to do."""
        return self.message.partition("What to do: ")[2].removesuffix(".")

    @classmethod
    def of(cls, error: Exception, function: FunctionType) -> Refusal:
        """What an exception that tracing raised says."""
        code, operation, why = function.__code__, None, f"{type(error).__name__}: {error}"
        if isinstance(error, TraceError):
            operation, why = error.operation, f"{error.operation}: {error.reason}"
        place = location_of(error, code) or operation
        return cls(why, str(error), place, isinstance(error, LongLoop), is_deeper(error, code))


def load(function: Any, key: Sequence[Any], options: Options) -> Refusal | None:
    """The valid refusal of calls with such a key, or None."""
    name = entry_name(KIND, function, key, options)
    text = None if name is None else cache.load(name, options.cache_dir, options.cache, KIND)
    if text is None:
        return None
    try:
        data = json.loads(text)
        is_old = not 0 <= time.time() - data["made"] < MAX_SECONDS
        if is_old or any(_contents(file) != known for file, known in data["files"].items()):
            return None
        found = data["refusal"]
        place = SourceRange(**found.pop("place")) if type(found["place"]) is dict else found.pop("place")
        return Refusal(place=place, **found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.debug("a refusal is not usable: %s", error)
        return None


def store(function: Any, key: Sequence[Any], options: Options, error: TraceError) -> None:
    """Store the error that tracing raised; not if some of the code has no source file."""
    name = entry_name(KIND, function, key, options) if options.cache == "rw" else None
    if name is None:
        return
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__) if type(f.f_globals) is not dict]
    files = {f: _contents(f) for f in {function.__code__.co_filename, *(f.f_code.co_filename for f in frames)}}
    if None in files.values():
        return
    found = asdict(Refusal.of(error, function))
    text = json.dumps({"made": time.time(), "files": files, "refusal": found}).encode()
    cache.store(name, text, {"versions": cache.versions()}, options.cache_dir, options.cache, KIND)


def _contents(file: str) -> str | None:
    """A hash of a source file; None where there is none."""
    try:
        s = os.stat(file)
        return _hash(file, s.st_size, s.st_mtime_ns, s.st_ino)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def _hash(file: str, *state: int) -> str:
    """As `_contents`, while the file is in some state.

    Raises:
        OSError, ValueError: there is none.
    """
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
