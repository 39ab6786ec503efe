"""Values as C text: operands, type names and exact literals, in the common subset of CUDA C and OpenCL C.

A value of a dtype has the C type `c_type`; a half is held as its 16 bits (``f16``), and computed in single. Texts are
primary expressions, parenthesised where they are not a name or a call, so that they can be put next to any operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import numpy as np

DType = np.dtype[Any]
BOOL = np.dtype(bool)
F16, F32, F64 = (np.dtype(t) for t in ("f2", "f4", "f8"))
SIGNED = tuple(np.dtype(f"i{n}") for n in (1, 2, 4, 8))
UNSIGNED = tuple(np.dtype(f"u{n}") for n in (1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class Operand:
    """The text of a value.

    Attributes:
        text: a primary expression of C type ``c_type(dtype)``, or of one that it was promoted to with the same value.
        dtype: NumPy's dtype of the value.
        value: the value as a NumPy scalar where it is a constant.
    """

    text: str
    dtype: DType
    value: Any = None


Row = str | Callable[[Sequence[Operand], DType], str]
"""A form of an operation: a template for `filled`, or a function of operands and result dtype."""


def suffix(dtype: DType) -> str:
    """``f32``: how the names of the functions for a dtype end."""
    return "b" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"


def c_type(dtype: DType) -> str:
    """The type of a value."""
    return "bool" if dtype.kind == "b" else suffix(dtype)


def storage_type(dtype: DType) -> str:
    """The type of an element in memory; a bool is a byte."""
    return "u8" if dtype.kind == "b" else suffix(dtype)


def unsigned(dtype: DType) -> str:
    """The unsigned type of the size of `dtype`."""
    return f"u{8 * dtype.itemsize}"


def wrapping(dtype: DType) -> str:
    """The unsigned type that integers are computed in: signed overflow is undefined, narrow types become ``int``."""
    return "u64" if dtype.itemsize == 8 else "u32"


def filled(template: str, args: Sequence[Operand], dtype: DType) -> str:
    """A template with ``{0}``, ``{1}`` ... the operands, ``{t}`` the suffix of the first one's dtype, ``{U}`` the type
    that its integers are computed in, ``{T}`` the type of the result. An operand stands in it once at most: texts are
    written out, not shared."""
    first = args[0].dtype
    return template.format(*(a.text for a in args), t=suffix(first), U=wrapping(first), T=c_type(dtype))


def call(name: str, n: int = 2) -> str:
    """The template of a call of a device function for the operands' dtype."""
    return f"hj_{name}_{{t}}({', '.join(f'{{{k}}}' for k in range(n))})"


def form(row: Row, args: Sequence[Operand], dtype: DType) -> str:
    return filled(row, args, dtype) if isinstance(row, str) else row(args, dtype)


def instances(source: str, dtypes: Iterable[DType], **names: str | Callable[[DType], str]) -> dict[str, str]:
    """A device function for each dtype, by name: ``$t`` is its type, ``$u`` the unsigned one of its size, ``$w`` the
    one that its integers are computed in, ``$n`` its bits; `names` are more, the same for all or by dtype."""
    found = {}
    for d in dtypes:
        n = 8 * d.itemsize
        more = {key: x if isinstance(x, str) else x(d) for key, x in names.items()}
        text = Template(source).substitute(t=suffix(d), u=f"u{n}", w=wrapping(d), n=str(n), **more)
        found[text.partition("(")[0].split()[-1]] = text.strip()
    return found


# -- literals


def literal(value: Any, dtype: DType) -> str:
    """A constant, exactly: floats in hexadecimal, infinities and NaNs by their bits."""
    x = np.asarray(value).astype(dtype)[()]
    match dtype.kind:
        case "b":
            return "true" if x else "false"
        case "f":
            return _float(x, dtype)
    number = int(x)
    text = f"{number}u" if dtype.kind == "u" else str(number)
    if number == np.iinfo(dtype).min < 0:
        text = f"{number + 1} - 1"  # C has no negative literals
    if (dtype == SIGNED[2] and number >= 0) or dtype == UNSIGNED[2]:
        return text
    return f"({text})" if dtype == SIGNED[2] else f"(({c_type(dtype)})({text}))"


def _float(x: Any, dtype: DType) -> str:
    n = dtype.itemsize
    bits = f"0x{int(x.view(f'u{n}')):0{2 * n}x}u"
    if n == 2:
        return f"((f16){bits})"
    if not np.isfinite(x):
        return f"hj_as_{suffix(dtype)}(({unsigned(dtype)}){bits})"
    text = float(x).hex() + ("f" if n == 4 else "")
    return f"({text})" if text.startswith("-") else text


def constant(value: Any, dtype: DType) -> Operand:
    """A constant as an operand."""
    with np.errstate(all="ignore"):
        x = np.asarray(value).astype(dtype)[()]
    return Operand(literal(x, dtype), dtype, x)
