"""Random loops over lists of ints, floats and bools, lists of lists, and stacks: Python's numbers, types and lists."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.trace.nesting import seeds, with_source
from tests.trace.test_carried_variables import compiled, outcome
from tests.trace.test_lists_that_loops_fill import identical

Array = np.ndarray[Any, Any]
SIZES = (1, 3, 4, 8)
BEGINS = {
    "h": ("[0] * {n}", "[k for k in range({n})]", "[1] * {n}", "list(range({n}))"),
    "f": ("[0.0] * {n}", "[0.5 * k for k in range({n})]"),
    "b": ("[False] * {n}", "[k > 1 for k in range({n})]"),
    "t": ("list(range({n}))", "tuple(range({n}))"),
    "q": ("[[0] * {n} for _ in range(2)]", "[[0] * {n}, [1] * {n}]"),
}
INDICES = (
    "a[y, x] % {n}", "int(a[y, x]) % {n}", "x % {n}", "y % {n}", "-1 - x % {n}", "0", "-1", "(x + y) % {n}", "k % {n}",
)  # fmt: skip
OTHER_USES = (
    "{m} = {m}[:]", "{m}.append({m}[0])", "w = {m}", "{m}[0], {m}[-1] = {m}[-1], {m}[0]", "{m} = [*{m}]", "k += len({m})",
    "s += sum({m})", "s += max({m})", "{m}.reverse()", "{m}[0:1] = [{m}[0]]", "for v in {m}: s += v", "{m} += [{m}[0]]",
    "w = {m}; w[0] = {m}[-1]", "del {m}[-1]", "k += {m}.count({m}[0])",
)  # fmt: skip


class Lists:
    """Random functions, deterministic by the seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.n = self.r.choice(SIZES)
        self.names = self.r.sample(sorted(BEGINS), self.r.randint(1, 3))
        self.has_stack = self.r.random() < 0.4

    def item(self, name: str) -> str:
        row = f"[{self.r.choice(('0', '1', 'x % 2', 'y % 2', 'int(a[y, x]) % 2'))}]" if name == "q" else ""
        return f"{name}{row}[{self.r.choice(INDICES).format(n=self.n)}]"

    def number(self, is_float: bool = False) -> str:
        own = [self.item(m) for m in self.names if (m == "f" if is_float else m in "htq")]
        some = ("0.5", "s", "float(a[y, x])", "-0.0") if is_float else ("1", "x", "y", "k", "int(a[y, x])", "-3")
        return self.r.choice((*own, *some))

    def condition(self) -> str:
        some = [
            "a[y, x] > 128",
            f"{self.number()} < {self.number()}",
            f"{self.number()} % 3 == 0",
            "x > 2",
            "y % 2 == 0",
        ]
        some += [self.item("b")] * ("b" in self.names) + ["st", "len(st) > 1"] * self.has_stack
        return self.r.choice(some)

    def statement(self, depth: int = 0) -> list[str]:
        r = self.r
        kinds = [m for m in self.names if m != "t"] * 3 + ["k", "s", "out"] + ["push", "push", "pop"] * self.has_stack
        kinds += ["if"] * (depth < 2) + ["use"] * (r.random() < 0.1) + ["leave"] * (depth == 1 and r.random() < 0.3)
        match r.choice(kinds):
            case "h" | "q" as name:
                return [f"{self.item(name)} {r.choice(('+=', '+=', '-=', '=', '^='))} {self.number()}"]
            case "f":
                return [f"{self.item('f')} {r.choice(('+=', '=', '*='))} {self.number(True)}"]
            case "b":
                return [f"{self.item('b')} = {r.choice(('True', 'False', 'bool(a[y, x] > 99)'))}"]
            case "k":
                return [r.choice((f"k = {self.number()}", "k += 1", "k += x"))]
            case "s":
                return [f"s = s * 0.5 + {self.number(r.random() < 0.5)}"]
            case "out":
                return [f"out[y, x] {r.choice(('=', '+='))} {self.number(r.random() < 0.5)}"]
            case "push":
                return [f"st.append(({self.number()}, {r.choice(('x', 'y', 'int(a[y, x])'))}))"]
            case "pop":
                return ["if st:", f"    k, z = st.pop({r.choice(('', '', '0'))})"]
            case "use":
                name = r.choice([m for m in self.names if m in "hf"] or [""])
                return [r.choice(OTHER_USES).format(m=name)] if name else ["k += 1"]
            case "leave":
                return [f"if {self.condition()}: {r.choice(('break', 'continue'))}"]
        found = [f"if {self.condition()}:", *("    " + line for line in self.statement(depth + 1))]
        return found + (["else:", *("    " + line for line in self.statement(depth + 1))] if r.random() < 0.4 else [])

    def source(self) -> str:
        r = self.r
        lines = [
            "def f(a):",
            "    h_, w_ = a.shape",
            "    k = z = 0",
            "    s, w = 0.0, None",
            "    out = np.zeros(a.shape)",
        ]
        lines += [f"    {m} = {r.choice(BEGINS[m]).format(n=self.n)}" for m in self.names]
        if self.has_stack:
            lines.append(f"    st = {r.choice(('[]', '[(1, 2)]', '[(0, 0), (1, 1)]'))}")
        lines.append(f"    for y in {r.choice(('range(h_)', 'range(1, h_)', 'reversed(range(h_))'))}:")
        if self.has_stack and r.random() < 0.3:
            lines.append("        st = [(y, y)]")
        lines.append(f"        for x in {r.choice(('range(w_)', 'range(1, w_)', 'range(w_ - 1, -1, -1)'))}:")
        for _ in range(r.randint(1, 4)):
            lines += ["            " + line for line in self.statement()]
        if self.has_stack and r.random() < 0.5:
            lines += ["        while st:", "            k, z = st.pop()", "            s += k + z * 0.5"]
        name = r.choice([m for m in self.names if m in "hf"] or [""])
        if name and r.random() < 0.25:
            lines.append(f"    for i in range(1, len({name})): {name}[i] += {name}[i - 1]")
        own = [*self.names, *["len(st)"] * self.has_stack]
        return "\n".join([*lines, f"    return k, z, s, w, out, {', '.join(own)}"])


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_random_loops_over_lists(seed: int) -> None:
    text = Lists(seed).source()
    f = with_source(text, f"<lists {seed}>")
    pipe = compiled(f, on_unsupported="break")
    for k, shape in enumerate(((9, 7), (19, 18), (9, 7), (1, 1))):
        a = np.random.default_rng((seed, k)).integers(0, 256, shape).astype(np.uint8)
        ours, theirs = (outcome(g, a.copy()) for g in (pipe, f))
        assert identical(ours, theirs), text
