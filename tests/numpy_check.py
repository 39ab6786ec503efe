"""Compiled pipelines against plain NumPy: same structure, type, shape, dtype and numbers, and arguments changed alike.

Array arguments lie against a page that may not be read, once at their end and once at their beginning, so that a
kernel that touches memory outside its arrays stops the test. Its scratch memory is watched, too.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import hjit
from hjit.kernels.runtime import arena

PAGE = mmap.PAGESIZE
MARK, GARBAGE = 0xAB, 0x7D  # bytes
_PROT_NONE = 0
Array = np.ndarray[Any, Any]


def guarded(a: Array, at_end: bool = True) -> Array:
    """A copy of `a` with the same strides, whose memory ends (or begins) at a page that may not be read."""
    low, high = np.lib.array_utils.byte_bounds(a) if a.size else (0, 0)
    if a.size == 0 or not sys.platform.startswith("linux"):
        return a.copy(order="K")
    size = high - low
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    raw = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        assert libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page * PAGE), ctypes.c_size_t(PAGE), _PROT_NONE) == 0
    first = PAGE + pages * PAGE - size if at_end else PAGE
    offset = first + a.__array_interface__["data"][0] - low
    result: Array = np.ndarray(a.shape, a.dtype, memory, offset, a.strides)
    if any(n > 1 and s == 0 for n, s in zip(a.shape, a.strides, strict=True)):
        part = tuple(slice(0, 1) if s == 0 else slice(None) for s in a.strides)
        result[part] = a[part]
    else:
        result[...] = a
    result.flags.writeable = a.flags.writeable
    return result


@contextlib.contextmanager
def watched_scratch() -> Iterator[None]:
    """Scratch memory is full of numbers that nobody wrote there, and lies between bytes that no kernel may write."""
    wrong: list[str] = []

    def borrow(size: int) -> arena.Block:
        memory = np.full(2 * PAGE + arena.ALIGN + size, MARK, np.uint8)
        first = PAGE + -(memory.ctypes.data + PAGE) % arena.ALIGN
        memory[first : first + size] = GARBAGE
        return memory, memory.ctypes.data + first, size

    def give_back(block: arena.Block) -> None:
        memory, address, size = block
        first = address - memory.ctypes.data
        for where, part in (("before", memory[:first]), ("behind", memory[first + size :])):
            if np.any(part != MARK):
                wrong.append(f"the kernel wrote {where} its scratch memory")

    usual = arena.borrow, arena.give_back
    arena.borrow, arena.give_back = borrow, give_back
    try:
        yield
    finally:
        arena.borrow, arena.give_back = usual
    assert not wrong, wrong[0]


def place(x: Any, at_end: bool) -> Any:
    """`x` with every array in it guarded; one array given twice stays one."""
    if isinstance(x, np.ndarray):
        return guarded(x, at_end)
    if isinstance(x, (list, tuple)):
        return type(x)(place(y, at_end) for y in x)
    return copy.copy(x)


def check(
    fn: Any, *args: Any, exact: bool = True, zeros: bool = True, ulps: float = 64, schedule: Any = None, **options: Any
) -> Any:
    """Assert that the compiled function gives NumPy's result, at its first call and at the next.

    Args:
        exact: the same bits (any NaN equals any other); otherwise floats may differ by `ulps`, relative to the largest number.
        zeros: must the signs of zeros be the same?
        schedule: what to run it by.

    Returns:
        The pipeline.
    """
    pipe = hjit.pipeline(fn, **{"verify": "off", "cache": "off", **options}).use(schedule)
    for at_end in (True, False):
        theirs, ours = place(args, at_end), place(args, at_end)
        error: Exception | None = None
        try:
            with np.errstate(all="ignore"):
                expected = fn(*theirs)
        except Exception as raised:
            error = raised
        if error is not None:
            try:
                pipe(*ours)
            except type(error) as raised:
                assert str(raised) == str(error)
            else:
                raise AssertionError(f"NumPy raises {error!r}, the pipeline does not")
            continue
        with watched_scratch():
            got = pipe(*ours)
        assert_same(got, expected, exact, zeros, ulps)
        assert_same(ours, theirs, exact, zeros, ulps)
        assert pipe.stats.fallbacks == 0, "the plain function ran"
    return pipe


def assert_same(
    got: Any, expected: Any, exact: bool = True, zeros: bool = True, ulps: float = 64, where: str = "result"
) -> None:
    """Assert that two results are the same; see `check`."""
    if isinstance(expected, (tuple, list)):
        assert type(got) is type(expected) and len(got) == len(expected), where
        for k, (g, e) in enumerate(zip(got, expected, strict=True)):
            assert_same(g, e, exact, zeros, ulps, f"{where}[{k}]")
        return
    if isinstance(expected, dict):
        assert type(got) is type(expected) and list(got) == list(expected), where
        for k in expected:
            assert_same(got[k], expected[k], exact, zeros, ulps, f"{where}[{k!r}]")
        return
    assert type(got) is type(expected), f"{where}: {type(got)} instead of {type(expected)}"
    if not isinstance(expected, (np.ndarray, np.generic)):
        assert got == expected or (got != got and expected != expected), f"{where}: {got!r} instead of {expected!r}"
        return
    assert got.dtype == expected.dtype, f"{where}: {got.dtype} instead of {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: {got.shape} instead of {expected.shape}"
    bad = wrong(np.asarray(got), np.asarray(expected), exact, zeros, ulps)
    if bad.any():
        at = tuple(int(k) for k in np.argwhere(bad)[0])
        raise AssertionError(
            f"{where}: {np.count_nonzero(bad)} of {bad.size} differ, first at {list(at)}: {got[at]!r} instead of {expected[at]!r}"
        )


def wrong(a: Array, b: Array, exact: bool, zeros: bool, ulps: float) -> Array:
    """Where two arrays of one dtype differ."""
    if b.dtype.kind == "c":
        return wrong(a.real, b.real, exact, zeros, ulps) | wrong(a.imag, b.imag, exact, zeros, ulps)
    if b.dtype.kind != "f":
        return np.asarray(a != b)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if exact:
            return ~same | (same & zeros & (b == 0) & (np.signbit(a) != np.signbit(b)))
        finite = np.abs(b[np.isfinite(b)])
        scale = finite.max() if finite.size else b.dtype.type(0)
        near = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= ulps * float(np.finfo(b.dtype).eps) * float(scale)
        return ~(same | near)


def sample(shape: Any, dtype: Any, seed: int = 0, special: bool = True) -> Array:
    """Random numbers of `dtype` over its range, zeros, extremes, infinities and NaN among them."""
    rng = np.random.default_rng([seed, int(np.prod(shape))])
    dtype = np.dtype(dtype)
    n = int(np.prod(shape))
    if dtype.kind == "c":
        z = np.empty(shape, dtype)
        z.real, z.imag = (sample(shape, z.real.dtype, 2 * seed + k, special) for k in (0, 1))
        return z
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        a = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        small = rng.integers(max(info.min, -9), 10, n).astype(dtype)
        a = np.where(rng.random(n) < 0.5, a, small).astype(dtype)
        extremes = np.array([0, 1, info.max, info.min, info.max - 1], dtype)
    else:
        info = np.finfo(dtype)
        with np.errstate(all="ignore"):
            a = np.where(rng.random(n) < 0.5, rng.normal(0, 1, n), rng.normal(0, 100, n)).astype(dtype)
        extremes = np.array(
            [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny], dtype
        )
    if special and n:
        at = rng.random(n) < 0.2
        a[at] = rng.choice(extremes, np.count_nonzero(at))
    return a.reshape(shape)


def image(shape: Any, dtype: Any, seed: int = 0) -> Array:
    """An image: integers over the whole range, floats in [0, 1)."""
    rng = np.random.default_rng([seed, int(np.prod(shape))])
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.random(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -30000), min(info.max, 60000), shape, endpoint=True).astype(dtype)


def layouts(a: Array) -> dict[str, Array]:
    """The same numbers in different memory layouts."""
    found = {"C": np.ascontiguousarray(a), "F": np.asfortranarray(a)}
    if a.ndim:
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1] + 1), a.dtype)
        wide[..., 1::2] = a
        found["step"] = wide[..., 1::2]
        found["reversed"] = np.ascontiguousarray(a[..., ::-1])[..., ::-1]
        padded = np.zeros([n + 3 for n in a.shape], a.dtype)
        inner = tuple(slice(1, 1 + n) for n in a.shape)
        padded[inner] = a
        found["inside"] = padded[inner]
        tall = np.zeros((3 * a.shape[0], *a.shape[1:]), a.dtype)
        tall[::-3] = a
        found["rows reversed"] = tall[::-3]
        found["broadcast"] = np.broadcast_to(a[:1], a.shape)
    return found
