"""Every operation compiled by NVRTC to machine code, for the compute capabilities that hjit runs on; no GPU is needed."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda import intrinsics, prelude
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.compilers.machine_code import Compiled, with_blocks, without_spills
from hjit.kernels.cuda.ctext import Operand, constant
from hjit.kernels.cuda.operations import ufuncs
from hjit.trace.ops.elementwise.ufuncs import UFUNCS
from tests.kernels import test_vecmath as vectors
from tests.kernels.cuda.cases import Case, kernel_text
from tests.kernels.cuda.test_intrinsics import VECTORS, reverse_wide, shuffled

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="the package nvidia-cuda-nvrtc is not installed")
CAPABILITIES = (75, 80, 90, 100)
F4, F8 = np.dtype("f4"), np.dtype("f8")


def kernels() -> str:
    """A kernel for each ufunc, of all its loops, one for all casts, and one for constant exponents."""
    texts = []
    for name in sorted(UFUNCS):
        mine = [
            Case(ins, out, lambda args, out=out, name=name: ufuncs.apply(name, args, out))  # type: ignore[misc]
            for ins, out in vectors._loops(name)
        ]
        texts.append(kernel_text(mine).replace("(run,", f"(op_{name},"))
    for a in vectors.ALL:
        casts = [Case((a,), b, lambda args, b=b: ufuncs.convert(args[0], b)) for b in vectors.ALL]  # type: ignore[misc]
        texts.append(kernel_text(casts).replace("(run,", f"(cast_{a.char if a.kind != 'b' else 'b_'},"))
    powers = [
        Case((t,), t, lambda args, t=t, e=e: ufuncs.apply("power", (args[0], constant(e, t)), t))  # type: ignore[misc]
        for t in (F4, F8)
        for e in (0.0, 1.0, -1.0, 2.0, 3.0, 4.0, 0.5, -0.5)
    ]
    texts.append(kernel_text(powers).replace("(run,", "(powers,"))
    return "\n".join(texts)


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_all_operations_compile(capability: int) -> None:
    done = nvrtc.compiled(kernels(), capability)
    assert {f"op_{name}" for name in UFUNCS} <= done.resources.keys()
    assert done.cubin.startswith(b"\x7fELF")
    assert "warning" not in done.log, done.log
    assert all(0 < r.registers <= 255 for r in done.resources.values())


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_all_definitions_compile(capability: int) -> None:
    """Those that no ufunc needs, too: wide accesses, atomics, shuffles, asynchronous copies."""
    names = "".join(f"// {name}\n" for name in prelude.DEFINITIONS["cuda"])
    nvrtc.compiled(f"{names}HJ_KERNEL(nothing, 32, 1, 1)() {{}}", capability)


def ptx(name: str, dtype: np.dtype) -> str:
    ufunc = getattr(np, name)
    case = Case((dtype,) * ufunc.nin, dtype, lambda args: ufuncs.apply(name, args, dtype))
    return nvrtc.compiled(kernel_text([case]), 90).ptx


def computes_doubles(text: str) -> bool:
    return re.search(r"^(?!\s*\.reg).*\.f64\b", text, re.MULTILINE) is not None


@needs_nvrtc
def test_floats_stay_floats() -> None:
    """The overloads of single precision are called: double costs 64 times as much on most devices."""
    for name in ("sqrt", "rint", "floor", "exp", "log", "power", "arctan2", "tanh", "copysign", "fmod", "remainder"):
        assert not computes_doubles(ptx(name, F4)), name
    assert computes_doubles(ptx("logaddexp", F4))


@needs_nvrtc
def test_exact_instructions() -> None:
    for name, instruction in {
        "true_divide": "div.rn",
        "sqrt": "sqrt.rn",
        "reciprocal": "rcp.rn",
        "rint": "cvt.rni",
        "add": "add",
        "multiply": "mul",
    }.items():
        for dtype in (F4, F8):
            text = ptx(name, dtype)
            assert f"{instruction}." in text, text
            assert "ftz" not in text and "approx" not in text, text


@needs_nvrtc
@pytest.mark.parametrize("source", [F4, F8], ids=str)
@pytest.mark.parametrize("target", ["i4", "i8"])
def test_casts_compare_with_both_ends(source: np.dtype, target: str) -> None:
    """What is out of range is found by comparing: CUDA's instruction saturates, where x86's gives what NumPy has."""
    t = np.dtype(target)
    text = nvrtc.compiled(kernel_text([Case((source,), t, lambda args: ufuncs.convert(args[0], t))]), 90).ptx
    top = 2.0 ** (8 * t.itemsize - 1)
    below = -top - 1 if (source, target) == (F8, "i4") else -top
    for end in (top, below):
        bits = int(source.type(end).view(f"u{source.itemsize}"))
        prefix = "0f" if source == F4 else "0d"
        assert f"{prefix}{bits:0{2 * source.itemsize}X}" in text, text


@needs_nvrtc
def test_no_contraction() -> None:
    for dtype in (F4, F8):

        def text(args: object, t: np.dtype = dtype) -> str:
            product = Operand(ufuncs.apply("multiply", args[:2], t), t)  # type: ignore[index]
            return ufuncs.apply("add", (product, args[2]), t)  # type: ignore[index]

        assert "fma" not in nvrtc.compiled(kernel_text([Case((dtype,) * 3, dtype, text)]), 90).ptx


@needs_nvrtc
def test_wide_accesses_are_one_instruction() -> None:
    """Vectors stay in registers: a union of lanes with constant indices is not stored anywhere."""
    text = nvrtc.compiled("\n".join(reverse_wide(*v) for v in VECTORS), 90).ptx
    assert text.count("ld.global.v4.u32") == sum(size == 16 for _, size in VECTORS)
    assert text.count("st.shared.v4.u32") == sum(size == 16 for _, size in VECTORS)
    assert ".local" not in text


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_shuffles_and_copies(capability: int) -> None:
    body = """HJ_KERNEL(copy, 32, 1, 1)(HJ_GLOBAL u32 *out HJ_DYNAMIC_SHARED_PARAMETER) {
    HJ_DYNAMIC_SHARED
    HJ_SHARED_POINTER u32 *words = (HJ_SHARED_POINTER u32 *)hj_dynamic_shared;
    hj_copy_async_16(words + 4 * HJ_THREAD, out + 4 * HJ_THREAD);
    HJ_COPY_COMMIT();
    HJ_COPY_WAIT(0);
    HJ_BARRIER();
    out[HJ_THREAD] = words[31 - HJ_THREAD];
}"""
    text = nvrtc.compiled("\n".join([*map(shuffled, intrinsics.ELEMENTS), body]), capability).ptx
    assert all(f"shfl.sync.{how}" in text for how in ("down", "up", "bfly", "idx"))
    assert ("cp.async.ca.shared.global" in text) == (capability >= 80)


@needs_nvrtc
def test_resources_of_a_kernel() -> None:
    body = """
