"""Memory for machine code: first it can be written, then executed."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from typing import Any


class NotLinked(Exception):
    """Only LLVM can load this object code."""


@functools.lru_cache(maxsize=1)
def _memory() -> tuple[Any, Any, Any]:
    """The C library's mmap, mprotect and munmap.

    What Python's own `mmap` makes goes when Python ends, while daemon threads may still run what is in it.
    """
    library = ctypes.CDLL(None)
    size, number, address = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    library.mmap.argtypes, library.mmap.restype = [address, size, number, number, number, ctypes.c_ssize_t], address
    library.mprotect.argtypes, library.mprotect.restype = [address, size, number], number
    library.munmap.argtypes, library.munmap.restype = [address, size], number
    return library.mmap, library.mprotect, library.munmap


def pages(size: int) -> int:
    """Allocate pages.

    Raises:
        NotLinked: there are none.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found: int | None = _memory()[0](None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if found is None or found == _FAILED:
        raise NotLinked("no memory")
    return found


_FAILED = ctypes.c_void_p(-1).value


def has_room(size: int) -> bool:
    """Does the system have this much more memory for the process? True if that is unknown."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        free(pages(size), size)
    except NotLinked:
        return False
    return True


def fill(address: int, image: bytearray) -> None:
    """Write pages and make them executable and read-only.

    Raises:
        NotLinked: the system does not let them be executed.
    """
    ctypes.memmove(address, bytes(image), len(image))
    if _memory()[1](address, len(image), mmap.PROT_READ | mmap.PROT_EXEC):
        raise NotLinked("the system does not let memory be executed")


def free(address: int, size: int) -> None:
    """Free pages whose code can no longer be called."""
    if not sys.is_finalizing():
        _memory()[2](address, size)
