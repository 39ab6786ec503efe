"""Operations that CUDA C and OpenCL C spell differently: bit casts, halves, wide accesses, atomics, shuffles, copies.

Definitions by the name that a kernel uses; the prelude puts in those that are used.

- ``hj_as_u32(f32)`` and the like; ``hj_popcount_u32``; ``hj_f16_to_f32``, ``hj_f32_to_f16``.
- ``f32x4``: 4, 8 or 16 bytes, read and written at once, with its elements in ``.lane[k]``: ``hj_load_f32x4(p)``,
  ``hj_store_f32x4(p, v)``, and ``hj_load_shared_f32x4``, ``hj_store_shared_f32x4``. The address is a multiple of the
  size; where ``hj_load_row_f32x4`` and ``hj_store_row_f32x4`` find that it is not, they access one element after the
  other.
- ``hj_atomic_OP_SPACE_TYPE(p, v)``: relaxed, gives the old value. OP: add, min, max, and, or, xor; also
  ``cas(p, expected, desired)``. SPACE: global, shared. TYPE: i32, u32, i64, u64; of add f32, f64, too, which round in
  no fixed order.
- ``hj_shuffle_HOW_TYPE(v, n)``: the value of another thread of the warp of 32. HOW: down, up (thread + n, thread - n;
  where there is no such thread, one's own), xor, from (thread n). Every thread of a block calls it, or of the warp in
  ``HJ_FIRST_WARP``; a block is whole warps, and ``HJ_SHUFFLES(threads)`` stands before its first statement.
- ``hj_copy_async_N(shared, global)``: N = 4, 8 or 16 bytes, begun; ``HJ_COPY_COMMIT()`` ends a group and
  ``HJ_COPY_WAIT(n)`` waits until at most n groups of this thread are under way.
"""

from __future__ import annotations

from string import Template

import numpy as np

from hjit.errors import ScheduleError
from hjit.kernels.cuda.ctext import F16, F32, F64, SIGNED, UNSIGNED, DType, c_type, instances, suffix

SPACES = {"global": "HJ_GLOBAL", "shared": "HJ_SHARED_POINTER"}
WORDS = (SIGNED[2], UNSIGNED[2], SIGNED[3], UNSIGNED[3])  # that there are atomics of
ATOMICS = ("add", "min", "max", "and", "or", "xor")
SHUFFLES = ("down", "up", "xor", "from")
ELEMENTS = (*SIGNED, *UNSIGNED, F16, F32, F64)


def _named(*sources: str) -> dict[str, str]:
    """Functions by their names."""
    return {s.partition("(")[0].split()[-1]: s.strip() for s in sources}


# -- bits and halves

_CUDA_BITS = _named(
    "HJ_DEVICE u32 hj_as_u32(f32 x) { return __float_as_uint(x); }",
    "HJ_DEVICE f32 hj_as_f32(u32 x) { return __uint_as_float(x); }",
    "HJ_DEVICE u64 hj_as_u64(f64 x) { return (u64)__double_as_longlong(x); }",
    "HJ_DEVICE f64 hj_as_f64(u64 x) { return __longlong_as_double((i64)x); }",
    "HJ_DEVICE u32 hj_popcount_u32(u32 x) { return (u32)__popc(x); }",
    "HJ_DEVICE u32 hj_popcount_u64(u64 x) { return (u32)__popcll(x); }",
    # the instructions give one NaN for all: NumPy keeps the sign and the upper bits, and makes no infinity of a NaN
    """
HJ_DEVICE f32 hj_f16_to_f32(f16 x) {
    f32 value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
    return (x & 0x7fff) > 0x7c00 ? hj_as_f32((u32)(x & 0x8000) << 16 | 0x7f800000u | (u32)(x & 0x3ff) << 13) : value;
}""",
    """
HJ_DEVICE f16 hj_f32_to_f16(f32 x) {
    f16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    const u32 word = hj_as_u32(x), upper = word >> 13 & 0x3ff;
    return x != x ? (f16)((word >> 16 & 0x8000) | 0x7c00 | (upper ? upper : 1)) : half;
}""",
)
_OPENCL_BITS = _named(
    "HJ_DEVICE u32 hj_as_u32(f32 x) { return as_uint(x); }",
    "HJ_DEVICE f32 hj_as_f32(u32 x) { return as_float(x); }",
    "HJ_DEVICE u64 hj_as_u64(f64 x) { return as_ulong(x); }",
    "HJ_DEVICE f64 hj_as_f64(u64 x) { return as_double(x); }",
    "HJ_DEVICE u32 hj_popcount_u32(u32 x) { return popcount(x); }",
    "HJ_DEVICE u32 hj_popcount_u64(u64 x) { return (u32)popcount(x); }",
    # a half's fields in a float's places are the value times 2**-112; infinities and NaNs need the largest exponent
    """
HJ_DEVICE f32 hj_f16_to_f32(f16 x) {
    const u32 rest = (u32)(x & 0x7fff) << 13, sign = (u32)(x & 0x8000) << 16;
    const u32 scaled = hj_as_u32(hj_as_f32(rest) * 0x1p+112f);
    return hj_as_f32(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : scaled));
}""",
    # below the smallest normal half, adding 0.5 leaves the half's bits at the end of the fraction
    """
HJ_DEVICE f16 hj_f32_to_f16(f32 x) {
    const u32 word = hj_as_u32(x), sign = word >> 16 & 0x8000, magnitude = word & 0x7fffffff;
    const u32 normal = (magnitude + (0xfffu - (112u << 23)) + (magnitude >> 13 & 1)) >> 13;
    const u32 small = hj_as_u32(hj_as_f32(magnitude) + 0.5f) - 0x3f000000u;
    const u32 number = magnitude < (113u << 23) ? small : magnitude >= 0x477ff000u ? 0x7c00u : normal;
    const u32 upper = magnitude >> 13 & 0x3ff;
    return (f16)(sign | (magnitude > 0x7f800000u ? 0x7c00u | (upper ? upper : 1) : number));
}""",
)

