"""NumPy's ufuncs and `astype` on LLVM vectors: the values, signed zeros, NaNs and wrap-arounds of NumPy's own loops.

A row of `vecmath_int.EMITTERS` or `vecmath_float.EMITTERS` is one ufunc. Arguments are already in the dtypes of NumPy's
loop. Half precision is computed in single and rounded after each operation, as NumPy does.
"""

from __future__ import annotations

from functools import lru_cache

import llvmlite.binding as llvm

from hjit.errors import CompileError, OptionError
from hjit.kernels import vecmath_float, vecmath_int
from hjit.kernels.code import Code, Val
from hjit.kernels.vecmath_cast import convert
from hjit.kernels.vecmath_text import F16, F32, DType, select

_ALIASES = {"divide": "true_divide", "mod": "remainder", "float_power": "power", "abs": "absolute", "fabs": "absolute",
            "deg2rad": "radians", "rad2deg": "degrees", "bitwise_not": "invert"}


def apply(code: Code, name: str, args: tuple[Val, ...], dtype: DType) -> Val:
    """The ufunc `name`, or ``"select"`` (condition, a, b), with the result `dtype`.

    Raises:
        CompileError: there is no such ufunc for these dtypes.
    """
    if name == "select":
        return select(code, *args)
    name = _ALIASES.get(name, name)
    kind = args[0].dtype.kind
    emitter = (vecmath_float.EMITTERS if kind == "f" else vecmath_int.EMITTERS).get(name)
    if emitter is None:
        raise CompileError(f"numpy.{name} of {args[0].dtype} is not compiled")
    if args[0].dtype == F16 and name not in vecmath_float.IN_HALF:
        wide = tuple(convert(code, a, F32) for a in args)
        return convert(code, emitter(code, wide, F32 if dtype == F16 else dtype), dtype)
    return emitter(code, args, dtype)


@lru_cache(maxsize=1)
def load_libraries() -> bool:
    """Make the C library's scalar and vector functions known to LLVM; True if there are vector ones."""
    for name in ("libm.so.6", "libmvec.so.1"):
        try:
            llvm.load_library_permanently(name)
        except RuntimeError:
            return False
    return True


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """What of ``x86, avx2, avx512, f16c, fma, libmvec`` this machine has."""
    triple = llvm.get_default_triple()
    found = set()
    if triple.startswith(("x86_64", "amd64")):
        cpu = llvm.get_host_cpu_features()
        found.add("x86")
        found.update(name for name in ("avx2", "f16c", "fma", "sse4.1") if cpu.get(name))
        if all(cpu.get(f"avx512{part}") for part in ("f", "bw", "dq", "vl")):
            found.add("avx512")
        if load_libraries():
            found.add("libmvec")
    return frozenset(found)


# Levels of x86-64 that can be asked for in place of the machine at hand, as its psABI names them
_V2 = frozenset({"x86", "sse4.1"})
_V3 = _V2 | {"avx2", "f16c", "fma"}
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V3 | {"avx512"}}


def target_features(target: str) -> frozenset[str]:
    """The features to generate code for.

    Raises:
        OptionError: this machine lacks some of them.
    """
    host = host_features()
    if target == "cpu":
        return host
    missing = LEVELS[target] - host
    if missing:
        raise OptionError(f"target={target!r}: this machine has no {', '.join(sorted(missing))}")
    return LEVELS[target] | (host & {"libmvec"})


def native_width(features: frozenset[str]) -> int:
    """The bytes of the widest vector register."""
    return 64 if "avx512" in features else 32 if "avx2" in features else 16


__all__ = ["LEVELS", "apply", "convert", "host_features", "load_libraries", "native_width", "target_features"]
