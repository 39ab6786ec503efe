"""Threads of hjit's own: their stacks are large enough for LLVM, whatever size the program has set for its threads.

One that is in LLVM for ever goes on until the process is gone, and must not outlive what LLVM's destructors destroy.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

STACK_BYTES = 16 << 20  # of address space; a kernel of 225 taps took LLVM more than 128 KiB
SMALL_STACK_BYTES = 1 << 20

_starting = threading.RLock()  # the size of stacks belongs to the process


def are_greenlets() -> bool:
    """Are threads greenlets, as with gevent and eventlet? These share a thread of the system and its stack: the stack
    of one that waits is swapped out."""
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


def start(name: str, f: Callable[..., object], *args: Any, stack_bytes: int = STACK_BYTES) -> threading.Thread:
    """Start a daemon thread.

    Raises:
        RuntimeError: the interpreter is shutting down, or there is no memory for a thread.
    """
    thread = threading.Thread(target=f, args=args, name=name, daemon=True)
    with _starting:
        usual = threading.stack_size()
        try:
            threading.stack_size(max(usual, stack_bytes))
            _start(thread)
        finally:
            threading.stack_size(usual)
    return thread


def _start(thread: threading.Thread) -> None:
    """Start a thread.

    Where a signal handler's exception ends the wait for it, Python may raise that a lock is not locked instead.
    """
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is handled:
            raise
        interrupt = error.__context__
    else:
        return
    assert interrupt is not None
    raise interrupt


def has_small_stack() -> bool:
    """Is the stack of this thread, which may be one of the program's, too small for what Python allows to recurse?

    By the limit of 1000 frames: some of them are of C, such as those of ``max`` over a generator.
    """
    if not sys.platform.startswith("linux") or are_greenlets():
        return False
    if threading.current_thread() is threading.main_thread():  # it grows, and to ask takes long
        return False
    library, about = ctypes.CDLL(None), ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    try:
        if library.pthread_getattr_np(ctypes.c_void_p(threading.get_ident()), about):
            return False
        library.pthread_attr_getstack(about, ctypes.byref(start), ctypes.byref(size))
        library.pthread_attr_destroy(about)
    except AttributeError:  # another C library
        return False
    return 0 < size.value < SMALL_STACK_BYTES


def keep_libraries_at_exit() -> None:
    """End the process, with the status that it has by then, before the destructors of its libraries run.

    For a thread that goes on in one of them: it would find its tables destroyed, and abort the process. What Python
    does at its own end is done by then; C's streams are flushed. Nothing changes where the C library is not GNU's.
    """
    library = ctypes.CDLL(None)
    if sys.platform.startswith("linux") and hasattr(library, "on_exit"):
        library.on_exit(library._exit, None)  # called as _exit(status, None)
        library.__cxa_atexit(library.fflush, None, None)  # the one that was registered last is called first


_ATTRIBUTES_BYTES = 256  # of a pthread_attr_t at the most; it has 56 with glibc on x86-64


def after_fork() -> None:
    """Renew the lock, which another thread of the parent may have held."""
    global _starting
    _starting = threading.RLock()
