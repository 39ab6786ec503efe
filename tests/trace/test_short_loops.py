"""Loops over short ranges: unrolled, unless they write many parts of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.trace.capture.loops.paths import Path
from hjit.trace.tracing.recording.loops.unrolled import MAX_PARTS
from tests.numpy_check import check
from tests.trace.test_rerolling import definitions, same

RNG = np.random.default_rng(0)
MANY = 7  # iterations of one loop, of whose square there are more than MAX_PARTS


def image(*shape: int) -> np.ndarray:
    return RNG.integers(0, 9, shape).astype(np.float32)


def convolution(img: Any, weights: Any) -> Any:
    """As deep-learning code in NumPy writes it: ``img[n, h, w, c]``, ``weights[k, k, c, d]``."""
    k = weights.shape[0]
    h, w = img.shape[1] - k + 1, img.shape[2] - k + 1
    out = np.empty((img.shape[0], h, w, weights.shape[3]), np.float32)
    for i in range(h):
        for j in range(w):
            out[:, i, j, :] = np.sum(img[:, i : i + k, j : j + k, :, np.newaxis] * weights[np.newaxis], axis=(1, 2, 3))
    return out


def pooled(img: Any) -> Any:
    out = np.empty((img.shape[0] // 2, img.shape[1] // 2), img.dtype)
    for i in range(img.shape[0] // 2):
        for j in range(img.shape[1] // 2):
            out[i, j] = np.max(img[2 * i : 2 * i + 2, 2 * j : 2 * j + 2])
    return out


def backwards(img: Any) -> Any:
    out = np.zeros_like(img)
    for i in reversed(range(img.shape[0])):
        for j in range(img.shape[1] - 1, -1, -1):
            out[i, j] = 2 * img[i, j]
    return out


def channel_by_channel(img: Any) -> Any:
    out = np.zeros_like(img)
    for c in range(3):
        for i in range(img.shape[1]):
            for j in range(img.shape[2]):
                out[c, i, j] = img[c, j, i] + c
    return out


def in_a_helper(img: Any) -> Any:
    def write(out: Any, i: int, j: int) -> None:
        out[i, j] = img[j, i] * 2

    out = np.zeros_like(img)
    for i in range(img.shape[0]):
        for j in range(img.shape[1]):
            write(out, i, j)
    return out


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {  # and how many definitions there are at most
    "convolution": (convolution, (image(2, 9, 8, 3), image(3, 3, 3, 4)), 8),
    "pooling": (pooled, (image(2 * MANY, 2 * MANY),), 8),
    "backwards": (backwards, (image(MANY, MANY),), 6),
    "channels": (channel_by_channel, (image(3, MANY, MANY),), 16),
    "helper": (in_a_helper, (image(MANY, MANY),), 6),
}


@pytest.mark.parametrize(("f", "args", "most"), CASES.values(), ids=CASES)
def test_loops_that_write_many_parts_are_traced_as_one_iteration(
    f: Callable[..., Any], args: tuple[Any, ...], most: int
) -> None:
    assert definitions(f, *args) <= most
    same(f, *args)


def test_loops_that_write_few_parts_are_unrolled() -> None:
    assert definitions(pooled, image(8, 8)) > 16
    same(pooled, image(8, 8))


def test_writing_the_same_part_again_is_no_reason() -> None:
    def relaxed(u: Any) -> Any:
        u = u.copy()
        for _ in range(MAX_PARTS + 8):
            u[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1]) * 0.5
        return u

    assert definitions(relaxed, image(23, 19)) > MAX_PARTS
    same(relaxed, image(23, 19))


def test_loops_around_that_are_in_their_first_iteration_stay_unrolled() -> None:
    def repeated(times: int) -> Any:
        def f(img: Any) -> Any:
            out = img.copy()
            for k in range(times):
                for i in range(MANY):
                    for j in range(MANY):
                        out[i, j] = out[i, j] + img[j, k]
            return out

        return f

    found = definitions(repeated(3), image(MANY, MANY))
    assert found < MAX_PARTS
    assert found - definitions(repeated(2), image(MANY, MANY)) > 0
    same(repeated(3), image(MANY, MANY))


def test_what_cannot_be_one_iteration_is_still_traced() -> None:
    def listed(img: Any) -> Any:
        out, seen = np.zeros_like(img), []
        for i in range(MANY):
            for j in range(MANY):
                seen.append(img[i, j])
                out[i, j] = img[j, i] + seen[-1]
        return out

    assert definitions(listed, image(MANY, MANY)) > MAX_PARTS
    same(listed, image(MANY, MANY))


def disparity(left: Any, right: Any) -> Any:
    h, w = left.shape
    out = np.zeros((h, w), np.int32)
    for y in range(2, h - 2):
        for x in range(10, w - 2):
            best, at = np.inf, 0
            for d in range(8):
                cost = 0.0
                for dy in range(-2, 3):
                    for dx in range(-2, 3):
                        cost += abs(float(left[y + dy, x + dx]) - float(right[y + dy, x + dx - d]))
                if cost < best:
                    best, at = cost, d
            out[y, x] = at
    return out


def test_few_long_paths_are_traced_before_short_loops_inside_are_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, long = Path.rolled_back.__func__, []  # type: ignore[attr-defined]

    def counted(cls: Any, rec: Any, at: Any, decided: Any) -> Any:
        found = kept(cls, rec, at, decided)
        long.extend([None] if len(found.body) > 1000 else [])
        return found

    monkeypatch.setattr(Path, "rolled_back", classmethod(counted))
    r = np.random.default_rng(5)
    check(disparity, *r.integers(0, 256, (2, 29, 45)).astype(np.uint8))
    assert 0 < len(long) <= 20
