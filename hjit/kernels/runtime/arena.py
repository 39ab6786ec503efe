"""Scratch memory: blocks that calls borrow and return, so that a warm call does not page-fault."""

from __future__ import annotations

import itertools

import numpy as np

KEEP_BYTES = 1 << 30  # of all blocks kept between calls
SMALL_BYTES, FEW = 1 << 20, 64  # so many blocks of that size are kept unasked
ALIGN = 64  # bytes: a line of the cache, and the widest vector
SLACK = 64  # readable bytes behind a block: gathers load 4 bytes where they need 1
FIT, FIT_BYTES = 4, 1 << 20  # a block serves a request unless it is more than this many times larger, and bytes more

Block = tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], int, int]  # memory, aligned address, size

# By the order in which they were given back. It changes by single operations and has no lock: a signal handler, or a
# `__del__`, that calls a pipeline may come in the middle of a function here, in the same thread.
_free: dict[int, Block] = {}
_order = itertools.count()


def borrow(size: int) -> Block:
    """A block of at least `size` bytes, aligned to 64; its contents are arbitrary."""
    if size == 0:
        return _NOTHING
    best, most = None, FIT * size + FIT_BYTES
    for k, block in _free.copy().items():
        if size <= block[2] <= most:
            best, most = k, block[2]
    found = None if best is None else _free.pop(best, None)  # None: another call has just borrowed it
    if found is not None:
        return found
    memory = np.empty(size + ALIGN + SLACK, np.uint8)
    address = memory.ctypes.data
    return memory, -(-address // ALIGN) * ALIGN, size


def give_back(block: Block) -> None:
    """Keep a block for later calls; the oldest blocks are freed if too much is kept."""
    if block[2] == 0:
        return
    _free[next(_order)] = block
    if block[2] > SMALL_BYTES or len(_free) > FEW:
        _trim()


def _trim() -> None:
    kept = _free.copy()
    total = sum([b[2] for b in kept.values()])
    for k, b in kept.items():
        if total <= KEEP_BYTES:
            return
        _free.pop(k, None)
        total -= b[2]


def after_fork() -> None:
    """A child starts with an empty pool."""
    _free.clear()


# For kernels without scratch memory. It is readable all the same: loads are hoisted out of loops that never run.
_nothing = np.zeros(ALIGN + SLACK, np.uint8)
_NOTHING: Block = (_nothing, _nothing.ctypes.data, 0)
