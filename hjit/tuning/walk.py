"""The compiled walk of `hjit.sched.native`: once a machine compiled, in a second, and kept in the disk cache."""

from __future__ import annotations

import functools
import logging
import os

from hjit import cache
from hjit.errors import CompileError
from hjit.kernels.functions.translate import module
from hjit.kernels.runtime import backend, machine_code
from hjit.options import Options
from hjit.process.signals import signal_safe
from hjit.sched.native.measures import featurise
from hjit.sched.native.records import Nest, Tables, Work
from hjit.sched.native.regions import FUNCTIONS
from hjit.sched.native.words import Walk

log = logging.getLogger("hjit")


def compiled_walk(options: Options) -> Walk | None:
    """The walk as machine code: of this process, from the disk cache, or compiled, which takes some 0.8 s.

    None where it cannot be compiled, or ``HJIT_WALK=python`` says not to: features are then recorded in Python.
    """
    if os.environ.get("HJIT_WALK") == "python":
        return None
    return _walk(str(options.cache_dir), options.cache)


@functools.lru_cache(maxsize=1)
def _walk(cache_dir: str, mode: str) -> Walk | None:
    name = f"hjit_walk_{cache.digest(cache.versions(), backend.machine_text('cpu'))[:32]}"
    code = cache.load(name, cache_dir, mode)
    try:
        if code is not None:
            try:
                return signal_safe(_loaded, code, name)
            except CompileError as error:
                log.debug("the compiled walk is compiled anew: %s", error)
        code = signal_safe(backend.compile_functions, module(FUNCTIONS, (Tables, Nest, Work), name), name)
        cache.store(name, code, {"versions": cache.versions()}, cache_dir, mode)
        return signal_safe(_loaded, code, name)
    except CompileError as error:
        log.debug("features are recorded in Python: %s", error)
        return None


def _loaded(code: bytes, name: str) -> Walk:
    """The function in some object code; it keeps what it needs.

    Raises:
        CompileError: there is none.
    """
    try:
        return machine_code.linked(code, name).entry
    except machine_code.NotLinked as why:
        log.debug("LLVM loads %s: %s", name, why)
    return backend.load_object(code, name, "cpu").entry


assert FUNCTIONS[-1] is featurise  # what a `Walk` calls
