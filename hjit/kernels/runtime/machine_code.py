"""Machine code of kernels, and abandoned compilations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hjit.process.signals import Call

# -- abandoned compilations with LLVM

_given_up: Call[bytes] | None = None


def give_up(call: Call[bytes]) -> None:
    """Abandon a compilation: LLVM goes on, and its result is not used."""
    global _given_up
    _given_up = call


def is_busy() -> bool:
    """Is LLVM still running an abandoned compilation? It holds LLVM's lock, so nothing can be compiled."""
    return _given_up is not None and not _given_up.done


# -- kernels


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of a kernel.

    Attributes:
        entry: ``i32 entry(ptr params)`` as a ctypes function that releases the GIL; the code lives as long as it.
        library: what owns the code; None: the entry.
    """

    entry: Callable[[Any], int]
    library: Any


PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)
