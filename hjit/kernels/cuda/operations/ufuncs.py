"""NumPy's ufuncs and `astype` as C expressions: the values, signed zeros, NaNs and wrap-arounds of NumPy's own loops.

A row of a table is one ufunc for one kind of dtype. Arguments are already in the dtypes of NumPy's loop. Half precision
is computed in single and rounded after each operation, as NumPy does. The prelude defines what the texts call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hjit.errors import CompileError
from hjit.kernels.cuda.ctext import F16, F32, DType, Operand, Row, filled, form
from hjit.kernels.cuda.operations import casts, floats, integers, libm
from hjit.kernels.cuda.operations.casts import convert
from hjit.kernels.lower.ufunc_names import ALIASES

FLOATS: Mapping[str, Row] = {**floats.ROWS, **libm.ROWS}
TABLES: Mapping[str, Mapping[str, Row]] = {
    "b": integers.BOOLS,
    "i": integers.SIGNED_ROWS,
    "u": integers.UNSIGNED_ROWS,
    "f": FLOATS,
}
"""By the kind of the first argument's dtype, and the name of the ufunc."""
FUNCTIONS: Mapping[str, str] = {
    **casts.FUNCTIONS,
    **integers.FUNCTIONS,
    **floats.FUNCTIONS,
    **libm.FUNCTIONS,
}
"""The device functions that the rows call, by name."""


def apply(name: str, args: Sequence[Operand], dtype: DType) -> str:
    """The text of the ufunc `name`, of ``"select"`` (condition, a, b) or ``"inside"`` (index, extent), giving `dtype`.

    Raises:
        CompileError: there is no such ufunc for these dtypes.
    """
    if name == "select":
        return filled("({0} ? {1} : {2})", args, dtype)
    if name == "inside":
        return filled("(({U}){0} < ({U}){1})", args, dtype)
    name = ALIASES.get(name, name)
    first = args[0].dtype
    if first == F16:
        half = floats.HALF_ROWS.get(name)
        if half is not None:
            return form(half, args, dtype)
        wide = [convert_operand(a, F32) if a.dtype == F16 else a for a in args]
        result = F32 if dtype == F16 else dtype
        return convert(Operand(apply(name, wide, result), result), dtype)
    row = TABLES[first.kind].get(name)
    if row is None:
        raise CompileError(f"numpy.{name} of {first} is not compiled")
    return form(row, args, dtype)


def convert_operand(x: Operand, dtype: DType) -> Operand:
    """`convert`, keeping what is known of a constant."""
    value = None if x.value is None else casts.converted(x.value, dtype)
    return Operand(convert(x, dtype), dtype, value)


__all__ = ["apply", "convert", "convert_operand"]
