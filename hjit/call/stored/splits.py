"""Split functions on disk: a later process loads the code of the parts, and does not parse source.

The key is made of the function's code and the place that could not be traced. The split also depends on whether called
functions inspect the frames of their callers; that is checked again.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import logging
import marshal
from collections.abc import Callable
from dataclasses import astuple
from types import CodeType, FunctionType
from typing import Any

import hjit.cache as cache
from hjit.call.stored.names import code_digest, place_of_code
from hjit.call.stored.refusals import Refusal
from hjit.options import Options
from hjit.trace.splitting.source import is_of_source
from hjit.trace.splitting.split import Split, split

log = logging.getLogger("hjit")

KIND = "split"
_MARSHAL = importlib.util.MAGIC_NUMBER.hex()  # of Python's code, which the disk holds as `.pyc` files do


def load_or_make(function: FunctionType, refusal: Refusal, may_have_callees: bool, options: Options) -> Split | None:
    """A split function, from disk or new; None if it cannot be split.

    Raises:
        NoSource, SyntaxError, RecursionError: as `split` does.
    """
    name = _name(function, refusal, may_have_callees)
    again = functools.partial(split, function, refusal.place, may_have_callees, refusal.is_loop, refusal.is_deeper)
    text = cache.load(name, options.cache_dir, options.cache, KIND)
    if text == _NONE:
        return None
    found = None if text is None else _read(text, again)
    if found is not None and found.holds(function):
        return found
    found = again()
    if options.cache == "rw" and is_of_source(function):
        data = _NONE if found is None else marshal.dumps(_contents(found))
        cache.store(name, data, {"versions": cache.versions()}, options.cache_dir, options.cache, KIND)
    return found


_NONE = b"no parts"


def _contents(found: Split) -> tuple[Any, ...]:
    return found.code, dict(found.parts), found.kept, found.has_callees, dict(found.asked)


def _read(text: bytes, again: Callable[[], Split | None]) -> Split | None:
    """What was stored; None where that is no split."""
    try:
        code, parts, kept, has_callees, asked = marshal.loads(text)
        if all(type(c) is CodeType for c in (code, *(c for c, _, _ in parts.values()))):
            return Split(code, parts, kept, has_callees, asked, functools.partial(_tree, again))
    except (ValueError, TypeError, EOFError, AttributeError) as error:
        log.debug("a split is not usable: %s", error)
    return None


def _tree(again: Callable[[], Split | None], name: str) -> ast.FunctionDef:
    """Of a part, which is to be split itself."""
    found = again()
    assert found is not None, "it had parts before"
    return found.tree(name)


def _name(function: FunctionType, refusal: Refusal, may_have_callees: bool) -> str:
    parts = (
        *place_of_code(function),
        code_digest(function.__code__),
        repr(astuple(refusal)[2:]),  # not what is said of it
        str(may_have_callees),
        _MARSHAL,
        cache.versions(),
    )
    return "split_" + cache.digest(*parts)[:40]
