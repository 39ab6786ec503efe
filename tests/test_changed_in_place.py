"""What NumPy's and Python's own functions change in place, or write to `out`, is changed at every call."""

from __future__ import annotations

import bisect
import functools
import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg

import hjit


def calls(function: Callable[..., Any], shape: tuple[int, ...] = (7, 9), dtype: Any = float) -> hjit.Pipeline:
    """Compares four calls, each of other numbers, with those of the function, and what they leave in the arguments."""
    f = hjit.pipeline(function, verify="off", on_unsupported="break")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        args = [rng.random(shape).astype(dtype) + 0.1 for _ in range(function.__code__.co_argcount)]
        ours = [x.copy() for x in args]
        np.testing.assert_equal(f(*ours), function(*args))
        np.testing.assert_equal(ours, args)
    return f


# -- transforms


def fft(a: Any) -> Any:
    q = np.zeros(a.shape, complex)
    np.fft.fft(a, out=q)
    return q


def fft_by_position(a: Any) -> Any:
    q = np.zeros(a.shape, complex)
    r = np.fft.fft(a, None, -1, None, q)
    r += 1
    return q


def fft_of_a_view(a: Any) -> Any:
    q = np.zeros(a.shape, complex)
    return np.fft.fft(a[::2], axis=0, out=q[::2]), q


def irfft(a: Any) -> Any:
    o = np.empty(a.shape)
    np.fft.irfft(np.fft.rfft(a, axis=0), n=len(a), axis=0, out=o)
    return o


def ifft2_of_itself(a: Any) -> Any:
    q = np.fft.fft2(a)
    q *= 2
    np.fft.ifft2(q, out=q)
    return q.real


def fftn_of_known(a: Any) -> Any:
    q = np.zeros(a.shape, complex)
    np.fft.fftn(np.arange(9.0), out=q[0])
    return q * a


def overwritten(a: Any) -> Any:
    q = a + 0j
    return scipy.fft.fft2(q, overwrite_x=True), scipy.linalg.inv(np.eye(3) + a[:3, :3], overwrite_a=True)


@pytest.mark.parametrize(
    "function", [fft, fft_by_position, fft_of_a_view, irfft, ifft2_of_itself, fftn_of_known, overwritten]
)
def test_transforms_write_to_out(function: Callable[..., Any]) -> None:
    assert "as it is" in calls(function).explain(np.ones((7, 9))) or function is fftn_of_known


# -- pairs of results


def modf_to_arrays(a: Any) -> Any:
    f, i = np.zeros(a.shape), np.zeros(a.shape)
    np.modf(a * 3, f, i)
    return f, i


def modf_to_views(a: Any) -> Any:
    b = np.zeros((2, *a.shape))
    np.modf(a * 3, out=tuple(b))
    return b


def modf_to_one(a: Any) -> Any:
    f = np.ones(a.shape)
    return np.modf(a * 3, f)[1], f


def modf_where(a: Any) -> Any:
    f, i = np.ones(a.shape), np.ones(a.shape)
    np.modf(a * 3, f, i, where=a > 0.5)
    return f, i


def divmod_to_an_operand(a: Any) -> Any:
    r = np.zeros(a.shape, np.float32)
    return np.divmod(a, 0.3, out=(a, r))


@pytest.mark.parametrize("function", [modf_to_arrays, modf_to_views, modf_to_one, modf_where, divmod_to_an_operand])
def test_pairs_of_results_are_written(function: Callable[..., Any]) -> None:
    assert "runs compiled" in calls(function).explain(np.ones((7, 9)))


# -- an `out` of another dtype than the result's


@pytest.mark.parametrize(
    "function",
    [
        lambda a, q: np.ptp(a, axis=0, out=q[0]),
        lambda a, q: np.round(a, 1, out=q),
        lambda a, q: a.round(-1, out=q),
        lambda a, q: np.median(a[:4], axis=0, out=q[0]),
        lambda a, q: np.percentile(a, 37, axis=0, out=q[0]),
        lambda a, q: np.nanmedian(a[:4], axis=0, out=q[0]),
    ],
)
@pytest.mark.parametrize(("given", "wanted"), [(np.float32, float), (float, np.float32)])
def test_what_is_computed_in_out(function: Callable[..., Any], given: Any, wanted: Any) -> None:
    def run(a: Any) -> Any:
        q = np.zeros(a.shape, wanted)
        function(a * 31, q)
        return q

    calls(run, dtype=given)


# -- shuffling


def shuffled_rows(a: Any) -> Any:
    q = a.copy()
    np.random.default_rng(0).shuffle(q)
    return q


