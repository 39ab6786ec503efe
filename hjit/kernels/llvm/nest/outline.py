"""Outlined functions of a nest: their text, and their final names.

`hjit.kernels.lower.passes.outlining` decides which loops become functions; equal ones are compiled once, see
`hjit.kernels.llvm.builder.function_merging`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hjit.kernels.llvm.builder.code import I64
from hjit.kernels.llvm.builder.function_merging import KERNEL, Function, Inner, merged
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.lower.loopir import Outlined


def emit(e: NestEmitter, s: Outlined) -> None:
    """Call a function that does what is `Outlined`; what it needs of the variables around it are its arguments."""
    number = len(e.functions)
    inside = e.inside()
    text = inside.outlined(s.body)
    e.code.declarations.update(inside.code.declarations)
    e.functions.append(Inner(f"@inner{number}#", f"@block{number}#", Function(text, tuple(inside.uniforms or ()))))
    block = e.code.here(f"getelementptr i64, ptr %ctx, i64 @block{number}#", I64, pointer=True)
    given = "".join(f", {x}" for x in inside.arguments)
    e.code.effect(f"call void @inner{number}#({block}, i64 %task{given})")


@dataclass(frozen=True, slots=True)
class Linked:
    """Functions that call no others than those in `texts`.

    Attributes:
        functions: one for each nest.
        texts: names and texts of those that they call.
    """

    functions: list[Function]
    texts: dict[str, str]


def linked(functions: Sequence[tuple[Function, Sequence[Inner]]], name: str, placeholder: str) -> Linked:
    """Functions whose calls have names; the numbers of those that they call follow their own.

    Args:
        name: what names of functions begin with.
        placeholder: what stands for the name of a function in its text.
    """
    every = merged([x.of for _, called in functions for x in called])
    names: dict[str, str] = {}  # text -> name
    found = []
    rest = iter(every)
    for f, called in functions:
        text, uniforms = f.text, list(f.uniforms)
        given: dict[str, str] = {}
        for x, of in zip(called, rest, strict=False):
            given[x.name] = "@" + names.setdefault(of.text, f"{name}.inner{len(names)}")
            given[x.block] = str(len(uniforms) + 1)
            uniforms += [KERNEL, *of.uniforms]
        if given:
            text = re.sub(r"@(?:inner|block)\d+#", lambda m: given[m[0]], text)
        found.append(Function(text, tuple(uniforms)))
    return Linked(found, {n: text.replace(placeholder, f"@{n}", 1) for text, n in names.items()})
