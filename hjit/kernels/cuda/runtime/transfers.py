"""Copies between the host and a GPU, through pinned memory.

An array is copied in strips: while one is being transferred, the host fills the next, so that both copies overlap.
Uploads and downloads each have a stream of their own; events order them with the work of CuPy's current stream.
`RowCopies` are copies of rows that overlap with kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

STRIP_BYTES = 4 << 20  # of a copy; some 0.2 ms on a bus of 16 lanes, against which starting it is nothing
STRIPS = 2  # of pinned memory in either direction: one is filled while the other is copied
MAX_SPAN = 4  # memory of an array with gaps, in its own bytes, up to which the gaps are copied, too

Array = np.ndarray[Any, Any]


class RowCopies(Protocol):
    """The copies of rows in one run of kernels, which overlap with the kernels."""

    def place(self, a: Array) -> Any:
        """Memory on the device for an array of the host, with its strides; nothing is in it."""
        ...

    def send(self, a: Array, there: Any, begin: int, end: int) -> None:
        """Rows of an array to its place; what is launched later waits for them."""
        ...

    def fetch(self, there: Any, a: Array, begin: int, end: int) -> None:
        """Rows back, when all is done that was launched before; an array without axes has one."""
        ...


class HostMemory:
    """As `RowCopies`, where the device's memory is the host's."""

    def place(self, a: Array) -> Array:
        return a

    def send(self, a: Array, there: Array, begin: int, end: int) -> None:
        pass

    def fetch(self, there: Array, a: Array, begin: int, end: int) -> None:
        pass


class Transfers:
    """The copies of one device; one thread at a time."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.strip_bytes = cupy, STRIP_BYTES
        self._lock = threading.Lock()
        self._streams: tuple[Any, Any] | None = None
        self._pinned: list[tuple[Any, Array]] = []  # what keeps the memory, and its bytes

    def upload(self, a: Array) -> Any:
        """An array on the device with the strides of `a`. Then the host may change `a`, and any stream use it."""
        cupy = self.cupy
        if not a.size:
            return cupy.empty(a.shape, a.dtype)
        low, high = np.lib.array_utils.byte_bounds(a)
        span = cupy.empty((high - low,), np.uint8)
        found = cupy.ndarray(a.shape, a.dtype, span.data + (a.__array_interface__["data"][0] - low), a.strides)
        if high - low <= MAX_SPAN * a.nbytes:
            self._send(_memory(low, high), span)
        else:
            packed = np.ascontiguousarray(a)
            there = cupy.empty((a.nbytes,), np.uint8)
            self._send(packed.reshape(-1).view(np.uint8), there)
            found[...] = cupy.ndarray(a.shape, a.dtype, there.data, packed.strides)
            cupy.cuda.get_current_stream().synchronize()
        return found

    def download(self, x: Any) -> Array:
        """An array on the host with the order of axes of `x`, when all is done that was launched before."""
        if x.size == 1:  # a decision, or whether indices were in bounds
            return x.get()  # type: ignore[no-any-return]
        order = sorted(range(x.ndim), key=lambda k: -abs(x.strides[k]))
        memory = np.empty([x.shape[k] for k in order], x.dtype)
        if x.size:
            rows = x.transpose(order)
            rows = rows if rows.flags.c_contiguous else self.cupy.ascontiguousarray(rows)
            self._receive(rows, memory.reshape(-1).view(np.uint8))
        return memory.transpose(np.argsort(order)) if x.ndim else memory

    @contextlib.contextmanager
    def moves(self) -> Iterator[StagedCopies]:
        """Copies of rows; afterwards all of them are done."""
        with self._lock:
            up, down = self._ready()
            strips = [strip for _, strip in self._pinned]
            moves = StagedCopies(self.cupy, up, down, strips[:STRIPS], strips[STRIPS:])
            try:
                yield moves
                moves.finish()
            finally:  # the pinned memory is free again
                up.synchronize()
                down.synchronize()

    # -- strips
    def _send(self, source: Array, to: Any) -> None:
        """Bytes to the device; the current stream waits for them."""
        with self._lock:
            stream, pinned = self._ready()[0], self._pinned
            current = self.cupy.cuda.get_current_stream()
            stream.wait_event(current.record())  # the memory may be in use by what was launched before
            done: list[Any] = [None] * STRIPS
            for k, (begin, end) in enumerate(_strips(source.size, self.strip_bytes)):
                if done[k % STRIPS] is not None:
                    done[k % STRIPS].synchronize()
                strip = pinned[k % STRIPS][1]
                strip[: end - begin] = source[begin:end]
                (to.data + begin).copy_from_host_async(strip.ctypes.data, end - begin, stream)
                done[k % STRIPS] = stream.record()
            current.wait_event(stream.record())
            stream.synchronize()  # the pinned memory is free again

    def _receive(self, source: Any, to: Array) -> None:
        """Bytes from the device, when the current stream has come so far."""
        with self._lock:
            stream, pinned = self._ready()[1], self._pinned
            stream.wait_event(self.cupy.cuda.get_current_stream().record())
            waiting: list[tuple[Any, int, int, Array]] = []
            for k, (begin, end) in enumerate(_strips(to.size, self.strip_bytes)):
                if len(waiting) == STRIPS:
                    _take(to, *waiting.pop(0))
                strip = pinned[STRIPS + k % STRIPS][1]
                (source.data + begin).copy_to_host_async(strip.ctypes.data, end - begin, stream)
                waiting.append((stream.record(), begin, end, strip))
            for x in waiting:
                _take(to, *x)

    def _ready(self) -> tuple[Any, Any]:
        """The streams of uploads and of downloads; and pinned memory."""
        if self._streams is None:
            cuda = self.cupy.cuda
            self._streams = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
            for _ in range(2 * STRIPS):
                memory = cuda.alloc_pinned_memory(self.strip_bytes)
                self._pinned.append((memory, np.frombuffer(memory, np.uint8, self.strip_bytes)))
        return self._streams


