"""Random loops over pixels that carry variables, write several places, and read behind conditions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.trace.nesting import with_source

# variables that are carried, with what they begin as; `s` of floats, `m` of elements, `n`, `k`, `by`, `bx` of ints
BEGINS = {
    "s": ("0.0", "1.5", "a[0, 0] * 1.0", "t", "0", "np.float32(0.5)"),
    "m": ("a[0, 0]", "a[1, 2]", "0", "-1.0", "np.inf", "a.dtype.type(3)"),
    "n": ("0", "1", "-3"),
    "k": ("0", "5"),
    "by": ("0", "-1"),
    "bx": ("0", "-1"),
    "found": ("False",),
    "p": ("a[0, 0]", "0"),
}
PLACES = {
    "a[y, x]": None, "a[y, 0]": None, "a[h - 1 - y, x]": None, "a[y, w - 1 - x]": None,
    "a[y - 1, x]": "y > 0", "a[y, x - 1]": "x > 0", "a[y, x + 1]": "x + 1 < w", "a[y + 1, x]": "y < h - 1",
    "a[y - 1, x + 1]": "y > 0 and x < w - 1", "a[y, x + 2]": "x < w - 2",
}  # fmt: skip
WRITES = {
    "{}[y, x]": None, "{}[y, x - 1]": "x > 0", "{}[y, x + 1]": "x + 1 < w", "{}[y + 1, x]": "y + 1 < h",
    "{}[y + 1, x + 1]": "y + 1 < h and x + 1 < w", "{}[y + 1, x - 1]": "y + 1 < h and x >= 1",
}  # fmt: skip


class Loops:
    """Random functions, deterministic by the seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.carried = self.r.sample(sorted(BEGINS), self.r.randint(1, 3))
        self.arrays = self.r.sample(["out", "b"], self.r.randint(0, 2))
        if not self.arrays and self.r.random() < 0.3:
            self.arrays = ["out"]
        self.guarded: list[str] = []

    def number(self) -> str:
        """A number that may be read anywhere."""
        free = [p for p, needs in PLACES.items() if needs is None or needs in self.guarded]
        some = [*free, *self.carried, *(f"{x}[y, x]" for x in self.arrays), "t", "2", "0.5", "x", "y"]
        return self.r.choice(some)

    def value(self) -> str:
        form = self.r.choice(("{}", "{} + {}", "{} * 0.5 + {}", "{} - {}", "max({}, {})", "min({}, {})", "abs({})"))
        return form.format(*(self.number() for _ in range(form.count("{}"))))

    def condition(self) -> str:
        kinds = ("{} > {}", "{} <= {}", "{} != {}", "{} > {} and {} < {}", "not {} > {}")
        form = self.r.choice(kinds)
        return form.format(*(self.number() for _ in range(form.count("{}"))))

    def update(self, name: str) -> list[str]:
        """An assignment to a carried variable, perhaps behind a condition."""
        r = self.r
        match name:
            case "s":
                forms = [f"s += {self.number()}", f"s = s * 0.75 + {self.number()}", f"s = {self.value()}"]
            case "m":
                forms = ["m = max(m, a[y, x])", "m = min(a[y, x], m)", f"m = {self.number()}"]
                if r.random() < 0.5:
                    extra = [f"    {b} = {b[1]}" for b in ("by", "bx") if b in self.carried]
                    return ["if a[y, x] > m:", "    m = a[y, x]", *extra]
            case "n":
                forms = ["n += 1", "n -= 2", "n = n + x", "n = n + (y - x)"]
                if r.random() < 0.7:
                    return [f"if {self.condition()}:", f"    {r.choice(forms)}"]
            case "k":
                forms = ["k = x", "k = y + x", "k = (k + 3) % 7", "k += 1"]
            case "by" | "bx":
                forms = [f"if {self.condition()}:\n    {name} = {name[1]}"]
            case "found":
                forms = ["found = True", f"if {self.condition()}:\n    found = True", "found = not found"]
            case _:
                forms = ["p = a[y, x]", f"p = {self.number()}"]
        return r.choice(forms).split("\n")

    def write(self) -> list[str]:
        """A change of an array, perhaps of another element behind a condition."""
        array = self.r.choice(self.arrays)
        target, needs = self.r.choice(list(WRITES.items()))
        text = f"{target.format(array)} {self.r.choice(('=', '+=', '-='))} {self.value()}"
        return [text] if needs is None else [f"if {needs}:", f"    {text}"]

    def statement(self, depth: int) -> list[str]:
        kind = self.r.random()
        if kind < 0.2 and depth:
            needs = self.r.choice([n for n in PLACES.values() if n])
            self.guarded.append(needs)
            body = self.block(depth - 1)
            self.guarded.remove(needs)
            found = [f"if {needs}:", *(f"    {x}" for x in body)]
        elif kind < 0.35 and depth:
            found = [f"if {self.condition()}:", *(f"    {x}" for x in self.block(depth - 1))]
            if self.r.random() < 0.5:
                found += ["else:", *(f"    {x}" for x in self.block(depth - 1))]
        elif kind < 0.65 and self.arrays:
            found = self.write()
        else:
            found = self.update(self.r.choice(self.carried))
        return found

    def block(self, depth: int) -> list[str]:
        return [x for _ in range(self.r.randint(1, 2)) for x in self.statement(depth)]

    def source(self) -> str:
        r = self.r
        lines = ["def f(a, t):", "    h, w = a.shape"]
        lines += [
            f"    {x} = {r.choice(('np.zeros_like(a)', 'a.copy()', 'a * 2', 'np.zeros((h, w))'))}" for x in self.arrays
        ]
        inner = [v for v in self.carried if r.random() < 0.25]
        lines += [f"    {v} = {r.choice(BEGINS[v])}" for v in self.carried if v not in inner]
        last = r.choice(("range(w)", "range(w)", "range(w - 1)", "range(1, w)", "reversed(range(w))", "range(0, w, 2)"))
        rows = r.choice(("range(h)", "range(h)", "range(1, h)", "reversed(range(h))"))
        if r.random() < 0.15:  # one loop alone
            lines += ["    y = 1", f"    for x in {last}:"]
            inner, indent = [], " " * 8
            lines[2:2] = [f"    {v} = {r.choice(BEGINS[v])}" for v in self.carried]
        else:
            lines += [f"    for y in {rows}:"]
            lines += [f"        {v} = {r.choice(BEGINS[v])}" for v in inner]
            if r.random() < 0.2 and (outer := [v for v in self.carried if v not in inner and v in "sn"]):
                lines += [f"        {v} += 1" for v in outer]
            lines += [f"        for x in {last}:"]
            indent = " " * 12
        lines += [indent + x for x in self.block(2)]
        if indent != " " * 8 and r.random() < 0.3 and self.carried:
            v = r.choice(self.carried)
            lines += [f"        {r.choice(self.arrays)}[y, 0] = {v}"] if self.arrays and v != "found" else []
        lines.append(f"    return {', '.join([*self.arrays, *self.carried])},")
        return "\n".join(lines)


