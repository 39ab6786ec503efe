"""NumPy's `astype` in C: every pair of dtypes, with what NumPy gives on x86 for floats that an integer cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.kernels.cuda.ctext import F16, F32, F64, DType, Operand, c_type, instances, literal, suffix


def converted(value: Any, dtype: DType) -> Any:
    """A NumPy scalar as another dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


def convert(x: Operand, dtype: DType) -> str:
    """The text of `x` as `dtype`, as NumPy's `astype` converts arrays."""
    source, text = x.dtype, x.text
    if source == dtype:
        return text
    if x.value is not None:
        return literal(converted(x.value, dtype), dtype)
    if dtype.kind == "b":
        return f"(({text} & 0x7fff) != 0)" if source == F16 else f"({text} != 0)"
    if source == F16:
        return _from_half(text, dtype)
    if dtype == F16:
        return f"hj_f64_to_f16({text})" if source == F64 else f"hj_f32_to_f16((f32){text})"
    if source.kind == "f" and dtype.kind != "f":
        return _to_integer(text, source, dtype)
    return f"(({c_type(dtype)}){text})"


def _from_half(text: str, dtype: DType) -> str:
    if dtype == np.dtype("u4"):
        return f"hj_f16_to_u32({text})"
    return convert(Operand(f"hj_f16_to_f32({text})", F32), dtype)


def _to_integer(text: str, source: DType, dtype: DType) -> str:
    if dtype.itemsize < 4:
        return f"(({c_type(dtype)})hj_{suffix(source)}_to_i32({text}))"
    return f"hj_{suffix(source)}_to_{suffix(dtype)}({text})"


_TRUNCATE = """
HJ_DEVICE $to hj_${t}_to_$to($t x) {
    return x >$equal $below && x < $above ? ($to)x : ($to)$least;
}"""
_TRUNCATE_UNSIGNED = """
HJ_DEVICE u$b hj_${t}_to_u$b($t x) {
    return x >= $top ? (u$b)hj_${t}_to_i$b(x - $top) ^ $least : (u$b)hj_${t}_to_i$b(x);
}"""


def _truncations() -> dict[str, str]:
    """Floats to int32, int64, uint32, uint64; out of range and of NaN the smallest integer, as on x86."""
    found: dict[str, str] = {}
    for bits, least in ((32, "0x80000000u"), (64, "0x8000000000000000u")):
        top = 2.0 ** (bits - 1)
        for t in (F32, F64):
            dense = 8 * t.itemsize > bits  # there are floats between -top - 1 and -top
            below, above = literal(-top - dense, t), literal(top, t)
            names = {"to": f"i{bits}", "equal": "" if dense else "=", "below": below, "above": above, "least": least}
            found |= instances(_TRUNCATE, (t,), **names)
            found |= instances(_TRUNCATE_UNSIGNED, (t,), b=str(bits), top=above, least=least)
    return found


FUNCTIONS: dict[str, str] = {
    **_truncations(),
    "hj_f16_to_u32": """
HJ_DEVICE u32 hj_f16_to_u32(f16 x) {
    return (x & 0x7c00) == 0x7c00 ? 0u : (u32)(i32)hj_f16_to_f32(x);
}""".strip(),
    # through a float whose last bit says whether anything was lost: the second rounding is as if it were the only one
    "hj_f64_to_f16": """
HJ_DEVICE f16 hj_f64_to_f16(f64 x) {
    const f32 near = (f32)x;
    const f64 back = (f64)near;
    u32 word = hj_as_u32(near);
    if (back != x && back == back) word = (word - (fabs(back) > fabs(x))) | 1u;
    return hj_f32_to_f16(hj_as_f32(word));
}""".strip(),
}