# -- wide accesses

_WHOLE = {4: "u32", 8: "uint2", 16: "uint4"}


_LOAD_ROW = """
HJ_DEVICE $v hj_load_row_$v(HJ_GLOBAL const $t *p) {
    if (((u64)p & $last) == 0) return hj_load_$v(p);
    $v v;
    for (i32 k = 0; k < $lanes; k++) v.lane[k] = p[k];
    return v;
}"""
_STORE_ROW = """
HJ_DEVICE void hj_store_row_$v(HJ_GLOBAL $t *p, $v v) {
    if (((u64)p & $last) == 0) {
        hj_store_$v(p, v);
        return;
    }
    for (i32 k = 0; k < $lanes; k++) p[k] = v.lane[k];
}"""


def _vectors() -> dict[str, str]:
    found: dict[str, str] = {}
    for d in ELEMENTS:
        for size, whole in _WHOLE.items():
            t, lanes = suffix(d), size // d.itemsize
            if lanes < 2:
                continue
            v = f"{t}x{lanes}"
            found[v] = f"typedef union {{ {whole} whole; {t} lane[{lanes}]; }} {v};"
            for space, where in SPACES.items():
                mark = "" if space == "global" else "shared_"
                found |= _named(
                    f"HJ_DEVICE {v} hj_load_{mark}{v}({where} const {t} *p)"
                    f" {{ {v} v; v.whole = *({where} const {whole} *)p; return v; }}",
                    f"HJ_DEVICE void hj_store_{mark}{v}({where} {t} *p, {v} v) {{ *({where} {whole} *)p = v.whole; }}",
                )
            rows = (Template(row).substitute(t=t, v=v, lanes=lanes, last=size - 1) for row in (_LOAD_ROW, _STORE_ROW))
            found |= _named(*rows)
    return found


VECTORS = _vectors()

# -- atomics


def _cuda_atomics() -> dict[str, str]:
    found: dict[str, str] = {}
    for space, where in SPACES.items():
        for d in WORDS:
            t = suffix(d)
            for op in ATOMICS:
                # sums and bits of int64 are those of uint64
                r = "u64" if t == "i64" and op not in ("min", "max") else t
                found |= _named(
                    f"HJ_DEVICE {t} hj_atomic_{op}_{space}_{t}({where} {t} *p, {t} v)"
                    f" {{ return ({t})atomic{op.capitalize()}(({r} *)p, ({r})v); }}"
                )
            r = "u64" if t == "i64" else t
            found |= _named(
                f"HJ_DEVICE {t} hj_atomic_cas_{space}_{t}({where} {t} *p, {t} expected, {t} desired)"
                f" {{ return ({t})atomicCAS(({r} *)p, ({r})expected, ({r})desired); }}"
            )
        for t in ("f32", "f64"):
            found |= _named(
                f"HJ_DEVICE {t} hj_atomic_add_{space}_{t}({where} {t} *p, {t} v) {{ return atomicAdd(p, v); }}"
            )
    return found


_ATOMIC_ADD = """
HJ_DEVICE $t hj_atomic_add_${space}_$t($where $t *p, $t v) {
    volatile $where $u *word = (volatile $where $u *)p;
    for (;;) {
        const $u old = *word;
        if (${cas}(word, old, hj_as_$u(hj_as_$t(old) + v)) == old) return hj_as_$t(old);
    }
}"""


