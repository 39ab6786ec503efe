"""The walk of `hjit.sched.native`, compiled once per machine (which takes a second) and kept in the disk cache."""

from __future__ import annotations

import logging

from hjit import cache
from hjit.errors import CompileError
from hjit.kernels.functions.translate import module
from hjit.kernels.runtime import backend
from hjit.kernels.runtime.linking import linker
from hjit.kernels.runtime.linking.memory import NotLinked
from hjit.options import Options
from hjit.process.signals import signal_safe
from hjit.sched.native.measures import featurise
from hjit.sched.native.records import Nest, Tables, Work
from hjit.sched.native.regions import FUNCTIONS
from hjit.sched.native.words import Walk

log = logging.getLogger("hjit")


_known: Walk | None = None


def compiled_walk(options: Options) -> Walk | None:
    """The walk as machine code: of this process, from the disk cache, or compiled, which takes some 0.8 s.

    None where it cannot be compiled: features are then recorded in Python.
    """
    global _known
    if _known is None:
        _known = _made(str(options.cache_dir), options.cache)
    return _known


def _made(cache_dir: str, mode: str) -> Walk | None:
    name = f"hjit_walk_{cache.digest(cache.versions(), backend.machine_text('cpu'))[:32]}"
    code = cache.load(name, cache_dir, mode)
    try:
        found = None if code is None else _loaded(code, name)
        if found is None:
            code = signal_safe(backend.compile_functions, llvm_ir(name), name)
            cache.store(name, code, {"versions": cache.versions()}, cache_dir, mode)
            found = _loaded(code, name)
    except (CompileError, NotImplementedError, OSError) as error:  # OSError: there is no source
        log.debug("features are recorded in Python: %s", error)
        return None
    return found


def llvm_ir(name: str) -> str:
    """The walk as LLVM IR; `name`: of its entry."""
    assert FUNCTIONS[-1] is featurise
    return module(FUNCTIONS, (Tables, Nest, Work), name)


def _loaded(code: bytes, name: str) -> Walk | None:
    """The function in some object code; it keeps what it needs. None: there is none."""
    try:
        return linker.linked(code, name).entry
    except NotLinked as why:
        log.debug("LLVM loads %s: %s", name, why)
    try:
        return signal_safe(backend.load_object, code, name, "cpu").entry
    except CompileError as error:
        log.debug("the compiled walk: %s", error)
        return None
