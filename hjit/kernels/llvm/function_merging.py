"""Functions of nests that differ in nothing but constants become one, which is given the constants as numbers.

The shifts of a search window, say: as many nests as it has positions, each a little further on. LLVM compiles one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hjit.trace.ir.poly import Poly, poly

_CONSTANT = re.compile(r"(= add i64 |= getelementptr \w+, ptr %(?!ctx,)[\w.]+, i64 )(-?\d+)\b")  # an offset of an index or of an address
MAX_GIVEN = 16  # constants that become numbers, of one function

Uniform = tuple[int, int] | Poly | None  # a slot of the parameter block and what is added, or a polynomial over sizes, or `KERNEL`
KERNEL: Uniform = None  # the address of the parameter block: what a block of numbers begins with


@dataclass(frozen=True, slots=True)
class Function:
    """The text of a nest's function, and the numbers that it is given, from slot 1 of its block on."""

    text: str
    uniforms: tuple[Uniform, ...]


def merged(functions: Sequence[Function]) -> list[Function]:
    """The functions, of which those that differ in constants only have one text."""
    alike: dict[tuple[str, int], dict[str, list[str]]] = {}  # shape -> text -> its constants
    shapes = []
    for f in functions:
        shapes.append((_CONSTANT.sub(r"\1#", f.text), len(f.uniforms)))
        alike.setdefault(shapes[-1], {})[f.text] = [m[2] for m in _CONSTANT.finditer(f.text)]
    return [_given(f, alike[shape]) for f, shape in zip(functions, shapes, strict=True)]


def _given(f: Function, alike: dict[str, list[str]]) -> Function:
    """A function with the constants that are not the same in all alike taken from its block."""
    columns = list(zip(*alike.values(), strict=True))
    numbers = {column: k for k, column in enumerate(dict.fromkeys(c for c in columns if len(set(c)) > 1))}
    if not 0 < len(numbers) <= MAX_GIVEN:
        return f
    places = iter(columns)

    def name(m: re.Match[str]) -> str:
        k = numbers.get(next(places))
        return m[0] if k is None else f"{m[1]}%given{k}"

    text = _CONSTANT.sub(name, f.text)
    first = len(f.uniforms) + 1
    reads = "".join(
        f"\n  %given{k}.at = getelementptr i64, ptr %ctx, i64 {first + k}"
        f"\n  %given{k} = load i64, ptr %given{k}.at, align 8"
        for k in numbers.values()
    )
    mine = list(alike).index(f.text)
    return Function(text.replace("\nentry:", "\nentry:" + reads, 1), (*f.uniforms, *(poly(int(column[mine])) for column in numbers)))