class StagedCopies:
    """Copies of rows through strips of pinned memory.

    Downloads are queued: one starts when a strip is free, and is copied out of its strip while the next strip of an
    upload is being transferred, so that the host waits for a download at the end only.
    """

    def __init__(self, cupy: Any, up: Any, down: Any, filled: Sequence[Array], emptied: Sequence[Array]) -> None:
        self.cupy, self.up, self.down, self.filled, self.emptied = cupy, up, down, filled, emptied
        self.strip_bytes = filled[0].size
        self.sent: list[Any] = []  # an event for each strip that was sent
        self.waiting: deque[tuple[Any, Any, Array]] = deque()  # the event before it, its memory here and there
        self.flying: deque[tuple[Any, Array, Array]] = deque()  # the event after it, its strip and memory here
        self.fetched = 0

    def place(self, a: Array) -> Any:
        memory = self.cupy.empty((bytes_of(a.shape, a.dtype, a.strides),), np.uint8)
        self.up.wait_event(self.cupy.cuda.get_current_stream().record())  # others may have used it before
        return self.cupy.ndarray(a.shape, a.dtype, memory.data, a.strides)

    def send(self, a: Array, there: Any, begin: int, end: int) -> None:
        first, rows = begin * a.strides[0], _rows(a, begin, end)
        for low, high in _strips(rows.size, self.strip_bytes):
            k = len(self.sent) % STRIPS
            if len(self.sent) >= STRIPS:
                self.sent[-STRIPS].synchronize()
            strip = self.filled[k]
            strip[: high - low] = rows[low:high]
            (there.data + (first + low)).copy_from_host_async(strip.ctypes.data, high - low, self.up)
            self.sent.append(self.up.record())
            self._progress()
        self.cupy.cuda.get_current_stream().wait_event(self.up.record())

    def fetch(self, there: Any, a: Array, begin: int, end: int) -> None:
        a = np.atleast_1d(a)
        first, rows = begin * a.strides[0], _rows(a, begin, end)
        done = self.cupy.cuda.get_current_stream().record()
        for low, high in _strips(rows.size, self.strip_bytes):
            self.waiting.append((done, there.data + (first + low), rows[low:high]))
        self._progress()

    def finish(self) -> None:
        """Wait for all of them."""
        while self.waiting or self.flying:
            self._start()
            self._take()

    def _progress(self) -> None:
        """Take what has arrived, and start what has a strip."""
        while self.flying and self.flying[0][0].done:
            self._take()
        self._start()

    def _start(self) -> None:
        while self.waiting and len(self.flying) < STRIPS:
            before, there, here = self.waiting.popleft()
            strip = self.emptied[self.fetched % STRIPS]
            self.fetched += 1
            self.down.wait_event(before)
            there.copy_to_host_async(strip.ctypes.data, here.size, self.down)
            self.flying.append((self.down.record(), strip, here))

    def _take(self) -> None:
        event, strip, here = self.flying.popleft()
        event.synchronize()
        here[:] = strip[: here.size]


def _rows(a: Array, begin: int, end: int) -> Array:
    """The bytes of rows of an array, whose strides are not negative and the first of them the largest."""
    low = a.__array_interface__["data"][0]
    last = bytes_of((end - begin, *a.shape[1:]), a.dtype, a.strides)
    return _memory(low + begin * a.strides[0], low + begin * a.strides[0] + last)


def bytes_of(shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int]) -> int:
    """The memory of an array whose strides are not negative, in bytes."""
    if 0 in shape:
        return 0
    return dtype.itemsize + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def _strips(size: int, each: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, size, each):
        yield begin, min(begin + each, size)


def _take(to: Array, event: Any, begin: int, end: int, strip: Array) -> None:
    event.synchronize()
    to[begin:end] = strip[: end - begin]


def _memory(low: int, high: int) -> Array:
    """The bytes between two addresses, of an array that somebody holds."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
