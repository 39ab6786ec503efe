"""Random loops in loops: over ranges that move, and of rows that several arrays take from each other."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

LEFT = ("break", "continue")
RANGES = (
    "range({})", "range({} + 1)", "range({}, n)", "range({} + 1, n)", "range(n - 1, {}, -1)", "range({}, -1, -1)",
    "range(n)",
)  # fmt: skip


def with_source(text: str, file: str) -> Callable[..., Any]:
    """The function `f` of a text, whose source is known as that of a file would be."""
    names: dict[str, Any] = {"np": np}
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    found: Callable[..., Any] = names["f"]
    return found


def seeds(count: int, slow: int) -> list[Any]:
    """Seeds of random functions, up to `slow`; tests with those from `count` on are slow."""
    return [*range(count), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(count, slow))]


class Triangles:
    """Two or three loops, whose ranges move with those around them, that read and write elements of a matrix."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names: list[str] = []

    def index(self) -> str:
        v = self.r.choice(self.names)
        return self.r.choice((v, v, v, "0", "n - 1"))

    def element(self, array: str = "t") -> str:
        return f"{array}[{self.index()}, {self.index()}]"

    def statement(self) -> str:
        kind = self.r.random()
        if kind < 0.2:
            return f"s = s * 0.5 + {self.element()}"
        if kind < 0.4:
            return f"{self.element()} = s + {self.element('a')}"
        how = self.r.choice(("=", "+=", "-="))
        return f"{self.element()} {how} {self.element()} * 0.5 + {self.element('a')}"

    def source(self) -> str:
        r = self.r
        begin = r.choice(("a.copy()", "np.zeros((n, n))"))
        lines = ["def f(a):", "    n = a.shape[0]", f"    t = {begin}", "    s = 0.0"]
        depth, indent = r.randint(2, 3), "    "
        for k in range(depth):
            outer = r.choice(self.names) if k else ""
            head = r.choice(RANGES).format(outer) if outer else r.choice(("range(n)", "range(n - 1, -1, -1)"))
            lines.append(f"{indent}for {'ijk'[k]} in {head}:")
            indent += "    "
            self.names.append("ijk"[k])
            if k < depth - 1 and r.random() < 0.5:
                lines.append(indent + self.statement())
        lines.append(indent + self.statement())
        if r.random() < 0.4:
            lines.append(f"{indent}if {self.element()} > {r.choice(('0.5', 's'))}:")
            lines.append(f"{indent}    {r.choice((*LEFT, self.statement()))}")
        if r.random() < 0.5:
            lines.append(indent + self.statement())
        for _ in range(depth - 1):
            indent = indent[:-4]
            self.names.pop()
            if r.random() < 0.4:
                lines.append(indent + self.statement())
        return "\n".join([*lines, "    return t, s"])


class Rows:
    """A loop over columns, whose iterations write parts of columns of several arrays from those of others."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.arrays = ["p", "q", "r"][: self.r.randint(2, 3)]

    def rows(self) -> str:
        k = self.r.choice((0, 0, 0, 1, -1))
        return f"{2 + k}:h - {2 - k}"

    def column(self) -> str:
        at = self.r.choice((" - 1", " - 1", "", "", " + 1", " - 2"))
        return f"{self.r.choice([*self.arrays, 'a'])}[{self.rows()}, x{at}]"

    def source(self) -> str:
        r = self.r
        begins = ("a.copy()", "np.zeros(a.shape)", "a * 2")
        lines = ["def f(a):", "    h, w = a.shape", *(f"    {x} = {r.choice(begins)}" for x in self.arrays)]
        lines.append(f"    for x in {r.choice(('range(2, w - 2)', 'reversed(range(2, w - 2))'))}:")
        for _ in range(r.randint(2, 4)):
            form = r.choice(("{} + {}", "{} * 0.5 - {}", "np.maximum({}, {})", "{} * 0.25"))
            value = form.format(*(self.column() for _ in range(form.count("{}"))))
            if r.random() < 0.3:
                lines.append(f"        t = {value}")
                value = "t * 0.5"
            at = r.choice(("", "", "", " - 1"))
            lines.append(f"        {r.choice(self.arrays)}[{self.rows()}, x{at}] = {value}")
        return "\n".join([*lines, f"    return {', '.join(self.arrays)}"])
