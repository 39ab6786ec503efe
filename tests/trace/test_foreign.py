"""Compiled functions of other packages: called at every call, on copies, so that what they write is seen."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest
import scipy.fft
from scipy import ndimage

import hjit
from hjit import TraceError
from hjit.trace.capture.overlay import _is_compiled
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.externs.foreign import Foreign
from tests.numpy_check import check

RNG = np.random.default_rng(8)
IMAGE = RNG.random((24, 31))
GREY = (IMAGE * 255).astype(np.uint8)


def first_is(a: Any, k: float) -> Any:
    """Writes `k` to the first element."""
    b = a * 2
    struct.pack_into("d", b, 0, k)
    return b + 1


def test_what_is_written_to_a_computed_array_is_seen() -> None:
    f = hjit.pipeline(first_is, verify="off", cache="off", tune=False)
    for image in (IMAGE, IMAGE + 1):
        np.testing.assert_array_equal(f(image, 7.5), first_is(image, 7.5))
    assert f.stats.traces == 1
    assert f.stats.fallbacks == 0


def test_a_later_call_may_write_where_the_first_did_not() -> None:
    def same_or_not(a: Any, b: Any) -> Any:
        c, d = a * 2, b * 2
        struct.pack_into("d", c, 0, 3.0)
        struct.pack_into("d", d, 8, 3.0)
        return c, d

    three, one = np.full((3, 4), 1.5), np.ones((3, 4))
    f = hjit.pipeline(same_or_not, verify="off", cache="off", tune=False)
    for a, b in ((three, three), (one, three), (three, one), (one, one)):
        np.testing.assert_array_equal(f(a, b), same_or_not(a, b))
    assert f.stats.fallbacks == 0


def test_a_part_of_an_argument_is_written() -> None:
    def f(a: Any) -> Any:
        row = a[3]
        struct.pack_into("3d", row, 16, 1.0, 2.0, 3.0)
        return row.sum()

    def known() -> Any:
        a = np.zeros((2, 3))
        struct.pack_into("d", a[1], 8, 5.0)
        return a

    check(f, IMAGE)
    np.testing.assert_array_equal(hjit.pipeline(known)(), known())


def test_a_read_only_array_is_not_written() -> None:
    def f(a: Any) -> Any:
        struct.pack_into("d", a, 0, 1.0)
        return a * 2

    frozen = IMAGE.copy()
    frozen.flags.writeable = False
    with pytest.raises(TypeError):
        f(frozen)
    with pytest.raises(TypeError):
        hjit.pipeline(f)(frozen)
    assert frozen[0, 0] == IMAGE[0, 0]

    def repeated(a: Any) -> Any:
        try:
            struct.pack_into("d", np.broadcast_to(a[0], a.shape), 0, 1.0)
        except TypeError:
            return a + 1
        return a

    check(repeated, IMAGE)


def test_what_a_function_once_wrote_refuses_no_other_call() -> None:
    def bumps(x: Any, y: Any, first: bool) -> Any:
        x[0] += first
        return x + y

    implements(bumps)(lambda *args: compiled.extern(args, {}))
    compiled = Foreign(bumps)

    def f(a: Any) -> Any:
        b = a * 2
        return bumps(b, a, True), bumps(b[1:], b[:-1], False), b

    check(f, IMAGE)


def test_memory_that_two_arguments_share_is_not_written() -> None:
    compiled = pytest.importorskip("skimage.restoration._denoise_cy")

    def f(a: Any) -> Any:
        b = np.stack([a, a], axis=2)
        compiled._denoise_tv_bregman(b[1:-1, 1:-1], 5.0, 3, 1e-3, True, b)
        return b

    with pytest.raises(TraceError, match="memory that two of its arguments share"):
        hjit.pipeline(f)(IMAGE)


def writes_and_reads(b: Any, at: int) -> Any:
    """Stands for a compiled function, which raises after it has written."""
    b[0] = 3
    return b[at].sum()


implements(writes_and_reads)(lambda *args: Foreign(writes_and_reads).extern(args, {}))


def test_what_is_written_before_an_exception_is_seen() -> None:
    def f(a: Any, at: int) -> Any:
        b = a * 2
        try:
            return b + writes_and_reads(b, at)
        except IndexError:
            b[1] = 7
        return b

    pipe = hjit.pipeline(f, verify="off", cache="off")
    for at in (2, 99, 2, 98):
        np.testing.assert_allclose(pipe(IMAGE, at), f(IMAGE, at))


def runs(b: Any, n: int) -> Any:
    """Stands for a compiled function that returns what it is given in another shape."""
    b[0] += 1
    return b[:n], b.reshape(-1), b[1:, None]


implements(runs)(lambda *args: Foreign(runs).extern(args, {}))


def test_runs_of_elements_that_are_returned_are_the_arrays_own() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        first, flat, rest = runs(b, 3)
        flat[-1] = 7
        first += 1
        return b, first, flat, rest

    def known() -> Any:
        b = np.zeros((4, 5))
        runs(b, 3)[1][7] = 2
        return b

    check(f, IMAGE)
    check(known)


def counts_up(b: Any) -> Any:
    """Stands for a compiled function that writes different numbers to all elements, of any layout."""
    b += np.arange(b.size).reshape(b.shape)


implements(counts_up)(lambda *args: Foreign(counts_up).extern(args, {}))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("view", [lambda b: b.T, lambda b: b[::2].T, lambda b: b.reshape(2, -1, 3).transpose(1, 2, 0)])
def test_what_is_written_to_a_transposed_array_is_seen(view: Any, dtype: str) -> None:
    def f(a: Any) -> Any:
        b = a * 2
        counts_up(view(b))
        return b + 1

    def known() -> Any:
        b = np.zeros((6, 6), dtype)
        counts_up(view(b))
        return b

    check(f, RNG.random((6, 6)).astype(dtype))
    check(f, RNG.random((24, 33)).astype(dtype))
    check(known)


def test_a_part_that_is_returned_is_refused() -> None:
    with pytest.raises(TraceError, match="it returns a part of an array that it is given"):
        hjit.pipeline(lambda a: np.frombuffer(a * 2, np.uint8) + 1)(IMAGE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fused_functions_are_indexed_by_types(dtype: str) -> None:
    transform = pytest.importorskip("skimage.transform")
    check(lambda a: transform.rotate(a, 30) * 2, IMAGE.astype(dtype), exact=False)
    check(lambda a: transform.warp(a, transform.AffineTransform(scale=(1.1, 1.2))), IMAGE.astype(dtype), exact=False)


def test_scipys_functions_that_are_given_an_array() -> None:
    def f(a: Any) -> Any:
        labels, turned, far = np.zeros(a.shape, np.int32), np.ones_like(a), np.zeros(a.shape)
        count = ndimage.label(a > 0.6, output=labels)
        ndimage.rotate(a, 30, reshape=False, output=turned)
        ndimage.distance_transform_edt(a > 0.3, distances=far)
        return labels + 0, turned, far * count

    check(f, IMAGE, exact=False)


def test_cython_functions_that_fill_arrays() -> None:
    feature, restoration = pytest.importorskip("skimage.feature"), pytest.importorskip("skimage.restoration")
    check(lambda a: restoration.denoise_tv_bregman(a, weight=5) + 1, IMAGE, exact=False)
    check(lambda a: restoration.unwrap_phase(a * 20), IMAGE, exact=False)
    check(lambda a: feature.graycomatrix(a, [1], [0]).sum(axis=0), GREY)
    check(feature.hog, IMAGE, exact=False)


def test_compiled_functions_that_know_of_no_module() -> None:
    """OpenCV's are so; methods of built-in objects look the same."""
    assert bytes.maketrans.__module__ is None
    assert _is_compiled(bytes.maketrans)
    assert not _is_compiled([].append)
    assert not _is_compiled(IMAGE.max)
    assert Foreign(bytes.maketrans).name == "maketrans"


