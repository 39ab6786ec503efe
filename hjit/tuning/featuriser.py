"""The featuriser of `hjit.sched.native` as machine code: compiled once per machine, in half a second, and cached.

Most searches finish sooner than that with features recorded in Python. So it is compiled only when one search, or all
searches of this process together, have taken that long.
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
from hjit.sched.native.argument_block import Featuriser
from hjit.sched.native.measures import featurise
from hjit.sched.native.records import NestTables, Tables, Work
from hjit.sched.native.regions import FUNCTIONS
from hjit.tuning.limits import FEATURISER_SECONDS

log = logging.getLogger("hjit")


_known: Featuriser | None = None
_recorded = 0.0  # seconds that this process has searched without it


def stored_featuriser(options: Options) -> Featuriser | None:
    """The machine code, from this process or the disk cache; None if it would have to be compiled."""
    global _known
    if _known is None:
        code = cache.load(_name(), str(options.cache_dir), options.cache)
        _known = None if code is None else _loaded(code, _name())
    return _known


def compiled_featuriser(options: Options) -> Featuriser | None:
    """The machine code, compiled if need be, which takes about 0.5 s; None if it cannot be compiled.

    LLVM's O1 would make it a third faster, but takes five times as long to compile it.
    """
    global _known
    if stored_featuriser(options) is None:
        _known = _made(str(options.cache_dir), options.cache)
    return _known


def note_recorded(seconds: float) -> None:
    """Add the seconds of a search without the compiled featuriser."""
    global _recorded
    _recorded += seconds


def is_due() -> bool:
    """Have searches without it taken as long as compiling it would?"""
    return _recorded > FEATURISER_SECONDS


def _name() -> str:
    return f"hjit_walk_{cache.digest(cache.versions(), backend.machine_text('cpu'))[:32]}"


def _made(cache_dir: str, mode: str) -> Featuriser | None:
    name = _name()
    try:
        code = signal_safe(backend.compile_module, llvm_ir(name), name, "cpu")
    except (CompileError, NotImplementedError, OSError) as error:  # OSError: there is no source
        log.debug("features are recorded in Python: %s", error)
        return None
    cache.store(name, code, {"versions": cache.versions()}, cache_dir, mode)
    return _loaded(code, name)


def llvm_ir(name: str) -> str:
    """The featuriser as LLVM IR; `name`: of its entry."""
    assert FUNCTIONS[-1] is featurise
    return module(FUNCTIONS, (Tables, NestTables, Work), name)


def _loaded(code: bytes, name: str) -> Featuriser | None:
    """The entry point of object code; None if it cannot be linked."""
    try:
        return linker.linked(code, name).entry
    except NotLinked as why:
        log.debug("LLVM loads %s: %s", name, why)
    try:
        return signal_safe(backend.load_object, code, name).entry
    except CompileError as error:
        log.debug("the compiled featuriser cannot be loaded: %s", error)
        return None
