"""Scratch memory: blocks that calls borrow and give back, so that a warm call touches no new pages."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

KEEP_BYTES = 1 << 30  # of all blocks kept between calls
ALIGN = 64  # bytes: a line of the cache, and the widest vector
SLACK = 64  # readable bytes behind a block: gathers load 4 bytes where they need 1
FIT, FIT_BYTES = 4, 1 << 20  # a block serves a request unless it is more than this many times larger, and bytes more

Block = tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], int, int]  # memory, aligned address, size

_free: deque[Block] = deque()
_kept = 0
_lock = threading.Lock()


def borrow(size: int) -> Block:
    """A block of at least `size` bytes, aligned to 64; its contents are arbitrary."""
    global _kept
    if size == 0:
        return _NOTHING
    with _lock:
        best = None
        for block in _free:
            if size <= block[2] <= FIT * size + FIT_BYTES and (best is None or block[2] < best[2]):
                best = block
        if best is not None:
            _remove(best)
            _kept -= best[2]
            return best
    memory = np.empty(size + ALIGN + SLACK, np.uint8)
    address = memory.ctypes.data
    return memory, -(-address // ALIGN) * ALIGN, size


def _remove(block: Block) -> None:
    """Remove a block by identity: `deque.remove` would compare arrays."""
    for k, b in enumerate(_free):
        if b is block:
            del _free[k]
            return


def give_back(block: Block) -> None:
    """Keep a block for later calls; the oldest blocks are freed if too much is kept."""
    global _kept
    if block[2] == 0:
        return
    with _lock:
        _free.append(block)
        _kept += block[2]
        while _kept > KEEP_BYTES:
            _kept -= _free.popleft()[2]


def after_fork() -> None:
    """A child starts with an unlocked, empty pool."""
    global _lock, _kept
    _lock = threading.Lock()
    _free.clear()
    _kept = 0


# For kernels without scratch memory. It is readable all the same: loads are hoisted out of loops that never run.
_nothing = np.zeros(ALIGN + SLACK, np.uint8)
_NOTHING: Block = (_nothing, _nothing.ctypes.data, 0)