def test_opencv() -> None:
    cv2: Any = pytest.importorskip("cv2")

    def into(a: Any) -> Any:
        blurred = np.zeros_like(a)
        same = cv2.blur(a * 2, (3, 3), dst=blurred)
        return same + blurred

    def drawn(a: Any) -> Any:
        b = a.copy()
        cv2.rectangle(b, (3, 3), (9, 9), 200, 1)
        return b // 2

    check(lambda a: cv2.GaussianBlur(a * 2, (5, 5), 1.0) + 1, IMAGE)

    def drawn_in_a_view(a: Any) -> Any:
        b = a.copy()
        for k in range(3):
            cv2.circle(b[2:20, 3:30], (9, 9), 3 + k, 50 * k, -1)
        return b

    def drawn_in_an_argument(a: Any, r: int) -> Any:
        cv2.circle(a, (9, 9), r, 255, -1)
        return a.mean()

    def drawn_in_known_numbers(a: Any) -> Any:
        mask = np.zeros(a.shape, np.uint8)
        same = cv2.rectangle(mask, (3, 3), (9, 9), 1, -1)
        same[0, 0] = 1
        return a * mask, mask

    check(into, IMAGE)
    check(drawn, GREY)
    check(drawn_in_a_view, GREY)
    check(drawn_in_an_argument, GREY, 5)
    check(drawn_in_known_numbers, GREY)
    check(lambda a: cv2.threshold(a, 0, 255, cv2.THRESH_OTSU)[1], GREY)


