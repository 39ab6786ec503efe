"""Function merging: functions of nests that differ in constants only become one, which takes the constants as
arguments.

For example, the shifts of a search window make a nest for each position, and these differ in their offsets. LLVM
compiles only one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hjit.kernels.llvm.thresholds import MAX_MERGED_CONSTANTS
from hjit.trace.ir.poly import Poly, poly

# an offset of an index or of an address, or a factor of one
_CONSTANT = re.compile(r"(= add i64 |= mul i64 |= getelementptr \w+, ptr %(?!ctx,)[\w.]+, i64 )(-?\d+)\b")

# a slot of the parameter block and what is added, or a polynomial over sizes, or `KERNEL`
Uniform = tuple[int, int] | Poly | None
KERNEL: Uniform = None  # the address of the parameter block: what a block of numbers begins with


@dataclass(frozen=True, slots=True)
class Function:
    """The text of a nest's function, and its arguments, from slot 1 of its block on."""

    text: str
    uniforms: tuple[Uniform, ...]


@dataclass(frozen=True, slots=True)
class Inner:
    """An outlined function.

    Attributes:
        name, block: stand in the caller's text for its name, and for the slot where its numbers begin.
        of: its text, and the numbers that it is given.
    """

    name: str
    block: str
    of: Function


def merged(functions: Sequence[Function]) -> list[Function]:
    """The functions; those that differ in constants only share one text."""
    shapes: dict[tuple[str, int], str] = {}  # a text, and how many numbers it is given -> the text without constants
    alike: dict[tuple[str, int], dict[str, list[str]]] = {}  # such a text -> texts -> their constants
    for f in functions:
        key = f.text, len(f.uniforms)
        if key not in shapes:
            shapes[key] = _CONSTANT.sub(r"\1#", f.text)
            alike.setdefault((shapes[key], key[1]), {})[f.text] = [m[2] for m in _CONSTANT.finditer(f.text)]
    changed: dict[tuple[str, int], tuple[str, tuple[Poly, ...]]] = {}
    for (_, count), texts in alike.items():
        changed |= {(text, count): new for text, new in _given(texts, count).items()}
    found = []
    for f in functions:
        text, numbers = changed[f.text, len(f.uniforms)]
        found.append(Function(text, (*f.uniforms, *numbers)))
    return found


def _given(alike: dict[str, list[str]], count: int) -> dict[str, tuple[str, tuple[Poly, ...]]]:
    """For each of some alike texts: the text with constants that differ between them read from its block, and these.

    Args:
        alike: texts and their constants.
        count: the numbers that each is given already.
    """
    columns = [tuple(map(int, column)) for column in zip(*alike.values(), strict=True)]
    differ = list(dict.fromkeys(c for c in columns if len(set(c)) > 1))
    # where there are too many, places whose constants differ by the same in all texts share one number
    shared = len(differ) > MAX_MERGED_CONSTANTS
    # for each number, which it is, and the constants of its first place
    firsts: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {}
    names: dict[tuple[int, ...], str] = {}
    sums: list[str] = []
    for column in differ:
        k, first = firsts.setdefault(tuple(c - column[0] for c in column) if shared else column, (len(firsts), column))
        names[column] = f"%given{k}"
        if column != first:
            names[column] = f"%given{k}.sum{len(sums)}"
            sums.append(f"  {names[column]} = add i64 %given{k}, {column[0] - first[0]}")
    if not 0 < len(firsts) <= MAX_MERGED_CONSTANTS:
        return {text: (text, ()) for text in alike}
    places = iter(columns)

    def name(m: re.Match[str]) -> str:
        given = names.get(next(places))
        return m[0] if given is None else f"{m[1]}{given}"

    one = _CONSTANT.sub(name, next(iter(alike)))
    reads = []
    for k in range(len(firsts)):
        reads.append(f"  %given{k}.at = getelementptr i64, ptr %ctx, i64 {count + 1 + k}")
        reads.append(f"  %given{k} = load i64, ptr %given{k}.at, align 8")
    one = one.replace("\nentry:", "\n".join(["\nentry:", *reads, *sums]), 1)
    return {text: (one, tuple(poly(first[mine]) for _, first in firsts.values())) for mine, text in enumerate(alike)}
