"""Random loops over dicts and sets: Python's keys, values, order, types and errors."""

from __future__ import annotations

import collections
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trace.nesting import seeds, with_source
from tests.trace.test_carried_variables import compiled
from tests.trace.test_dicts_in_loops import alike

Array = np.ndarray[Any, Any]
BEGINS = {
    "d": ("{}", "dict()", "{0: 0}", "{1: 2, 200: 3}", "collections.defaultdict(int)", "collections.Counter()",
          "dict.fromkeys(range(40), 0)", "{k * 1000: 1 for k in range(200)}", "collections.Counter([1, 2, 2])"),
    "f": ("{}", "{0: 0.5}", "collections.defaultdict(float)"),
    "s": ("set()", "{1}", "set([3])"),
    "p": ("set()", "{(0, 0)}"),
    "q": ("{}", "{(0, 1): 1}", "{(k, k % 3): k for k in range(20)}"),
    "v": ("{}", "{0: (1, 2)}"),
    "t": ("{k: 3 * k for k in range(256)}", "{0: 1, 5: 2, 10**6: 3}", "{k * 1000: k % 3 > 0 for k in range(60)}"),
}  # fmt: skip
KEYS = ("int(a[y, x])", "a[y, x]", "int(a[y, x]) % 5", "x", "y * 3 - x", "k", "a[y, x] // 16", "int(a[y, x]) * 1000")
OTHER_USES = (
    "d.pop({key}, None)", "s.discard({key})", "w = d", "k += len(s)", "d = dict(d)", "k += sum(d.values())", "del d[{key}]",
    "for v in d: k += v", "d.update({{1: 2}})", "s |= {{1}}", "d = {{}}", "s = set()", "k += min(s)", "d[{key}] = None",
)  # fmt: skip


