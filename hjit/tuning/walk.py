"""The compiled walk of `hjit.sched.native`: compiled once a machine, in half a second, and kept in the disk cache.

Most searches take less than that where features are recorded in Python, so it is compiled where one takes long, or many
have taken as long together.
"""

from __future__ import annotations

import logging

import hjit.cache as cache
from hjit.errors import CompileError
from hjit.kernels.functions.translate import module
from hjit.kernels.runtime import backend
from hjit.kernels.runtime.linking import linker
from hjit.kernels.runtime.linking.memory import NotLinked
from hjit.options import Options
from hjit.process.signals import signal_safe
from hjit.sched.native.measures import featurise
from hjit.sched.native.records import NestTables, Tables, Work
from hjit.sched.native.regions import FUNCTIONS
from hjit.sched.native.words import Walk
from hjit.tuning.limits import WALK_SECONDS

log = logging.getLogger("hjit")


_known: Walk | None = None
_recorded = 0.0  # seconds of this process's searches without it


def known_walk(options: Options) -> Walk | None:
    """The walk as machine code, of this process or from the disk cache; None where that would have to be compiled."""
    global _known
    if _known is None:
        code = cache.load(_name(), str(options.cache_dir), options.cache)
        _known = None if code is None else _loaded(code, _name())
    return _known


def compiled_walk(options: Options) -> Walk | None:
    """The walk as machine code, compiled perhaps, which takes some 0.5 s.

    LLVM's O1 makes it a third faster, and takes five times as long for that.


    None where it cannot be compiled: features are then recorded in Python.
    """
    global _known
    if known_walk(options) is None:
        _known = _made(str(options.cache_dir), options.cache)
    return _known


def note_recorded(seconds: float) -> None:
    """A search has taken so long without the walk."""
    global _recorded
    _recorded += seconds


def is_due() -> bool:
    """Have searches without the walk taken as long as it takes to compile it?"""
    return _recorded > WALK_SECONDS


def _name() -> str:
    return f"hjit_walk_{cache.digest(cache.versions(), backend.machine_text('cpu'))[:32]}"


def _made(cache_dir: str, mode: str) -> Walk | None:
    name = _name()
    try:
        code = signal_safe(backend.compile_module, llvm_ir(name), name, "cpu")
    except (CompileError, NotImplementedError, OSError) as error:  # OSError: there is no source
        log.debug("features are recorded in Python: %s", error)
        return None
    cache.store(name, code, {"versions": cache.versions()}, cache_dir, mode)
    return _loaded(code, name)


def llvm_ir(name: str) -> str:
    """The walk as LLVM IR; `name`: of its entry."""
    assert FUNCTIONS[-1] is featurise
    return module(FUNCTIONS, (Tables, NestTables, Work), name)


def _loaded(code: bytes, name: str) -> Walk | None:
    """The function in some object code; it keeps what it needs. None: there is none."""
    try:
        return linker.linked(code, name).entry
    except NotLinked as why:
        log.debug("LLVM loads %s: %s", name, why)
    try:
        return signal_safe(backend.load_object, code, name).entry
    except CompileError as error:
        log.debug("the compiled walk: %s", error)
        return None
