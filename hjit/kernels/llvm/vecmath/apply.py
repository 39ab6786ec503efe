"""NumPy's ufuncs and `astype` on LLVM vectors: the values, signed zeros, NaNs and wrap-arounds of NumPy's own loops.

A row of `EMITTERS`, in `integers` and in `floats`, is one ufunc. Arguments are already in the dtypes of NumPy's
loop. Half precision is computed in single and rounded after each operation, as NumPy does.
"""

from __future__ import annotations

from hjit.errors import CompileError
from hjit.kernels.llvm.builder.code import Code, Val
from hjit.kernels.llvm.vecmath import floats as vecmath_float
from hjit.kernels.llvm.vecmath import integers as vecmath_int
from hjit.kernels.llvm.vecmath.casts import convert
from hjit.kernels.llvm.vecmath.text import F16, F32, DType, intrinsic, select
from hjit.kernels.lower.ufunc_names import ALIASES


def apply(code: Code, name: str, args: tuple[Val, ...], dtype: DType) -> Val:
    """The ufunc `name`, ``"select"`` (condition, a, b) or ``"fma"``, with the result `dtype`.

    Raises:
        CompileError: there is no such ufunc for these dtypes.
    """
    if name == "select":
        return select(code, *args)
    if name == "fma":
        return intrinsic(code, name, *args)
    name = ALIASES.get(name, name)
    kind = args[0].dtype.kind
    emitter = (vecmath_float.EMITTERS if kind == "f" else vecmath_int.EMITTERS).get(name)
    if emitter is None:
        raise CompileError(f"numpy.{name} of {args[0].dtype} is not compiled")
    if args[0].dtype == F16 and name not in vecmath_float.IN_HALF:
        wide = tuple(convert(code, a, F32) if a.dtype == F16 else a for a in args)
        return convert(code, emitter(code, wide, F32 if dtype == F16 else dtype), dtype)
    return emitter(code, args, dtype)


__all__ = ["apply", "convert"]