def _opencl_atomics() -> dict[str, str]:
    found: dict[str, str] = {}
    for space, where in SPACES.items():
        for d in WORDS:
            t, prefix = suffix(d), "atomic" if d.itemsize == 4 else "atom"
            for op in ATOMICS:
                found |= _named(
                    f"HJ_DEVICE {t} hj_atomic_{op}_{space}_{t}({where} {t} *p, {t} v)"
                    f" {{ return {prefix}_{op}((volatile {where} {t} *)p, v); }}"
                )
            found |= _named(
                f"HJ_DEVICE {t} hj_atomic_cas_{space}_{t}({where} {t} *p, {t} expected, {t} desired)"
                f" {{ return {prefix}_cmpxchg((volatile {where} {t} *)p, expected, desired); }}"
            )
        found |= instances(
            _ATOMIC_ADD,
            (F32, F64),
            space=space,
            where=where,
            cas=lambda d: "atomic_cmpxchg" if d.itemsize == 4 else "atom_cmpxchg",
        )
    return found


# -- shuffles


def _register(d: DType) -> str:
    """The type that a narrow value is shuffled in."""
    return suffix(d) if d.itemsize >= 4 else "i32" if d.kind == "i" else "u32"


def _cuda_shuffles() -> dict[str, str]:
    found: dict[str, str] = {}
    for how in SHUFFLES:
        call = "__shfl_sync" if how == "from" else f"__shfl_{how}_sync"
        found |= instances(
            f"HJ_DEVICE $t hj_shuffle_{how}_$t($t v, i32 n) {{ return ($t){call}(0xffffffffu, ($r)v, n); }}",
            ELEMENTS,
            r=_register,
        )
    return found


_SOURCES = {
    "down": "(thread & 31) + n < 32 ? thread + n : thread",
    "up": "(thread & 31) >= n ? thread - n : thread",
    "xor": "thread ^ n",
    "from": "(thread & ~31) + (n & 31)",
}


def _opencl_shuffles() -> dict[str, str]:
    """Through shared memory, with barriers around: a block is in step where it shuffles."""
    found: dict[str, str] = {}
    for how in SHUFFLES:
        for d in ELEMENTS:
            t = suffix(d)
            name = f"hj_shuffle_{how}_{t}"
            found[name] = f"""
HJ_DEVICE {t} {name}_through(HJ_SHARED_POINTER u64 *scratch, {t} v, i32 n) {{
    const i32 thread = HJ_THREAD;
    HJ_SHARED_POINTER {t} *values = (HJ_SHARED_POINTER {t} *)scratch;
    values[thread] = v;
    HJ_BARRIER();
    const {t} found = values[{_SOURCES[how]}];
    HJ_BARRIER();
    return found;
}}
#define {name}(v, n) {name}_through(hj_shuffle_scratch, v, n)""".strip()
    return found


# -- asynchronous copies


def _cuda_copies() -> dict[str, str]:
    return {
        f"hj_copy_async_{n}": f"""
HJ_DEVICE void hj_copy_async_{n}(void *to, const void *from) {{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], {n};"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *({whole} *)to = *(const {whole} *)from;
#endif
}}""".strip()
        for n, whole in _WHOLE.items()
    }


def _opencl_copies() -> dict[str, str]:
    return {
        f"hj_copy_async_{n}": f"""
HJ_DEVICE void hj_copy_async_{n}(HJ_SHARED_POINTER void *to, HJ_GLOBAL const void *from) {{
    *(HJ_SHARED_POINTER {whole} *)to = *(HJ_GLOBAL const {whole} *)from;
}}""".strip()
        for n, whole in _WHOLE.items()
    }


CUDA: dict[str, str] = {**_CUDA_BITS, **VECTORS, **_cuda_atomics(), **_cuda_shuffles(), **_cuda_copies()}
OPENCL: dict[str, str] = {**_OPENCL_BITS, **VECTORS, **_opencl_atomics(), **_opencl_shuffles(), **_opencl_copies()}


def lanes_type(dtype: DType, size: int) -> str:
    """The vector type of `size` bytes, 4, 8 or 16, of elements of `dtype` in memory."""
    element = np.dtype("u1") if dtype.kind == "b" else dtype
    return f"{suffix(element)}x{size // element.itemsize}"


ATOMIC_UFUNCS = {"add": "add", "maximum": "max", "minimum": "min"}
ATOMIC_UFUNCS |= {f"bitwise_{name}": name for name in ("and", "or", "xor")}


def atomic(op: str, dtype: DType, shared: bool) -> str:
    """The function of an operation, for shared memory or that of the device.

    Raises:
        ScheduleError: there is none.
    """
    is_known = op in ATOMIC_UFUNCS and (dtype.kind in "iu" or (dtype.kind == "f" and op == "add"))
    if not is_known or dtype.itemsize < 4:
        raise ScheduleError(f"tasks cannot join {dtype} by {op} on CUDA; make the loop over them serial")
    return f"hj_atomic_{ATOMIC_UFUNCS[op]}_{'shared' if shared else 'global'}_{c_type(dtype)}"
