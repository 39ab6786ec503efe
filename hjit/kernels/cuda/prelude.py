"""The prelude of kernels, which makes one source compile as CUDA C and as OpenCL C.

A kernel is written in C99 without recursion, with the names below and those of `operations`, `intrinsics`, `indices`::

    HJ_KERNEL(blur, 32, 8, 1)(HJ_GLOBAL const u8 *HJ_RESTRICT img, HJ_GLOBAL f32 *HJ_RESTRICT out, i32 width) {
        HJ_SHARED f32 row[34];
        ...
        HJ_BARRIER();
    }

- ``HJ_KERNEL(name, x, y, z)``: a kernel for blocks of just these sizes, which are literals.
- ``i8`` ... ``u64``, ``f32``, ``f64``, ``bool``, and ``f16``, a half's 16 bits. Kernel arguments are none of them bool.
- ``HJ_GLOBAL`` and ``HJ_SHARED_POINTER`` qualify what pointers point at.
- ``HJ_SHARED`` declares shared memory, at the outermost level of a kernel; ``HJ_ALIGNED`` after the name, for wide
  accesses, to 16 bytes.
- Shared memory whose size the launch gives is the last parameter, ``HJ_DYNAMIC_SHARED_PARAMETER`` (with no comma before
  it), and declared by ``HJ_DYNAMIC_SHARED`` as the first statement: ``u8 *hj_dynamic_shared``, aligned to 16 bytes.
- ``HJ_THREAD_X``, ``HJ_BLOCK_X``, ``HJ_THREADS_X``, ``HJ_BLOCKS_X``, and so for Y and Z: indices and counts as i32;
  ``HJ_THREAD``: the thread in its block.
- ``HJ_BARRIER()``: of the block, for shared and global memory.
- ``HJ_UNIFORM_IF(test) { ... } HJ_UNIFORM_ELSE(test) { ... }``: a branch that all threads of a block take alike, and in
  which they wait for each other. PoCL 3.0 makes code of branches with several barriers that loses what threads have
  written; there they are loops of one iteration at most, the number of blocks along z, so that its optimiser does not
  make branches of them again. Not for branches that have registers of their own, which it loses in such loops.
- ``HJ_FIRST_WARP { ... }``: what only the first warp of 32 threads need do, shuffles for instance. Where shuffles are
  made of barriers, all threads do it.

Names of kernels are none of the C library's. Nothing is contracted or reassociated: the options of `nvrtc` and `opencl`
see to that, with the pragma here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from hjit.kernels.cuda import indices, intrinsics
from hjit.kernels.cuda.operations import ufuncs

Language = Literal["cuda", "opencl"]

_CUDA = """
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef u16 f16;
typedef float f32;
typedef double f64;
#define HJ_KERNEL(name, x, y, z) extern "C" __global__ void __launch_bounds__((x) * (y) * (z)) name
#define HJ_KERNEL_OF(blocks, name, x, y, z) extern "C" __global__ void __launch_bounds__((x) * (y) * (z), blocks) name
#define HJ_DEVICE static __device__ __forceinline__
#define HJ_GLOBAL
#define HJ_SHARED __shared__
#define HJ_SHARED_POINTER
#define HJ_RESTRICT __restrict__
#define HJ_DYNAMIC_SHARED_PARAMETER
#define HJ_DYNAMIC_SHARED extern __shared__ u8 hj_dynamic_shared[] HJ_ALIGNED;
#define HJ_SHUFFLES(threads)
#define HJ_FIRST_WARP if (HJ_THREAD < 32)
#define HJ_BARRIER() __syncthreads()
#define HJ_UNIFORM_IF(test) if (test)
#define HJ_UNIFORM_ELSE(test) else
#define HJ_THREAD_X ((i32)threadIdx.x)
#define HJ_THREAD_Y ((i32)threadIdx.y)
#define HJ_THREAD_Z ((i32)threadIdx.z)
#define HJ_BLOCK_X ((i32)blockIdx.x)
#define HJ_BLOCK_Y ((i32)blockIdx.y)
#define HJ_BLOCK_Z ((i32)blockIdx.z)
#define HJ_THREADS_X ((i32)blockDim.x)
#define HJ_THREADS_Y ((i32)blockDim.y)
#define HJ_THREADS_Z ((i32)blockDim.z)
#define HJ_BLOCKS_X ((i32)gridDim.x)
#define HJ_BLOCKS_Y ((i32)gridDim.y)
#define HJ_BLOCKS_Z ((i32)gridDim.z)
#if __CUDA_ARCH__ >= 800
#define HJ_COPY_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define HJ_COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#else
#define HJ_COPY_COMMIT()
#define HJ_COPY_WAIT(n)
#endif
"""
_OPENCL = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_byte_addressable_store : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#pragma OPENCL FP_CONTRACT OFF
typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef ushort f16;
typedef float f32;
typedef double f64;
#define HJ_KERNEL(name, x, y, z) __kernel __attribute__((reqd_work_group_size(x, y, z))) void name
#define HJ_KERNEL_OF(blocks, name, x, y, z) HJ_KERNEL(name, x, y, z)
#define HJ_DEVICE static inline __attribute__((always_inline))
#define HJ_GLOBAL __global
#define HJ_SHARED __local
#define HJ_SHARED_POINTER __local
#define HJ_RESTRICT restrict
#define HJ_DYNAMIC_SHARED_PARAMETER , __local u8 *hj_dynamic_shared
#define HJ_DYNAMIC_SHARED
#define HJ_SHUFFLES(threads) __local u64 hj_shuffle_scratch[threads];
#define HJ_FIRST_WARP
#define HJ_BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define HJ_UNIFORM_IF(test) for (i32 hj_once = 0; hj_once < ((test) ? HJ_BLOCKS_Z : 0); hj_once++)
#define HJ_UNIFORM_ELSE(test) for (i32 hj_once = 0; hj_once < ((test) ? 0 : HJ_BLOCKS_Z); hj_once++)
#define HJ_THREAD_X ((i32)get_local_id(0))
#define HJ_THREAD_Y ((i32)get_local_id(1))
#define HJ_THREAD_Z ((i32)get_local_id(2))
#define HJ_BLOCK_X ((i32)get_group_id(0))
#define HJ_BLOCK_Y ((i32)get_group_id(1))
#define HJ_BLOCK_Z ((i32)get_group_id(2))
#define HJ_THREADS_X ((i32)get_local_size(0))
#define HJ_THREADS_Y ((i32)get_local_size(1))
#define HJ_THREADS_Z ((i32)get_local_size(2))
#define HJ_BLOCKS_X ((i32)get_num_groups(0))
#define HJ_BLOCKS_Y ((i32)get_num_groups(1))
#define HJ_BLOCKS_Z ((i32)get_num_groups(2))
#define HJ_COPY_COMMIT()
#define HJ_COPY_WAIT(n)
"""
_COMMON = """
#define HJ_ALIGNED __attribute__((aligned(16)))
#define HJ_THREAD ((HJ_THREAD_Z * HJ_THREADS_Y + HJ_THREAD_Y) * HJ_THREADS_X + HJ_THREAD_X)
"""
HEADERS: Mapping[Language, str] = {"cuda": (_CUDA + _COMMON).strip(), "opencl": (_OPENCL + _COMMON).strip()}

_SHARED = {**ufuncs.FUNCTIONS, **indices.FUNCTIONS}
DEFINITIONS: Mapping[Language, Mapping[str, str]] = {
    "cuda": {**intrinsics.CUDA, **_SHARED},
    "opencl": {**intrinsics.OPENCL, **_SHARED},
}
"""Functions and types by name; each may use others."""

_NAME = re.compile(r"[A-Za-z_]\w*")


def needed(text: str, language: Language) -> tuple[str, ...]:
    """The names of the definitions that a text uses, those that they use before them."""
    known, found = DEFINITIONS[language], dict[str, None]()

    def visit(text: str, own: str = "") -> None:
        for name in _NAME.findall(text):
            if name in known and name not in found and name != own:
                visit(known[name], name)
                found[name] = None

    visit(text)
    return tuple(found)


def program(body: str, language: Language) -> str:
    """The text of kernels as a program that compiles."""
    definitions = [DEFINITIONS[language][name] for name in needed(body, language)]
    return "\n".join([HEADERS[language], *definitions, body.strip(), ""])