class LeftLoops(Loops):
    """Loops that are left, with loops inside that are, and ranges that move."""

    def statement(self, depth: int) -> list[str]:
        r = self.r
        kind = r.random()
        if kind < 0.12 and depth < 2:
            return [f"if {self.condition()}:", f"    {r.choice(('break', 'break', 'continue'))}"]
        if kind < 0.2 and depth == 2 and "s" in self.carried:
            head = r.choice(
                ("for i in range(6):", "for i in range(x):", "for i in range(x, w):", "for i in range(y, h):")
            )
            place = "a[i, x]" if "(y, h)" in head else "a[y, i]"
            body = [
                f"    s += {place} * 0.25",
                f"    if s > {self.number()}:",
                f"        {r.choice(('break', 'continue'))}",
            ]
            return [head, *body, f"    s = s * 0.5 + {self.number()}"]
        if kind < 0.28 and depth == 2 and "n" in self.carried:
            ends = r.choice(("n < 4", "n < x and n < 9", "k < 7 and n > -50"))
            step = "k += 1" if "k" in ends else "n += 1"
            if ends[0] == "k" and "k" not in self.carried:
                return ["n -= 1"]
            return [f"while {ends}:", f"    {step}", f"    if {self.condition()}:", "        break", "    n -= n // 3"]
        if kind < 0.34 and depth == 2 and (chosen := [v for v in self.carried if v in "nsk"]):
            lines = []
            for _ in range(9):  # more conditions than there can be paths
                v = r.choice(chosen)
                lines += [
                    f"if {self.condition()}:",
                    f"    {v} {r.choice(('+=', '-='))} {r.choice(('1', '2', 'x', 'y'))}",
                ]
                if r.random() < 0.4:
                    lines += ["else:", f"    {v} = {v} {r.choice('+-')} 3"]
            return lines
        return super().statement(depth)

    def source(self) -> str:
        text = super().source()
        if self.r.random() < 0.3 and "in range(h):" in text:  # also left from the loop outside
            v = self.r.choice(self.carried)
            at = text.rindex("    return")
            text = text[:at] + f"        if {v} == {self.r.choice(('2', 't', 'y'))}:\n            break\n" + text[at:]
        return text


def leaving_function(seed: int) -> tuple[str, Callable[..., Any]]:
    """As `function`, of loops that are left; its source is known as that of a file would be."""
    text = LeftLoops(seed).source()
    return text, with_source(text, f"<left loops {seed}>")


def function(seed: int) -> tuple[str, Callable[..., Any]]:
    """A function of an array and a float, and its text."""
    text = Loops(seed).source()
    names: dict[str, Any] = {"np": np}
    exec(text, names)
    return text, names["f"]


def image(r: np.random.Generator, shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """An image of a dtype; a few elements of floats are NaN."""
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        return r.integers(0, 200, shape).astype(dtype)
    found = r.normal(size=shape).astype(dtype)
    found[r.random(shape) < 0.01] = np.nan
    return found