class Dicts:
    """Random functions, deterministic by the seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names = self.r.sample(sorted(BEGINS), self.r.randint(1, 4))
        self.keys = self.r.sample(KEYS, 2)  # few kinds of keys, so that dicts are compiled

    def key(self, name: str) -> str:
        if name in "pq":
            return f"({self.r.choice(self.keys)}, {self.r.choice(('x', 'y', 'x // 3', '0', 'a[y, x] % 3'))})"
        return self.r.choice(self.keys)

    def number(self) -> str:
        own = [f"{m}.get({self.key(m)}, {self.r.choice('01')})" for m in self.names if m in "dqt"]
        own += [f"len({m})" for m in self.names]
        return self.r.choice((*own, *own, "1", "x", "k", "int(a[y, x])", "-3"))

    def condition(self) -> str:
        asked = [f"{self.key(m)} {self.r.choice(('in', 'in', 'not in'))} {m}" for m in self.names]
        found = self.r.choice((*asked, *asked, "a[y, x] > 128", "x > 2", f"{self.number()} % 3 == 0"))
        return f"{found} {self.r.choice(('and', 'or'))} {self.r.choice(asked)}" if self.r.random() < 0.2 else found

    def statement(self, depth: int = 0) -> list[str]:
        r = self.r
        kinds = [m for m in self.names if m != "t"] * 3 + ["t"] * ("t" in self.names) + ["k", "out"]
        kinds += ["if"] * (depth < 2) + ["use"] * (r.random() < 0.06) + ["leave"] * (depth == 1 and r.random() < 0.2)
        name = r.choice(kinds)
        match name:
            case "d" | "q":
                key = self.key(name)
                return r.choice((
                    [f"{name}[{key}] = {name}.get({key}, 0) + {self.number()} % 100"],
                    [f"if {key} in {name}:", f"    {name}[{key}] += 1", "else:", f"    {name}[{key}] = len({name}) + 1"],
                    [f"if {key} not in {name}:", f"    {name}[{key}] = len({name})", f"out[y, x] = {name}[{key}]"],
                    [f"k = {name}.setdefault({key}, len({name}))"],
                    [f"{name}[{key}] = {self.number()}"],
                    [f"{name}[{key}] += {self.number()}"],
                ))  # fmt: skip
            case "f":
                key = self.key(name)
                return [r.choice((f"f[{key}] = f.get({key}, 0.25) + float(a[y, x]) / 3", f"f[{key}] = k * 0.5",
                                  f"f[{key}] = f.get({key}, 0) + a[y, x] * 0.5", f"f[{key}] += a[y, x] / 4"))]  # fmt: skip
            case "v":
                key = self.key(name)
                return r.choice((
                    [f"n, z = v.get({key}, (0, 0))", f"v[{key}] = n + 1, z + x"],
                    [f"if {key} in v:", f"    n, z = v[{key}]", f"    v[{key}] = min(n, x), max(z, y)",
                     "else:", f"    v[{key}] = x, y"],
                ))  # fmt: skip
            case "s" | "p":
                return [f"{name}.add({self.key(name)})"]
            case "t":
                return [r.choice((f"out[y, x] += t.get({self.key('t')}, 0)", f"k += t[{self.key('t')}] % 7"))]
            case "k":
                return [r.choice((f"k = {self.number()}", "k += 1", "k += x"))]
            case "out":
                return [f"out[y, x] {r.choice(('=', '+='))} {self.number()}"]
            case "use":
                return [r.choice(OTHER_USES).format(key=self.key("d"))]
            case "leave":
                return [f"if {self.condition()}: {r.choice(('break', 'continue'))}"]
        found = [f"if {self.condition()}:", *("    " + line for line in self.statement(depth + 1))]
        return found + (["else:", *("    " + line for line in self.statement(depth + 1))] if r.random() < 0.4 else [])

    def source(self) -> str:
        r = self.r
        lines = [
            "import collections",
            "def f(a):",
            "    h, w = a.shape",
            "    k = n = z = 0",
            "    out = np.zeros(a.shape)",
        ]
        begins = [f"{m} = {r.choice(BEGINS[m])}" for m in self.names]
        inside = [begins.pop()] if r.random() < 0.2 else []
        lines += [f"    {s}" for s in begins + inside]
        if "s" in self.names and r.random() < 0.2:
            lines.append("    s.add(h // 2)")
        lines.append(f"    for y in {r.choice(('range(h)', 'range(1, h)', 'reversed(range(h))'))}:")
        lines += [f"        {s}" for s in inside]
        lines.append(f"        for x in {r.choice(('range(w)', 'range(1, w)', 'range(w - 1, -1, -1)'))}:")
        for _ in range(r.randint(1, 3)):
            lines += ["            " + line for line in self.statement()]
        after = r.choice(
            ("", "", "k = sorted(d.items())[:3]", "k = [v for v in s]", "k = max(d, key=d.get, default=0)")
        )
        used = "\n".join(lines[5 + len(self.names) - len(inside) :])
        own = [m for m in self.names if m != "t" and re.search(rf"\b{m}(\[|\.[as])", used)]
        own = [m for m in own if not inside or not inside[0].startswith(m) or r.random() < 0.3]
        if after and after[after.index("(") + 1 if "(" in after else -2] in own:
            lines.append(f"    {after}")
        return "\n".join([*lines, f"    return k, out, {', '.join([*own, 'len(out)'])}"])


def outcome(f: Callable[..., Any], a: Array) -> Any:
    try:
        return f(a)
    except (KeyError, TypeError, UnboundLocalError, NameError, ValueError, AttributeError, RuntimeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", seeds(4, 80))
def test_random_loops_over_dicts(seed: int) -> None:
    text = Dicts(seed).source()
    f = with_source(text, f"<dicts {seed}>")
    pipe = compiled(f, on_unsupported="break")
    for k, (shape, most) in enumerate((((9, 7), 256), ((19, 18), 9), ((9, 7), 40), ((1, 1), 5))):
        a = np.random.default_rng((seed, k)).integers(0, most, shape).astype(np.uint8)
        ours, theirs = (outcome(g, a.copy()) for g in (pipe, f))
        assert alike(ours, theirs), (text, ours, theirs)
    assert collections  # the functions name it