@pytest.mark.parametrize(
    "f", [lambda cv2, a: cv2.imread("a.png"), lambda cv2, a: cv2.imwrite("a.png", a), lambda cv2, a: cv2.randu(a, 0, 9)]
)
def test_what_opencv_does_once_is_refused(f: Any) -> None:
    cv2: Any = pytest.importorskip("cv2")
    with pytest.raises(TraceError, match="call it outside the function"):
        hjit.pipeline(lambda a: f(cv2, a))(GREY)


def test_arrays_that_nothing_reads_afterwards_are_not_copied() -> None:
    """A kernel has made them for the call: it is given these themselves, whether it writes to them or not."""
    given: list[Any] = []

    def total(x: Any, k: float) -> Any:
        given.append(x)
        x[1] += k
        return x.sum()

    implements(total)(lambda *args: compiled.extern(args, {}))
    compiled = Foreign(total)

    def dead(a: Any) -> Any:
        return total(a * 2, 1.0) + 1

    def written(a: Any) -> Any:
        b = a * 2
        s = total(b, 1.0)
        return b * s

    def read(a: Any) -> Any:
        b = a * 2
        return total(b, 0.0), b + 1

    def twice(a: Any) -> Any:
        b = a * 2
        return total(b, 0.0), total(b, 0.0)

    def argument(a: Any) -> Any:
        return total(a, 0.0) * 2

    copied = {}
    for f in (dead, written, read, twice, argument):
        compiled.writes.clear()
        p = hjit.pipeline(f, verify="off", cache="off", tune=False)
        for image in (IMAGE, IMAGE + 1, IMAGE - 1):
            np.testing.assert_equal(p(image.copy()), f(image.copy()))
        assert p.stats.fallbacks == 0 and p.stats.traces == 1
        (entry,) = p.entries
        graph_break = next(s.graph_break for s in entry.variants[0].segments if s.graph_break is not None)
        run, seen = graph_break.call, list[Any]()
        assert run is not None

        def noted(*arrays: Any, _run: Any = run, _seen: list[Any] = seen, **more: Any) -> Any:
            _seen += arrays
            return _run(*arrays, **more)

        graph_break.call = noted
        given.clear()
        p(IMAGE.copy())
        copied[f.__name__] = not any(np.may_share_memory(given[0], x) for x in seen)
    assert copied == {"dead": False, "written": False, "read": True, "twice": True, "argument": True}


def test_a_list_that_it_changes_is_refused() -> None:
    rows: Any = Foreign(list.append)
    queues: Any = Foreign(deque.extend)

    def appended(a: Any) -> Any:
        found: list[Any] = []
        rows(found, a)
        return a * len(found)

    def extended(a: Any) -> Any:
        found: Any = deque()
        queues(found, (a, a))
        return a * len(found)

    for function, what in ((appended, "list"), (extended, "deque")):
        with pytest.raises(TraceError, match=f"it changes a {what} that it is given"):
            hjit.pipeline(function)(IMAGE)


def packed_into_bytes(a: Any) -> Any:
    data = bytearray(8)
    struct.pack_into("d", data, 0, a[0, 0])
    return a * data[1]


def packed_into_numbers(a: Any) -> Any:
    data = array("d", [0, 0])
    struct.pack_into("d", data, 8, a[0, 0])
    return a * data[1]


@pytest.mark.parametrize("function", [packed_into_bytes, packed_into_numbers])
def test_a_buffer_that_it_writes_to_is_written_at_each_call(function: Any) -> None:
    f = hjit.pipeline(function, verify="off", on_unsupported="break")
    for image in (IMAGE, IMAGE + 1, IMAGE * 7):
        np.testing.assert_array_equal(f(image), function(image))


def test_a_cache_of_a_compiled_function_calls_it() -> None:
    """scipy.fft.next_fast_len is one."""

    def f(n: int) -> Any:
        try:
            return scipy.fft.next_fast_len(n)
        except AttributeError:  # of a library without it
            return -1

    pipe = hjit.pipeline(f, cache="off")
    assert [pipe(n) for n in (13, 29)] == [14, 30] and pipe.stats.verified
