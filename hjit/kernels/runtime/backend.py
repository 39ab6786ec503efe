"""The numba back end: LLVM IR to machine code, object code to and from bytes.

This module and `codegen`, which it imports only to compile, are the only ones that use undocumented names of numba;
`tests/kernels/test_backend.py` lists these names.

numba's code libraries run a subset of their optimisation passes, because lowering already vectorises, unrolls, hoists
and shares. Each kernel is linked by an MCJIT engine of its own, which owns the memory of its code: an engine frees none
of it until it is closed, however many of its modules are removed.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import sysconfig
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from hjit.errors import CompileError, MemoryShortage
from hjit.kernels.runtime import features
from hjit.kernels.runtime.linking import memory
from hjit.kernels.runtime.machine_code import PROTOTYPE, Compiled, give_up, is_busy
from hjit.process import deadline, forks, threads
from hjit.process.deadline import OverBudget
from hjit.process.signals import Unfinished, bounded

# Expected seconds of LLVM for a line of LLVM IR, rather too many: 25 to 42 us were measured for 30 modules of 2,000 to
# 22,000 lines.
SECONDS_A_LINE = 6e-5

# Memory that must be left for LLVM, which ends the process where it gets none: a module of 5,800 lines took 25 MB, the
# first one 32 MB, and the C library reserves 64 MB of addresses for a new thread.
ROOM_BYTES, ROOM_BYTES_A_LINE = 128 << 20, 8 << 10

_lock = threading.Lock()
_retired: deque[Any] = deque()  # engines whose code can no longer be called


def machine_text(target: str) -> str:
    """A text of every property of the machine that object code depends on."""
    before, name, after = _machine_texts()
    return "|".join([before, name if target == "cpu" else target, after])


@lru_cache(maxsize=1)
def _machine_texts() -> tuple[str, str, str]:
    """The name of the processor, and what stands before and after it.

    Asked of LLVM once, before anything is compiled: a compilation that was given up keeps LLVM's lock.
    """
    build = str(sysconfig.get_config_var("SOABI"))  # where an array object keeps its data pointer
    flags = llvm.get_host_cpu_features().flatten()
    about = [flags, " ".join(sorted(features.host_features())), str(llvm.llvm_version_info)]
    return f"{build}|{llvm.get_process_triple()}", llvm.get_host_cpu_name(), "|".join(about)


def expected_seconds(text: str) -> float:
    """How long LLVM will take for a module at most."""
    return text.count("\n") * SECONDS_A_LINE


@contextlib.contextmanager
def alone(text: str = "") -> Iterator[None]:
    """Exclude other threads of hjit and numba from compiling; then free code that has been retired meanwhile.

    Args:
        text: what LLVM is to compile.

    Raises:
        CompileError: LLVM is busy for ever.
        MemoryShortage: it would end the process, for want of memory.
    """
    if is_busy():
        raise CompileError("LLVM does not end another compilation, and does nothing else in this process")
    if not memory.has_room(ROOM_BYTES + text.count("\n") * ROOM_BYTES_A_LINE):
        raise MemoryShortage("the process may take no more memory (`ulimit -v`, or `-d`), and LLVM needs some")
    with _lock, forks.compiler_lock() or contextlib.nullcontext():
        try:
            yield
        finally:
            _free_retired()


def compile_module(text: str, name: str, target: str, quick: bool = False) -> bytes:
    """The object code of a module of LLVM IR, for `load_object`.

    Args:
        quick: it runs seldom: LLVM generates code without optimising it, in a quarter of the time.

    Raises:
        CompileError: LLVM refuses the module.
    """
    from hjit.kernels.runtime.codegen import codegen_for

    with alone(text):
        generator = codegen_for(target, quick)
        generator._check_llvm_bugs()
        library = generator.create_library(name)
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"LLVM refuses the generated code of {name}: {error}. Please report this.") from None
        library.add_llvm_module(module)
        library._optimize_final_module()
        library._final_module.verify()
        return bytes(generator._tm.emit_object(library._final_module))


def compile_within(seconds: float | None, text: str, name: str, target: str, quick: bool = False) -> bytes:
    """`compile_module`, abandoned if it takes more CPU time.

    LLVM's passes have no limits of their own, and some rewrite for ever what they are given. The thread goes on, to the
    end of the process if need be, and with it LLVM's lock is taken.

    Raises:
        CompileError: LLVM refuses the module.
        OverBudget: it takes longer.
    """
    try:
        return bounded(seconds, deadline.counted(compile_module), text, name, target, quick)
    except Unfinished as unfinished:
        give_up(unfinished.call)
        forks.unfinished = is_busy
        raise unfinished.raised or OverBudget("compiling with LLVM") from None


@lru_cache(maxsize=1)
def _initialise() -> None:
    """Initialise LLVM for this processor, and make the libraries that kernels call known to it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features.load_libraries()


def load_object(object_code: bytes, name: str) -> Compiled:
    """The kernel that `compile_module` made, in this or another process.

    Raises:
        CompileError: the bytes hold no such kernel.
    """
    with alone():
        _initialise()
        # Any target machine will do: it emits nothing, and the engine takes ownership of it
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        file = llvm.ObjectFileRef.from_data(object_code)
        if not file:
            raise CompileError(f"no object code: {name}")
        engine.add_object_file(file)
        # This links the code; `finalize_object` would also compile the empty module, in twice the time
        address = engine.get_function_address(name)
        if not address:
            raise CompileError(f"no entry {name} in the compiled code")
        entry = PROTOTYPE(address)
        weakref.finalize(entry, _retire, engine).atexit = False  # a daemon thread may run it to the very end
        return Compiled(entry, engine)


def _retire(engine: Any) -> None:
    """Free code that can no longer be called: now, or once a compilation or a fork has released the locks.

    This runs wherever Python drops the last reference, in the middle of anything, and so never blocks.
    """
    _retired.append(engine)
    numbas = forks.compiler_lock()
    if sys.is_finalizing() or (numbas is not None and numbas.is_locked()) or not _lock.acquire(blocking=False):
        return
    try:
        if numbas is None:
            _free_retired()
        elif numbas._lock.acquire(blocking=False):
            try:
                _free_retired()
            finally:
                numbas._lock.release()
    finally:
        _lock.release()


def _free_retired() -> None:
    while _retired:
        _retired.popleft().close()


def assembly(text: str, name: str, target: str) -> str:
    """The assembly of a module of LLVM IR."""
    from hjit.kernels.runtime.codegen import codegen_for

    with alone(text):
        generator = codegen_for(target)
        library = generator.create_library(f"{name}.asm")
        library.add_llvm_module(llvm.parse_assembly(text))
        library._optimize_final_module()
        return str(generator._tm.emit_assembly(library._final_module))


@atexit.register
def _keep_llvm() -> None:
    """Keep LLVM alive at exit if a daemon thread is still compiling."""
    numbas = forks.compiler_lock()
    if _lock.locked() or (numbas is not None and numbas.is_locked()):
        threads.keep_libraries_at_exit()


def after_fork() -> None:
    """Renew the lock, which another thread of the parent may have held."""
    global _lock
    _lock = threading.Lock()
