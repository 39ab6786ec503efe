"""Calls whose kernels run on a GPU: on a small CuPy (`fake_cupy`) and on PoCL, and in ``python -m tests.gpu`` on the real one."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.runtime import bound, on_cupy
from tests.kernels.cuda import fake_cupy
from tests.kernels.cuda.launching import needs_device

pytestmark = needs_device
IMAGE = np.random.default_rng(3).random((40, 50), np.float32)
LOG = logging.getLogger("hjit.tests")


def same(got: Any, expected: Any) -> None:
    """Are results the same numbers, on the device?"""
    if isinstance(expected, tuple):
        assert type(got) is tuple and len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            same(g, e)
        return
    assert isinstance(got, sys.modules["cupy"].ndarray)
    assert got.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(got.get(), expected, rtol=1e-6, atol=1e-30)


def blurred(a: Any, k: float) -> Any:
    b = (a[:-2] + a[1:-1] + a[2:]) / 3
    return b * k, b.sum()


def of_sizes(a: Any) -> Any:
    h, w = a.shape
    return a * (h / w) + w - 0.5 * h, a.sum() / a.size


def test_sizes_as_numbers(cp: Any) -> None:
    f = hjit.pipeline(of_sizes)
    for a in (IMAGE, IMAGE[:30], IMAGE[:, :41].copy()):
        same(f(cp.asarray(a)), of_sizes(a))
        same(f(cp.asarray(a)), of_sizes(a))
    assert (f.on("cuda").stats.traces, len({k for v in f.on("cuda").entries for k in _names(v)})) == (3, 1)


def _names(entry: Any) -> list[str]:
    return [b.kernel.name for v in entry.variants for b in v.bounds]


def test_cupy_arrays_in_cupy_arrays_out(cp: Any) -> None:
    f = hjit.pipeline(blurred)
    for a in (IMAGE, IMAGE[::-1, ::2], np.asfortranarray(IMAGE)):
        given = cp.asarray(a)
        if a is not IMAGE:  # a view of a larger array
            given = cp.asarray(IMAGE)[::-1, ::2] if a.shape[1] < 50 else cp.asarray(IMAGE.T.copy()).T
        assert given.strides == a.strides
        same(f(given, 2.0), blurred(a, 2.0))
        fake_cupy.log.clear()
        result = f(given, 3.0)
        assert fake_cupy.log == []  # nothing has run yet, nor was waited for
        same(result, blurred(a, 3.0))
        assert {x for x in fake_cupy.log if x != "get"} == {"kernel on current"} or not fake_cupy.is_installed_as(cp)
    assert f.on("cuda").stats.verified and f.on("cuda").stats.fallbacks == 0


def test_arguments_are_written_in_place(cp: Any) -> None:
    def written(a: Any, b: Any) -> Any:
        a[1:-1] += b[2:] * 2
        return a, a[3:7, ::2], b.T

    f = hjit.pipeline(written, target="cuda")
    for _ in range(2):
        a, b = cp.asarray(IMAGE), cp.asarray(IMAGE)
        expected = written(IMAGE.copy(), IMAGE)
        got = f(a, b)
        assert got[0] is a and got[1].data.ptr == a.data.ptr + 3 * a.strides[0]
        same(got, expected)
    host = IMAGE.copy()
    got = f(host, IMAGE)
    assert got[0] is host and np.shares_memory(got[1], host) and np.shares_memory(got[2], IMAGE)
    np.testing.assert_array_equal(host, expected[0])
    np.testing.assert_array_equal(got[1], expected[1])
    assert f.stats.fallbacks == 0


def test_overlapping_arguments_run_by_cupy(cp: Any) -> None:
    def written(a: Any, b: Any) -> Any:
        a[1:] = b[:-1]
        return a.sum()

    f = hjit.pipeline(written, target="cuda", verify="off")
    a = cp.asarray(IMAGE)
    f(a, a[:])
    assert f.stats.fallbacks == 1
    host, a = IMAGE.copy(), cp.asarray(IMAGE)
    f(a, a)
    written(host, host)
    np.testing.assert_array_equal(a.get(), host)
    assert f.stats.fallbacks == 1  # it is known to be one array


def test_numpy_arrays_are_transferred(cp: Any) -> None:
    f = hjit.pipeline(blurred, target="cuda")
    for a in (IMAGE, IMAGE[::-1, ::2], IMAGE[::7, ::9], np.asfortranarray(IMAGE), np.broadcast_to(IMAGE[0], (40, 50))):
        for _ in range(2):
            fake_cupy.log.clear()
            b, total = f(a, 2.0)
            assert type(b) is np.ndarray and type(total) is np.float32
            np.testing.assert_array_equal(b, blurred(a, 2.0)[0])
        if fake_cupy.is_installed_as(cp):
            (up, *_), (down, *_) = ([x for x in fake_cupy.log if word in x] for word in ("upload", "download"))
            assert up.partition(" on ")[2] != down.partition(" on ")[2] != "current"
    assert f.stats.fallbacks == 0


def test_what_was_uploaded_is_there_for_every_stream(cp: Any) -> None:
    for a in (IMAGE, IMAGE[::7, ::9]):  # as it is, and packed, without its gaps
        there = on_cupy.current_device().own(a)
        with cp.cuda.Stream(non_blocking=True):
            np.testing.assert_array_equal(there.get(), a)


def test_large_arrays_are_transferred_in_strips(cp: Any) -> None:
    a = np.random.default_rng(1).integers(0, 255, (3000, 3500), np.uint8)
    f = hjit.pipeline(lambda a: a[::-1] + np.uint8(3), target="cuda", verify="off")
    fake_cupy.log.clear()
    np.testing.assert_array_equal(f(a), a[::-1] + np.uint8(3))
    if fake_cupy.is_installed_as(cp):
        assert sum("upload" in x for x in fake_cupy.log) == sum("download" in x for x in fake_cupy.log) == 3


def test_mixed_arrays_are_refused(cp: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        hjit.pipeline(lambda a, b: a + b)(cp.asarray(IMAGE), IMAGE)


def test_arrays_on_several_devices_are_refused(cp: Any) -> None:
    if not fake_cupy.is_installed_as(cp):
        pytest.skip("there may be one device")
    a, b = cp.asarray(IMAGE), cp.asarray(IMAGE)
    b.data.device_id = 1
    f = hjit.pipeline(lambda a, b: a + b)
    with pytest.raises(ValueError, match=r"Array device must be same.*devices \[0, 1\]"):
        f(a, b)
    same(f(a, cp.asarray(IMAGE)), IMAGE + IMAGE)


def test_decisions_and_extern_calls(cp: Any) -> None:
    def decided(a: Any) -> Any:
        b = a / a.max() if a.max() > 2 else a * 3
        return np.linalg.pinv(b[:, :40]) + b[:, :40]

    f = hjit.pipeline(decided, target="cuda")
    for a in (IMAGE, IMAGE * 5, IMAGE):
        np.testing.assert_allclose(f(cp.asarray(a)).get(), decided(a), rtol=1e-3)
        np.testing.assert_allclose(f(a), decided(a), rtol=1e-3)
    assert f.stats.fallbacks == 0 and f.stats.verified
    assert "numpy.linalg.pinv as it is, on the host" in f.explain(cp.asarray(IMAGE))


def test_indices_out_of_bounds_raise(cp: Any) -> None:
    def gathered(a: Any, i: Any) -> Any:
        return a[i]

    f = hjit.pipeline(gathered, target="cuda", verify="off")
    i = np.array([1, 2, 39])
    same(f(cp.asarray(IMAGE), cp.asarray(i)), IMAGE[i])
    for bad in (i + 1, -i - 2):
        with pytest.raises(IndexError):
            f(cp.asarray(IMAGE), cp.asarray(bad))
        with pytest.raises(IndexError):
            f(IMAGE, bad)


def test_code_written_with_cupy(cp: Any) -> None:
    scope = {
        "cp": cp,
        "exp": cp.exp,
        "ndimage": importlib.import_module("cupyx.scipy.ndimage"),
        "table": cp.arange(9.0),
    }
    exec(
        "def sharpened(a):\n"
        "    import cupyx.scipy.ndimage as again\n"
        "    xp = cp.get_array_module(a)\n"
        "    b = ndimage.uniform_filter(a, 3) + again.correlate1d(a, xp.asarray([1.0, 2.0, 1.0]))\n"
        "    return helped(cp.where(b > 0.5, exp(b), xp.sqrt(cp.maximum(b, 0))), isinstance(a, cp.ndarray))\n"
        "def helped(b, flag):\n"
        "    return b.astype(cp.float32) * flag + table[3]\n",
        scope,
    )
    f = hjit.pipeline(scope["sharpened"])
    from scipy import ndimage

    b = ndimage.uniform_filter(IMAGE, 3) + ndimage.correlate1d(IMAGE, [1.0, 2.0, 1.0])
    expected = np.where(b > 0.5, np.exp(b), np.sqrt(np.maximum(b, 0))).astype(np.float32) + np.float64(3.0)
    for _ in range(2):
        same(f(cp.asarray(IMAGE)), expected)
    cuda = f.on("cuda")
    assert cuda.stats.verified and cuda.stats.fallbacks == 0 and cuda.stats.traces == 1


class Foreign:
    """An array of another package, on the device."""

    def __init__(self, a: Any) -> None:
        self.a, self.nbytes, self.device = a, a.nbytes, "gpu"

    @property
    def __cuda_array_interface__(self) -> Any:
        return {**self.a.__cuda_array_interface__, "strides": None}


def test_arrays_of_other_packages_are_taken(cp: Any) -> None:
    f = hjit.pipeline(blurred)
    a = cp.asarray(IMAGE)
    for _ in range(2):
        same(f(Foreign(a), 2.0), blurred(IMAGE, 2.0))
    assert f.on("cuda").stats.traces == 1


def test_containers_constants_and_numbers(cp: Any) -> None:
    def several(images: Any, k: Any) -> Any:
        table = np.arange(2000.0)
        return {"a": images[0] * k, "table": table, "b": (images[1] + table[:50], k + 1, float(images[0].max()))}

    f = hjit.pipeline(several, target="cuda")
    for k in (2, 3):
        got, expected = f([cp.asarray(IMAGE), cp.asarray(-IMAGE)], k), several([IMAGE, -IMAGE], k)
        same(got["a"], expected["a"])
        same(got["table"], expected["table"])
        same(got["b"][0], expected["b"][0])
        assert got["b"][1:] == expected["b"][1:]
    assert f.stats.fallbacks == 0


def test_wrong_kernels_are_found(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = on_cupy.CuPy.compile
    monkeypatch.setattr(
        on_cupy.CuPy, "compile", lambda self, text: real(self, re.sub(r"\(t_(\d+) \+ t_", r"(t_\1 - t_", text))
    )
    f = hjit.pipeline(lambda a: a[1:] + a[:-1], target="cuda", cache="off")
    with pytest.warns(hjit.HjitWarning, match="differs from NumPy's"):
        same(f(cp.asarray(IMAGE)), IMAGE[1:] + IMAGE[:-1])
    assert f.stats.verified is False


def test_a_blank_first_call_that_raises_inside_is_no_path_for_others(cp: Any) -> None:
    def solved(a: Any, b: Any) -> Any:
        try:
            return np.linalg.solve(a, b)
        except np.linalg.LinAlgError:
            return np.full(b.shape, np.nan)

    f = hjit.pipeline(solved, target="cuda")
    regular, side = np.random.default_rng(0).random((6, 6)) + 4 * np.eye(6), np.arange(6.0)
    for a in (np.zeros((6, 6)), regular, np.zeros((6, 6)), regular):
        same(f(cp.asarray(a), cp.asarray(side)), solved(a, side))
    assert f.stats.fallbacks == 0 and f.stats.verified


def test_large_products_are_cublas_s(cp: Any) -> None:
    def product(a: Any, b: Any) -> Any:
        return (a * 2) @ b.T[:, :30] + 1, a @ b.T

    f = hjit.pipeline(product, target="cuda", blas=True)
    for _ in range(2):
        same(f(cp.asarray(IMAGE), cp.asarray(IMAGE)), product(IMAGE, IMAGE))
        for got, expected in zip(f(IMAGE, IMAGE), product(IMAGE, IMAGE), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert f.stats.fallbacks == 0 and "by cuBLAS" in f.explain(cp.asarray(IMAGE), cp.asarray(IMAGE))


def test_products_run_on_the_host_where_cupy_finds_no_cublas(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("no libcublas.so.12")

    monkeypatch.setattr(cp, "matmul", missing)
    f = hjit.pipeline(lambda a, b: a @ b.T + 1, target="cuda", blas=True)
    same(f(cp.asarray(IMAGE), cp.asarray(IMAGE)), IMAGE @ IMAGE.T + 1)
    assert f.stats.fallbacks == 0


class Tensor:
    """An array of a package that has DLPack only, of an earlier version of it."""

    def __init__(self, a: Any) -> None:
        self.a, self.shape, self.dtype, self.strides, self.nbytes = a, a.shape, a.dtype, a.strides, a.nbytes
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> Any:
        self.streams.append(stream)
        return self.a.__dlpack__(stream=stream)


class Either(Tensor):
    """An array of a package that has both interfaces, the other of which says nothing of streams."""

    @property
    def __cuda_array_interface__(self) -> Any:
        return {**self.a.__cuda_array_interface__, "strides": None, "stream": None, "version": 2}


@pytest.mark.parametrize("kind", [Tensor, Either])
def test_dlpack(kind: Any, cp: Any) -> None:
    f = hjit.pipeline(blurred)
    for _ in range(2):
        given = kind(cp.asarray(IMAGE))
        same(f(given, 2.0), blurred(IMAGE, 2.0))
        assert given.streams == [1]  # whoever made it is told which stream is to wait
    assert f.on("cuda").stats.traces == 1


def test_what_dlpack_refuses_is_taken_the_other_way(cp: Any) -> None:
    class Refusing(Either):
        def __dlpack__(self, *, stream: int) -> Any:
            raise BufferError("no such dtype")

    same(hjit.pipeline(blurred)(Refusing(cp.asarray(IMAGE)), 2.0), blurred(IMAGE, 2.0))


def test_results_into_arrays_of_the_caller(cp: Any) -> None:
    f = hjit.pipeline(blurred)
    out = cp.empty((38, 50), np.float32), cp.empty((), np.float32)
    for _ in range(2):
        assert f.into(out, cp.asarray(IMAGE), 2.0) is out
        same(out, blurred(IMAGE, 2.0))
    host = np.empty((38, 50), np.float32), np.empty((), np.float32)
    f.on("cuda").into(host, IMAGE, 2.0)
    np.testing.assert_array_equal(host[0], blurred(IMAGE, 2.0)[0])
    with pytest.raises(ValueError, match="is needed"):
        f.into((out[1], out[0]), cp.asarray(IMAGE), 2.0)


def test_what_numpy_refuses_raises_its_exception(cp: Any) -> None:
    def powers(a: Any, b: Any) -> Any:
        c = a[0] + 0
        a[0] = 5
        return c**b

    f = hjit.pipeline(powers, target="cuda", verify="off")
    numbers = np.arange(60).reshape(2, 30)
    for bad in (False, True, False, True):
        a, b = cp.asarray(numbers), cp.asarray(np.where(bad, -1, numbers[0] % 3))
        if bad:
            with pytest.raises(ValueError, match="negative integer powers"):
                f(a, b)
            assert a.get()[0, 1] == 5  # as NumPy leaves it
        else:
            same(f(a, b), numbers[0] ** (numbers[0] % 3))
    assert f.stats.fallbacks == 2
    g = hjit.pipeline(lambda a: a.reshape(7, 7), target="cuda")
    with pytest.raises(ValueError, match="cannot reshape array"):
        g(cp.asarray(IMAGE))


def test_effects_happen_once_a_call(cp: Any, caplog: pytest.LogCaptureFixture) -> None:
    stream = np.random.default_rng(3)

    def noisy(a: Any) -> Any:
        LOG.warning("called")
        a += stream.normal(size=50)
        return a, a[3:], a.sum()

    f = hjit.pipeline(noisy, target="cuda")
    a, expected = cp.asarray(np.float64(IMAGE)), np.float64(IMAGE)
    for k in range(3):
        state = stream.bit_generator.state
        got = f(a)
        after, stream.bit_generator.state = stream.bit_generator.state, state
        assert len(caplog.records) == k + 1
        with caplog.at_level("ERROR"):
            same(got, noisy(expected))
        assert stream.bit_generator.state == after
        assert got[0] is a and got[1].data.ptr == a.data.ptr + 3 * a.strides[0]


def test_arrays_of_the_gpu_are_not_read_by_kernels_of_the_cpu(cp: Any) -> None:
    table = cp.asarray(IMAGE)
    f = hjit.pipeline(lambda a: a + table)
    with pytest.raises(hjit.TraceError, match=r'an array on the GPU.*use target="cuda"'):
        f(IMAGE)
    same(f(cp.asarray(IMAGE)), IMAGE + IMAGE)
    np.testing.assert_array_equal(f.on("cuda")(IMAGE), IMAGE + IMAGE)


def test_warm_calls_of_the_plain_pipeline_go_the_hot_path(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = hjit.pipeline(blurred)
    a = cp.asarray(IMAGE)
    for _ in range(2):
        f(a, 2.0)
    there, taken = f.on("cuda"), []
    monkeypatch.setattr(type(f), "_call", lambda *args: taken.append(args))
    calls = f.stats.calls, there.stats.calls
    same(f(a, 3.0), blurred(IMAGE, 3.0))
    assert not taken and (f.stats.calls, there.stats.calls) == (calls[0] + 1, calls[1] + 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.uint8, np.bool_])
def test_numbers_are_converted_as_numpy_does(dtype: Any) -> None:
    convert = bound.converter(np.dtype(dtype))
    whole: list[Any] = [0, 1, 7, True, np.int64(3), np.uint8(200), 2**40]
    numbers: list[Any] = [0.0, -0.0, 1.5, 0.1, 1e-320, 1e39, -1e300, 1 / 3, float("inf"), float("nan"), np.float32(0.1)]
    for x in [*whole, *(numbers if np.dtype(dtype).kind == "f" else [])]:
        try:
            with np.errstate(all="ignore"):
                expected = np.array(x, dtype).tobytes()
        except OverflowError:
            with pytest.raises(OverflowError):
                convert(x)
            continue
        assert convert(x).tobytes() == expected, x


class Holder:
    """An object with an array."""

    def __init__(self, table: Any) -> None:
        self.table, self.tables = table, [table]


def test_arrays_of_objects(cp: Any) -> None:
    held = Holder(cp.asarray(IMAGE))
    f = hjit.pipeline(lambda a: a * held.table + held.tables[0])
    g = hjit.pipeline(lambda a, h: a * h.table)
    for _ in range(2):
        same(f(cp.asarray(IMAGE)), IMAGE * IMAGE + IMAGE)
        same(g(cp.asarray(IMAGE), held), IMAGE * IMAGE)
    held.table = cp.asarray(IMAGE + 1)
    same(f(cp.asarray(IMAGE)), IMAGE * (IMAGE + 1) + IMAGE)
    assert f.on("cuda").stats.fallbacks == 0
