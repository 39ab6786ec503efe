"""Streaming stores: whole vectors of a result that no cache holds go to memory without its lines being read first.

A store to memory that is not in a cache costs twice its bytes: the line is read, changed, and written back later. A store
with a non-temporal hint writes a line that is given as a whole (Intel's optimization manual, "Cacheability control"). The
processor demands aligned addresses. So there are both stores in the code, and each turn takes the one that its address allows;
a vector loop begins as far before its first element as makes the addresses of its later turns aligned (`hjit.kernels.lanes`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hjit.kernels.code import BOOL, I64, Val, const

if TYPE_CHECKING:
    from hjit.kernels.emit import NestEmitter

_HINT = "!0"
_METADATA = f"{_HINT} = !{{i32 1}}"


class Stores:
    """Stores of one statement, written together at its end."""

    def __init__(self, e: NestEmitter) -> None:
        self._e = e
        self._waiting: list[tuple[str, Val, Val]] = []

    def whole(self, buffer: str, v: Val, at: Val) -> None:
        """A vector, all of whose lanes are stored at `at`."""
        if is_streamed(self._e, buffer, v.dtype.itemsize * v.lanes):
            self._waiting.append((buffer, v, at))
        else:
            self._e.code.effect(f"store {v}, ptr {at.text}, align {v.dtype.itemsize}")

    def finish(self) -> None:
        """Write what may be streamed: with the hint where all addresses are aligned."""
        if not self._waiting:
            return
        e, code = self._e, self._e.code
        bits = [says(e, buffer) for buffer in dict.fromkeys(buffer for buffer, _, _ in self._waiting)]
        for _, v, at in self._waiting:
            address = code.emit(f"ptrtoint ptr {at.text} to i64", I64, 1, at)
            bits.append(e.arith("and", address, const(v.dtype.itemsize * v.lanes - 1, I64)))
        all_bits = functools.reduce(lambda x, y: e.arith("or", x, y), bits)
        aligned = code.emit(f"icmp eq i64 {all_bits.text}, 0", BOOL, 1, all_bits)
        code.declare(_METADATA)
        e.branch(aligned, lambda: self._store(f", !nontemporal {_HINT}"), lambda: self._store(""))

    def _store(self, hint: str) -> None:
        for _, v, at in self._waiting:
            aligned = v.dtype.itemsize * (v.lanes if hint else 1)
            self._e.code.effect(f"store {v}, ptr {at.text}, align {aligned}{hint}")


def is_streamed(e: NestEmitter, buffer: str, size: int) -> bool:
    """Does a store of so many bytes wait for `Stores.finish`?"""
    return buffer in e.params.keep and "x86" in e.machine.features and size >= e.machine.width and e.mask is None


def finish(e: NestEmitter) -> None:
    """At the end of a function: what was streamed is in memory before anybody is told that it is done."""
    if _METADATA in e.code.declarations:
        e.code.declare("declare void @llvm.x86.sse.sfence()")
        e.code.effect("call void @llvm.x86.sse.sfence()")


def says(e: NestEmitter, buffer: str) -> Val:
    """`params.KEEP` or `params.STREAM`."""
    return e.slot(e.params.keep[buffer])