def shuffled_columns(a: Any) -> Any:
    q, shuffle = a + 1, np.random.Generator(np.random.PCG64(3)).shuffle
    shuffle(q, axis=1)
    return q


def shuffled_by_a_state(a: Any) -> Any:
    q = a + 1
    np.random.RandomState(0).shuffle(q)
    return q


def shuffled_places(a: Any) -> Any:
    k = np.arange(7)
    np.random.default_rng(0).shuffle(k)
    return a[k]


def shuffled_list(a: Any) -> Any:
    rows = [a[0], a[1], a[2]]
    np.random.default_rng(0).shuffle(rows)
    return rows[0]


@pytest.mark.parametrize(
    "function", [shuffled_rows, shuffled_columns, shuffled_by_a_state, shuffled_places, shuffled_list]
)
def test_shuffled_arrays(function: Callable[..., Any]) -> None:
    calls(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * np.random.RandomState().random_sample(),
        lambda a: a * np.random.RandomState(None).random_sample(),
        lambda a: a * np.random.Generator(np.random.PCG64()).random(),
        lambda a: a * np.random.default_rng(np.random.SeedSequence()).random(),
    ],
)
def test_generators_without_a_seed_differ_from_call_to_call(function: Callable[..., Any]) -> None:
    f = hjit.pipeline(function, verify="off", on_unsupported="break")
    assert len({float(f(np.ones((3, 3)))[0, 0]) for _ in range(5)}) == 5


# -- flat


def flat_is_copied(a: Any) -> Any:
    b = a.copy()
    v = b.flat[2:5]
    v += 1
    w = b.flat[...]
    w *= 2
    b.flat[3] += 1
    b.flat[5:7] += b.flat[0]
    return b, v, len(b.flat)


def complex_flat_is_copied(a: Any) -> Any:
    z = a + 1j
    v = z.flat[2:5]
    v += 1
    z.flat[5] += 2
    return z, v


def known_flat_is_copied(a: Any) -> Any:
    b = np.arange(9.0).reshape(3, 3)
    v = b.flat[2:5]
    v += 1
    return b * a[0, 0]


def sorted_copy(a: Any) -> Any:
    b = a * 2
    b.flat[:].sort()
    return b


@pytest.mark.parametrize("function", [flat_is_copied, complex_flat_is_copied, known_flat_is_copied, sorted_copy])
def test_what_is_taken_of_flat_is_a_copy(function: Callable[..., Any]) -> None:
    calls(function)


# -- lists


def heap(a: Any) -> Any:
    q = [a[0, 0], a[0, 1], a[1, 0]]
    heapq.heapify(q)
    return a * q[0]


def queue(a: Any) -> Any:
    q: list[Any] = []
    for y, x in ((0, 0), (1, 1), (2, 0)):
        heapq.heappush(q, (a[y, x], y, x))
    first = heapq.heappop(q)
    heapq.heapreplace(q, (a[3, 3], 3, 3))
    return a * len(q) + first[1] * 2 + q[0][2]


def queue_of_sizes(a: Any) -> Any:
    q: list[Any] = []
    heapq.heappush(q, (a.shape[0] // 2, 1))
    heapq.heappush(q, (a.shape[1] - 9, 2))
    return a * heapq.heappop(q)[1] + len(q)


def inserted(a: Any) -> Any:
    q: list[Any] = []
    for k in range(3):
        bisect.insort(q, a[0, k])
    return a - q[0] + bisect.bisect(q, a[1, 1])


def pushed_by_a_partial(a: Any) -> Any:
    q: list[Any] = []
    push = functools.partial(heapq.heappush, q)
    push(a.max())
    return a * len(q)


def grown(a: Any) -> Any:
    q: list[Any] = []
    for y, x in np.argwhere(a > 0.9):
        heapq.heappush(q, (a[y, x], y, x))
    popped = [heapq.heappop(q)[1] for _ in range(len(q))]
    return a * len(popped)


def merged(a: Any) -> Any:
    return a * next(iter(heapq.merge([a[0, 0]], [a[0, 1]]))) + heapq.nsmallest(1, [a[1, 0], a[1, 1]])[0]


@pytest.mark.parametrize("function", [heap, queue, queue_of_sizes, inserted, pushed_by_a_partial, grown, merged])
def test_heaps_and_sorted_lists(function: Callable[..., Any]) -> None:
    calls(function)


def test_a_queue_that_the_first_call_leaves_empty() -> None:
    f = hjit.pipeline(grown, verify="off", on_unsupported="break")
    for image in (np.zeros((3, 3)), np.zeros((3, 3)), np.ones((3, 3))):
        np.testing.assert_array_equal(f(image), grown(image))
