"""Kernels of the target cuda are made once: for all sizes, for all functions alike, and for other processes."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache
from hjit.kernels.cuda.runtime import kernels, lowered
from hjit.kernels.cuda.runtime.device import OpenCL
from hjit.kernels.runtime import sizes
from tests.kernels.cuda.launching import needs_device, needs_opencl

pytestmark = [
    needs_device,
    pytest.mark.usefixtures("on_device"),
]
IMAGE = np.random.default_rng(3).random((40, 50), np.float32)


def spread(img: Any, k: Any, n: Any) -> Any:
    rows = img.sum(axis=1, keepdims=True)
    return (img * k - rows)[::2] + n, img.argmax(axis=0)


def check(f: Any, *args: Any) -> None:
    for got, expected in zip(f(*args), f.py_func(*args), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        assert got.dtype == expected.dtype


def test_sizes_and_scalars_are_given_at_the_launch() -> None:
    f = hjit.pipeline(spread, target="cuda")
    for a, k, n in ((IMAGE, 2.0, 1), (IMAGE[3:, 7:], 3.0, 2), (IMAGE.T[::-1], 2.0, 1), (np.float16(IMAGE), 2.0, 0)):
        check(f, a, k, n)
    assert f.stats.traces == 4 and f.stats.compilations == 3  # strides of 1 are constants, and dtypes
    g = hjit.pipeline(lambda other, by, plus: spread(other, by, plus), target="cuda")
    check(g, IMAGE, 2.0, 1)
    assert g.stats.compilations == 0


def test_other_processes_neither_lower_nor_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check(hjit.pipeline(spread, target="cuda"), IMAGE, 2.0, 1)
    kernels.after_fork()
    with monkeypatch.context() as m:
        m.setattr(lowered, "lowered", None)
        f = hjit.pipeline(spread, target="cuda")
        check(f, IMAGE[:-3], 2.0, 1)
    assert (f.stats.cache_hits, f.stats.compilations) == (1, 0)
    for damage in (lambda data: data[: len(data) // 2], lambda data: data.replace(b"launches", b"lunches")):
        for entry in tmp_path.glob("*.code"):
            header, _, payload = entry.read_bytes().partition(b"\n")
            entry.write_bytes(header + b"\n" + damage(payload))
        kernels.after_fork()
        f = hjit.pipeline(spread, target="cuda")
        check(f, IMAGE, 2.0, 1)
        assert (f.stats.cache_hits, f.stats.compilations) == (0, 1)


def test_entries_that_are_no_launches_are_made_anew(tmp_path: Path) -> None:
    check(hjit.pipeline(spread, target="cuda"), IMAGE, 2.0, 1)
    (entry,) = tmp_path.glob("*.code")
    for payload in (b"{}\n", b"[1]\n", b'{"text": "", "launches": [1], "scratch": [], "log": ""}\n', b"\xff\n"):
        cache.store(entry.stem, payload, {}, tmp_path, "rw")
        kernels.after_fork()
        f = hjit.pipeline(spread, target="cuda")
        check(f, IMAGE, 2.0, 1)
        assert (f.stats.cache_hits, f.stats.compilations) == (0, 1)


def test_names_hold_all_that_code_depends_on() -> None:
    f = hjit.pipeline(spread, target="cuda")
    (step,) = f.variant_of((IMAGE, 2.0, 1), {}, f._state.options.of(())).segments
    options = f._state.options.of(())
    found = {
        kernels.kernel_name(step.scheduled, replace(options, fast_math=fast), bits, key)
        for fast in (False, True)
        for bits in (32, 64)
        for key in ("sm_80 NVRTC 12.9", "sm_90 NVRTC 12.9", "sm_80 NVRTC 13.0")
    }
    assert len(found) == 12


def test_large_arrays_have_indices_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hjit.pipeline(spread, target="cuda")
    check(f, IMAGE, 2.0, 1)
    monkeypatch.setattr(sizes, "SMALL_ARRAY", 1000)
    g = hjit.pipeline(spread, target="cuda")
    check(g, IMAGE, 2.0, 1)
    assert g.stats.compilations == 1 and g.variant_of((IMAGE, 2.0, 1), {}, g._state.options.of(())).bounds[0].bits == 64


def test_few_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KEPT", 2)
    for k in range(4):
        hjit.pipeline(lambda a, k=k: a[k:] + 1, target="cuda", verify="off")(IMAGE)
    assert len(kernels._kernels) == 2


def test_a_forked_child_unloads_nothing_of_its_parent() -> None:
    class Loaded:
        pass

    made: Any = Loaded()
    kernels._kernels["some"] = made
    there = weakref.ref(made)
    del made
    kernels.after_fork()
    assert not kernels._kernels and there() is not None


def test_memory_of_stages_is_shared() -> None:
    def long(a: Any) -> Any:
        for axis in (0, 1, 0, 1, 0):
            a = np.cumsum(a, axis=axis)[::-1]
        return a

    f = hjit.pipeline(long, target="cuda")
    np.testing.assert_allclose(f(IMAGE), long(IMAGE), rtol=1e-4)
    (kernel,) = f.variant_of((IMAGE,), {}, f._state.options.of(())).bounds
    assert 0 < f.stats.scratch_bytes < sum(n * dtype.itemsize for _, n, dtype in kernel._memory.parts)


@needs_opencl
def test_arguments_are_rows_of_their_memory() -> None:
    d = OpenCL()
    for a in (IMAGE, IMAGE[::-1], IMAGE[3:, ::-2], IMAGE.T, np.broadcast_to(IMAGE[:, :1], IMAGE.shape), IMAGE[:0]):
        row, at = d.argument(a)
        assert row.flags.c_contiguous
        if a.size:
            assert row.reshape(-1)[at] == a[(0,) * a.ndim] and np.shares_memory(row, a)
