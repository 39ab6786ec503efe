"""Instructions that a thread runs, by its PTX: written by hand, and by NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda import ptx
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.ptx import Instructions, followed, kernels

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
HEAD = """
.version 8.0
.target sm_80
.visible .entry k(
	.param .u64 k_param_0,
	.param .align 8 .b8 k_param_1[16],
	.param .u32 k_param_2
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<9>;
	.reg .f32 	%f<9>;
"""


def run(body: str, size: int = 10, **special: int) -> Instructions:
    (kernel,) = kernels(HEAD + body + "\n}\n").values()
    return followed(kernel, [1 << 20, None, size], {f"%{k}.x": v for k, v in special.items()})


LOOP = """
	ld.param.u32 	%r1, [k_param_2];
	mov.u32 	%r2, 0;
$L__BB0_1:
	ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	fma.rn.f32 	%f5, %f1, %f2, %f5;
	add.s32 	%r2, %r2, 3;
	setp.lt.s32 	%p1, %r2, %r1;
	@%p1 bra 	$L__BB0_1;
	st.global.f32 	[%rd2], %f5;
	ret;
"""


@pytest.mark.parametrize(("size", "trips"), [(10, 4), (9, 3), (3000, 1000), (0, 1)])
def test_loops_run_as_often_as_the_sizes_say(size: int, trips: int) -> None:
    found = run(LOOP, size)
    assert found == Instructions(trips, 0, 2 * trips, trips + 1, 0, trips + 3, 0, True)


def test_a_thread_that_does_not_end_is_followed_no_further() -> None:
    assert not run("$L_1:\n\tadd.s32 %r1, %r1, 1;\n\tbra.uni $L_1;").is_whole


BRANCH = """
	mov.u32 	%r1, %tid.x;
	setp.gt.u32 	%p1, %r1, 31;
	not.pred 	%p2, %p1;
	@%p2 bra 	$L_other;
	add.rn.f64 	%fd1, %fd1, %fd2;
	ret;
$L_other:
	st.shared.u32 	[%r3], %r1;
	ret;
"""


def test_branches_are_those_of_the_thread() -> None:
    first, second = (run(BRANCH, tid=k) for k in (31, 32))
    assert (first.shared, first.f64, second.shared, second.f64) == (1, 0, 0, 1)


GUESS = """
	ld.global.u32 	%r1, [%rd1];
	setp.eq.s32 	%p1, %r1, 0;
	@%p1 bra 	$L_end;
	@!%p1 bra 	$L_end;
	setp.lt.f32 	%p2, %f1, 0f00000000;
	@%p2 mul.f32 	%f2, %f1, %f1;
$L_end:
	ret;
"""


def test_what_depends_on_data_is_not_followed_and_counted() -> None:
    found = run(GUESS)
    assert (found.guesses, found.f32, found.integers, found.memory) == (2, 2, 1, 1)


# an instruction of %r1 = 13 or -13 (%r2), %rd1 = -13, and what it comes to, in the bits of its result
VALUES = {
    "add.s32 %x, %r2, 20": 7, "sub.s32 %x, %r1, 14": 0xFFFFFFFF, "mul.lo.s32 %x, %r2, 3": (-39) % 2**32,
    "mul.wide.s32 %x, %r2, 4": (-52) % 2**64, "mul.wide.u32 %x, %r2, 2": 2 * (2**32 - 13), "mul.hi.u32 %x, %r2, 16": 15,
    "mad.lo.s32 %x, %r1, %r1, %r2": 156, "div.s32 %x, %r2, 4": (-3) % 2**32, "rem.s32 %x, %r2, 4": (-1) % 2**32,
    "div.u32 %x, %r1, 4": 3, "shr.s32 %x, %r2, 1": (-7) % 2**32, "shr.u32 %x, %r2, 28": 15, "shl.b32 %x, %r1, 31": 1 << 31,
    "min.s32 %x, %r2, 5": (-13) % 2**32, "max.u32 %x, %r2, 5": 2**32 - 13, "and.b32 %x, %r2, 7": 3, "not.b32 %x, %r1": 2**32 - 14,
    "neg.s32 %x, %r2": 13, "abs.s32 %x, %r2": 13, "xor.b32 %x, %r1, 15": 2, "or.b32 %x, %r1, 2": 15,
    "cvt.s64.s32 %x, %r2": (-13) % 2**64, "cvt.u64.u32 %x, %r2": 2**32 - 13, "cvt.u32.u64 %x, %rd1": 2**32 - 13,
    "setp.lt.s32 %x, %r2, 0": 1, "setp.lt.u32 %x, %r2, 50": 0, "setp.hs.u32 %x, %r1, 13": 1, "setp.ne.s64 %x, %rd1, -13": 0,
    "and.b32 %x, %r9, 0": 0, "selp.b32 %x, %r1, %r2, %p9": None, "selp.b32 %x, 4, 4, %p9": 4, "div.u32 %x, %r1, 0": None,
    "bfind.u32 %x, %r1": None, "add.s32 %x, %r9, 1": None, "cvt.rzi.s32.f32 %x, %f1": None,
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_integers_are_as_the_instruction_set_has_them(text: str) -> None:
    (kernel,) = kernels(f"{HEAD}\t{text};\n}}\n").values()
    thread = ptx._Thread(kernel, {}, {"%r1": 13, "%r2": (-13) % 2**32, "%rd1": (-13) % 2**64})
    assert thread.run() and thread.values["%x"] == VALUES[text]


def table(function: Any, *args: Any) -> Any:
    return hjit.pipeline(function, target="cuda", cache="off", verify="off", blas=False).kernels(*args, capability=80)


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_all_threads_together_compute_what_there_is(dtype: str) -> None:
    image = np.ones((256, 1024), dtype)
    (kernel,) = table(lambda a: (a + a.dtype.type(3)) * a, image)
    found = kernel.estimate.instructions
    counts = {"f4": found.f32, "f8": found.f64, "i4": found.integers}
    threads = kernel.blocks * kernel.threads
    floats = 2 * image.size / threads
    assert counts[dtype] >= floats if dtype == "i4" else counts[dtype] == floats
    assert sum(counts.values()) * threads == kernel.estimate.operations
    assert found.guesses == 0 and found.is_whole


@needs_nvrtc
def test_loops_over_long_rows_are_followed() -> None:
    short, long = (table(lambda a: a.max(axis=1), np.ones((70, n), np.float32)).rows[0] for n in (4096, 16384))
    assert short.blocks == long.blocks == 70 and short.kernel == long.kernel
    first, second = (x.estimate.instructions.memory for x in (short, long))
    assert (first, second) == (4096 // 256, 16384 // 256)


@needs_nvrtc
def test_the_table_has_them_for_each_kernel() -> None:
    found = table(lambda a: a * 2, np.ones((100, 1000), np.float32))
    head, row, *_, followed, _ = str(found).splitlines()
    assert head.split()[8:14] == ["f32", "f64", "int", "ld/st", "shared", "ld/st"]
    x = found.rows[0].estimate.instructions
    assert row.split()[8:13] == list(map(str, (x.f32, x.f64, x.integers, x.memory, x.shared)))
    assert "instructions of PTX" in followed