HJ_KERNEL(first, 256, 1, 1)(HJ_GLOBAL f32 *p) { HJ_SHARED f32 t[256]; t[HJ_THREAD] = p[HJ_THREAD]; HJ_BARRIER(); p[HJ_THREAD] = t[255 - HJ_THREAD]; }
HJ_KERNEL(second, 1024, 1, 1)(HJ_GLOBAL f32 *p) { f32 a[256]; for (int k = 0; k < 256; k++) a[k] = p[k]; p[0] = a[(int)p[1]]; }"""
    found = nvrtc.compiled(body, 80).resources
    assert found["first"].shared == 1024 and found["first"].stack == 0
    assert found["second"].stack >= 1024 and found["second"].registers <= 64


def needing(registers: int, name: str = "f", threads: int = 256) -> str:
    """A kernel of which each thread has so many numbers at once."""
    values = "\n".join(f"    const f32 v{k} = in[{k} * n + i];" for k in range(registers))
    total = " + ".join(f"v{k} / v{registers - 1 - k}" for k in range(registers))
    return f"""HJ_KERNEL({name}, {threads}, 1, 1)(HJ_GLOBAL const f32 *in, HJ_GLOBAL f32 *out, i32 n) {{
    const i32 i = HJ_BLOCK_X * {threads} + HJ_THREAD_X;
{values}
    HJ_BARRIER();
    out[i] = {total};
}}
"""


@needs_nvrtc
def test_kernels_that_spill_are_compiled_with_room_for_more_registers() -> None:
    """Here the compiler is made to spill; by itself it does so where more threads fit on a multiprocessor then."""
    body = needing(60, "large") + needing(6, "small")
    tight = with_blocks(body, {"large": 8})
    compiled: list[str] = []

    def compile_once(text: str) -> Compiled:
        compiled.append(text)
        return nvrtc._compiled(tight if text == body else text, 80, ())

    assert compile_once(body).spilling() == ["large"]
    made = without_spills(compile_once, body)
    assert not made.spilling() and made.resources.keys() == {"large", "small"}
    assert not any("small" in text for text in compiled[2:-1])
    assert "HJ_KERNEL(small" in compiled[-1] and "HJ_KERNEL_OF(" in compiled[-1]


@needs_nvrtc
def test_what_spills_with_all_registers_is_kept_as_it_is() -> None:
    body = needing(100, threads=1024)
    texts: list[str] = []

    def compile_once(text: str) -> Compiled:
        texts.append(text)
        return nvrtc._compiled(text, 80, ())

    made = without_spills(compile_once, body)
    assert made.spilling() == ["f"]
    assert texts[0] == body and len(texts) == 2


@needs_nvrtc
def test_what_the_library_says() -> None:
    assert nvrtc.version() >= (12, 0)
    assert set(CAPABILITIES) <= set(nvrtc.capabilities())


@needs_nvrtc
def test_refused_kernel() -> None:
    with pytest.raises(
        CompileError, match=r"sm_80: hjit\.cu\(\d+\): error: identifier \"missing\" is undefined(.|\n)*HJ_KERNEL\(bad"
    ):
        nvrtc.compiled("HJ_KERNEL(bad, 32, 1, 1)(i32 n) { missing(n); }", 80)
    with pytest.raises(CompileError, match="sm_12345"):
        nvrtc.compiled("HJ_KERNEL(good, 32, 1, 1)(i32 n) {}", 12345)


@pytest.fixture
def no_library() -> Iterator[None]:
    """No NVRTC is known, nor is what the test finds afterwards."""
    caches = nvrtc._library.cache_clear, nvrtc._opened.cache_clear
    for clear in caches:
        clear()
    yield
    for clear in caches:
        clear()


@pytest.mark.usefixtures("no_library")
def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    with monkeypatch.context() as m:
        m.setattr(ctypes, "CDLL", missing)
        assert not nvrtc.is_available()
        with pytest.raises(DeviceError, match="nvidia-cuda-nvrtc"):
            nvrtc.compiled("HJ_KERNEL(good, 32, 1, 1)(i32 n) {}", 80)


class Library:
    """An NVRTC of a version."""

    def __init__(self, major: int, minor: int) -> None:
        self.version = major, minor

    def nvrtcVersion(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = self.version
        return 0


@pytest.mark.usefixtures("no_library")
def test_the_driver_takes_the_code_of_no_later_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"13": Library(13, 5), "none": None, "12": Library(12, 9)}
    with monkeypatch.context() as m:
        m.setattr(nvrtc, "_libraries", lambda: iter(there))
        m.setattr(nvrtc, "_opened", functools.cache(there.get))
        assert [nvrtc.version(cuda) for cuda in (None, 12, 13, 14)] == [(13, 5), (12, 9), (13, 5), (13, 5)]
        assert not nvrtc.is_available(11)
        del there["12"]
        nvrtc._library.cache_clear()
        with pytest.raises(DeviceError, match=r"NVRTC 13\.5 is there, .* CUDA 12 .* nvidia-cuda-nvrtc-cu12"):
            nvrtc.capabilities(12)
