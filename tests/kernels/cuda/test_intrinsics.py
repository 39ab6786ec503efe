"""Threads, shared memory, wide accesses, atomics, shuffles and copies of the prelude, run as `launching` says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda import intrinsics, prelude
from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.ctext import F16, F32, F64, SIGNED, UNSIGNED, suffix
from tests.kernels.cuda import launching
from tests.kernels.cuda.launching import needs_device, needs_opencl

pytestmark = needs_device


def launch(body: str, grid: tuple[int, ...], block: tuple[int, ...], *args: Any, shared_bytes: int = 0) -> None:
    launching.compiled(body).launch("run", grid, block, args, shared_bytes)


def test_indices_of_threads() -> None:
    body = """HJ_KERNEL(run, 4, 3, 2)(HJ_GLOBAL i32 *out) {
    const i32 block = (HJ_BLOCK_Z * HJ_BLOCKS_Y + HJ_BLOCK_Y) * HJ_BLOCKS_X + HJ_BLOCK_X;
    const i32 threads = HJ_THREADS_X * HJ_THREADS_Y * HJ_THREADS_Z;
    out[block * threads + HJ_THREAD] = (HJ_THREAD_Z * 100 + HJ_THREAD_Y * 10 + HJ_THREAD_X) * 1000 + block;
}"""
    out = np.zeros((2, 3, 5, 2, 3, 4), np.int32)
    launch(body, (5, 3, 2), (4, 3, 2), out)
    z, y, x = np.ogrid[:2, :3, :4]
    expected = (z * 100 + y * 10 + x) * 1000 + np.arange(30).reshape(2, 3, 5, 1, 1, 1)
    assert (out == expected).all()


def test_shared_memory_static_and_dynamic() -> None:
    static = """HJ_KERNEL(run, 256, 1, 1)(HJ_GLOBAL const f32 *HJ_RESTRICT in, HJ_GLOBAL f32 *HJ_RESTRICT out) {
    HJ_SHARED f32 tile[256];
    const i32 base = HJ_BLOCK_X * 256;
    tile[HJ_THREAD] = in[base + HJ_THREAD];
    HJ_BARRIER();
    out[base + HJ_THREAD] = tile[255 - HJ_THREAD];
}"""
    dynamic = static.replace("*HJ_RESTRICT out)", "*HJ_RESTRICT out HJ_DYNAMIC_SHARED_PARAMETER)").replace(
        "HJ_SHARED f32 tile[256];",
        "HJ_DYNAMIC_SHARED HJ_SHARED_POINTER f32 *tile = (HJ_SHARED_POINTER f32 *)hj_dynamic_shared;",
    )
    x = np.random.default_rng(0).random(1024).astype(np.float32)
    for body, size in ((static, 0), (dynamic, 1024)):
        out = np.zeros_like(x)
        launch(body, (4, 1, 1), (256, 1, 1), x, out, shared_bytes=size)
        assert (out.reshape(4, 256) == x.reshape(4, 256)[:, ::-1]).all()


VECTORS = [(t, n) for t in intrinsics.ELEMENTS for n in (4, 8, 16) if n > t.itemsize]


def reverse_wide(dtype: np.dtype[Any], size: int) -> str:
    """Elements in the opposite order, through shared memory, a vector at once."""
    lanes, t, v = size // dtype.itemsize, suffix(dtype), intrinsics.lanes_type(dtype, size)
    return f"""HJ_KERNEL(run_{v}, 32, 1, 1)(HJ_GLOBAL const {t} *in, HJ_GLOBAL {t} *out) {{
    HJ_SHARED {t} tile[{32 * lanes}] HJ_ALIGNED;
    hj_store_shared_{v}(tile + HJ_THREAD * {lanes}, hj_load_{v}(in + HJ_THREAD * {lanes}));
    HJ_BARRIER();
    {v} a = hj_load_shared_{v}(tile + (31 - HJ_THREAD) * {lanes}), b;
    for (i32 k = 0; k < {lanes}; k++) b.lane[k] = a.lane[{lanes - 1} - k];
    hj_store_{v}(out + HJ_THREAD * {lanes}, b);
}}"""


def test_wide_accesses() -> None:
    program = launching.compiled("\n".join(reverse_wide(*v) for v in VECTORS))
    for dtype, size in VECTORS:
        raw = np.random.default_rng(0).integers(0, 256, 32 * size, np.uint8)
        out = np.zeros_like(raw)
        program.launch(f"run_{intrinsics.lanes_type(dtype, size)}", (1, 1, 1), (32, 1, 1), [raw, out])
        assert out.tobytes() == raw.view(f"V{dtype.itemsize}")[::-1].tobytes(), (dtype, size)


def test_rows_at_any_address() -> None:
    """Vectors with an element between them: few are aligned."""
    some, bodies = VECTORS[::5], []
    for dtype, size in some:
        lanes, t, v = size // dtype.itemsize, suffix(dtype), intrinsics.lanes_type(dtype, size)
        bodies.append(f"""HJ_KERNEL(run_{v}, 32, 1, 1)(HJ_GLOBAL const {t} *in, HJ_GLOBAL {t} *out) {{
    hj_store_row_{v}(out + HJ_THREAD * {lanes + 1}, hj_load_row_{v}(in + HJ_THREAD * {lanes + 1}));
}}""")
    program = launching.compiled("\n".join(bodies))
    for dtype, size in some:
        lanes = size // dtype.itemsize
        raw = np.random.default_rng(0).integers(1, 256, 32 * (lanes + 1) * dtype.itemsize, np.uint8)
        out = np.zeros_like(raw)
        program.launch(f"run_{intrinsics.lanes_type(dtype, size)}", (1, 1, 1), (32, 1, 1), [raw, out])
        expected = raw.reshape(32, lanes + 1, dtype.itemsize).copy()
        expected[:, lanes] = 0
        assert out.tobytes() == expected.tobytes(), (dtype, size)


REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", intrinsics.WORDS, ids=str)
def test_atomics(dtype: np.dtype[Any]) -> None:
    """All operations on both memories at once, into 7 bins, of 8 blocks."""
    t = suffix(dtype)
    lines = []
    for k, op in enumerate(intrinsics.ATOMICS):
        lines.append(f"hj_atomic_{op}_shared_{t}(bins + {7 * k} + v % 7, x);")
        lines.append(f"hj_atomic_{op}_global_{t}(direct + {7 * k} + v % 7, x);")
    merge = "\n".join(
        f"if (HJ_THREAD < 7) hj_atomic_{op}_global_{t}(out + {7 * k} + HJ_THREAD, bins[{7 * k} + HJ_THREAD]);"
        for k, op in enumerate(intrinsics.ATOMICS)
    )
    body = f"""HJ_KERNEL(run, 128, 1, 1)(HJ_GLOBAL const {t} *in, HJ_GLOBAL {t} *out, HJ_GLOBAL {t} *direct, HJ_GLOBAL const {t} *first) {{
    HJ_SHARED {t} bins[42];
    if (HJ_THREAD < 42) bins[HJ_THREAD] = first[HJ_THREAD];
    HJ_BARRIER();
    const i32 v = HJ_BLOCK_X * 128 + HJ_THREAD;
    const {t} x = in[v];
    {" ".join(lines)}
    HJ_BARRIER();
    {merge}
}}"""
    x = np.random.default_rng(1).integers(0, 256, 1024 * dtype.itemsize, np.uint8).view(dtype)
    info = np.iinfo(dtype)
    neutral = [0, info.max, info.min, -1 if info.min else info.max, 0, 0]
    first = np.repeat(np.array(neutral, dtype), 7)
    out, direct = first.copy(), first.copy()
    launch(body, (8, 1, 1), (128, 1, 1), x, out, direct, first)
    expected = np.concatenate([[ufunc.reduce(x[b::7]) for b in range(7)] for ufunc in REDUCE.values()]).astype(dtype)
    assert out.tolist() == expected.tolist()
    assert direct.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", intrinsics.WORDS, ids=str)
def test_compare_and_swap(dtype: np.dtype[Any]) -> None:
    """An operation that there is no atomic of: a product."""
    t = suffix(dtype)
    body = f"""HJ_KERNEL(run, 64, 1, 1)(HJ_GLOBAL {t} *out) {{
    HJ_SHARED {t} here[1];
    if (HJ_THREAD == 0) here[0] = 1;
    HJ_BARRIER();
    for ({t} old = here[0], seen; ; old = seen)
        if ((seen = hj_atomic_cas_shared_{t}(here, old, old * 3)) == old) break;
    for ({t} old = out[0], seen; ; old = seen)
        if ((seen = hj_atomic_cas_global_{t}(out, old, old * 3)) == old) break;
    HJ_BARRIER();
    if (HJ_THREAD == 0) out[1] = here[0];
}}"""
    out = np.array([1, 0], dtype)
    launch(body, (1, 1, 1), (64, 1, 1), out)
    assert out.tolist() == np.array([pow(3, 64, 1 << 64)] * 2, np.uint64).astype(dtype).tolist()


def test_atomic_sums_of_floats() -> None:
    body = """HJ_KERNEL(run, 64, 1, 1)(HJ_GLOBAL f32 *a, HJ_GLOBAL f64 *b) {
    HJ_SHARED f32 c[1];
    HJ_SHARED f64 d[1];
    if (HJ_THREAD == 0) c[0] = 0, d[0] = 0;
    HJ_BARRIER();
    hj_atomic_add_global_f32(a, (f32)(HJ_THREAD + 1));
    hj_atomic_add_global_f64(b, (f64)(HJ_THREAD + 1));
    hj_atomic_add_shared_f32(c, 0.5f);
    hj_atomic_add_shared_f64(d, 0.25);
    HJ_BARRIER();
    if (HJ_THREAD == 0) a[1] = c[0], b[1] = d[0];
}"""
    a, b = np.zeros(2, np.float32), np.zeros(2)
    launch(body, (1, 1, 1), (64, 1, 1), a, b)
    assert a.tolist() == [2080, 32] and b.tolist() == [2080, 16]


def shuffled(dtype: np.dtype[Any]) -> str:
    """All shuffles of a block of two warps."""
    t = suffix(dtype)
    lines = [
        f"out[{64 * k} + HJ_THREAD] = hj_shuffle_{how}_{t}(x, {3 + k});" for k, how in enumerate(intrinsics.SHUFFLES)
    ]
    return f"""HJ_KERNEL(run_{t}, 32, 2, 1)(HJ_GLOBAL const {t} *in, HJ_GLOBAL {t} *out) {{
    HJ_SHUFFLES(64)
    const {t} x = in[HJ_THREAD];
    {" ".join(lines)}
}}"""


def test_shuffles() -> None:
    dtypes = (SIGNED[0], F16, UNSIGNED[2], SIGNED[3], F32, F64)
    program = launching.compiled("\n".join(map(shuffled, dtypes)))
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    sources = (np.where(lane < 29, lane + 3, lane), np.where(lane >= 4, lane - 4, lane), lane ^ 5, np.full(64, 6))
    for dtype in dtypes:
        x = np.random.default_rng(0).integers(0, 256, 64 * dtype.itemsize, np.uint8)
        out = np.zeros(4 * x.size, np.uint8)
        program.launch(f"run_{suffix(dtype)}", (1, 1, 1), (32, 2, 1), [x, out])
        elements = x.view(f"V{dtype.itemsize}")
        assert out.tobytes() == b"".join(elements[warp + s].tobytes() for s in sources), dtype


def test_asynchronous_copies() -> None:
    body = """HJ_KERNEL(run, 16, 1, 1)(HJ_GLOBAL const u32 *in, HJ_GLOBAL u32 *out) {
    HJ_SHARED uint4 tile[16];
    HJ_SHARED_POINTER u32 *words = (HJ_SHARED_POINTER u32 *)tile;
    hj_copy_async_16(tile + HJ_THREAD, in + 4 * HJ_THREAD);
    HJ_COPY_COMMIT();
    HJ_COPY_WAIT(0);
    HJ_BARRIER();
    for (i32 k = 0; k < 4; k++) out[4 * HJ_THREAD + k] = words[63 - 4 * HJ_THREAD - k];
}"""
    x = np.arange(64, dtype=np.uint32)
    out = np.zeros_like(x)
    launch(body, (1, 1, 1), (16, 1, 1), x, out)
    assert (out == x[::-1]).all()


@needs_opencl
def test_all_definitions_compile() -> None:
    names = "".join(f"// {name}\n" for name in prelude.DEFINITIONS["opencl"])
    launching.compiled(f"{names}HJ_KERNEL(nothing, 32, 1, 1)() {{}}")


# -- launching


def test_programs_are_compiled_once() -> None:
    body = "HJ_KERNEL(run, 1, 1, 1)(HJ_GLOBAL i32 *out, i32 n) { out[0] = n; }"
    assert launching.compiled(body) is launching.compiled(body)


@needs_opencl
def test_arrays_are_used_where_they_are() -> None:
    """Part of an array, at an odd place; nothing around it is touched."""
    body = "HJ_KERNEL(run, 16, 1, 1)(HJ_GLOBAL u8 *out, u8 by) { out[HJ_THREAD] += by; }"
    memory = np.zeros(32, np.uint8)
    launch(body, (1, 1, 1), (16, 1, 1), memory[5:21], np.uint8(7))
    assert memory.tolist() == [0] * 5 + [7] * 16 + [0] * 11
    with pytest.raises(ValueError, match="contiguous"):
        launch(body, (1, 1, 1), (16, 1, 1), memory[::2], np.uint8(7))


@needs_opencl
def test_arrays_that_are_not_writeable() -> None:
    body = "HJ_KERNEL(run, 4, 1, 1)(HJ_GLOBAL const u8 *in, HJ_GLOBAL u8 *out) { out[HJ_THREAD] = in[HJ_THREAD]; }"
    out = np.zeros(4, np.uint8)
    launch(body, (1, 1, 1), (4, 1, 1), np.frombuffer(b"abcd", np.uint8), out)
    assert out.tobytes() == b"abcd"


def test_empty_arrays() -> None:
    body = "HJ_KERNEL(run, 1, 1, 1)(HJ_GLOBAL const f32 *in, HJ_GLOBAL i32 *out) { out[0] = 5; }"
    out = np.zeros(1, np.int32)
    launch(body, (1, 1, 1), (1, 1, 1), np.zeros(0, np.float32), out)
    assert out[0] == 5


@needs_opencl
def test_refused_kernel() -> None:
    with pytest.raises(CompileError, match=r"(?s)missing.*\d+ HJ_KERNEL\(bad"):
        launching.compiled("HJ_KERNEL(bad, 1, 1, 1)(i32 n) { missing(n) }")


@needs_opencl
def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    opencl.device.cache_clear()
    try:
        assert not opencl.is_available()
        with pytest.raises(DeviceError, match="pyopencl and pocl-binary-distribution"):
            opencl.device()
    finally:
        opencl.device.cache_clear()
        opencl.compiled.cache_clear()
