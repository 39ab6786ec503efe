"""Random loops whose iterations have loops inside, write slices that move, branch, carry numbers and scatter."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.trace.nesting import with_source

NUMBERS = ("{m}[{i}, {j}]", "{v}[{i}]", "s", "t", "{m}[{i}, 0]", "{v}[n - 1 - {i}]", "2", "0.5", "{i}", "({i} - {j})")
ROWS = {  # slices of one length, by that; each with whether it may be written
    "{i}": ("{m}[{i}, :{i}]", "{m}[:{i}, {i}]", "{v}[:{i}]", "{m}[{j}, :{i}]", "{v}[:{i}][::-1]", "{m}[:{i}, {j}]"),
    "n - {i}": ("{m}[{i}, {i}:]", "{v}[{i}:]", "{m}[{i}:, {j}]", "{m}[{j}, {i}:]", "{v}[{i}:][::-1]"),
    "n - {i} - 1": ("{m}[{i}, {i} + 1:]", "{v}[{i} + 1:]", "{m}[{i} + 1:, {i}]", "{v}[: n - 1 - {i}]"),
    "n": ("{m}[{i}]", "{m}[:, {j}]", "{v}", "{m}[{i}, ::-1]", "np.flip({v})"),
    "{i} - {j}": ("{m}[{i}, {j}:{i}]", "{v}[{j}:{i}]", "{m}[{j}:{i}, {j}]"),
}
VALUES = ("{} + {}", "{} * 0.5 - {}", "np.maximum({}, {})", "abs({}) + {}", "{} - {} / 4", "np.where({} > 0, {}, 1)")


class Programs:
    """Random functions, deterministic by the seed."""

    def __init__(self, seed: int, has_sums: bool = False) -> None:
        self.r = random.Random(seed)
        self.seed, self.has_sums = seed, has_sums

    def filled(self, text: str, names: list[str]) -> str:
        i = self.r.choice(names)
        return text.format(m=self.r.choice("ab"), v=self.r.choice("uv"), i=i, j=self.r.choice(names))

    def number(self, names: list[str]) -> str:
        return self.filled(self.r.choice(NUMBERS), names)

    def row(self, length: str, i: str, j: str) -> str:
        return self.r.choice(ROWS[length]).format(m=self.r.choice("ab"), v=self.r.choice("uv"), i=i, j=j)

    def value(self, make: Callable[[], str]) -> str:
        form = self.r.choice(VALUES)
        return form.format(*(make() for _ in range(form.count("{}"))))

    def statement(self, names: list[str], depth: int) -> list[str]:
        r = self.r
        kind = r.random()
        i, j = r.choice(names), r.choice(names)
        if kind < 0.3:
            length = r.choice(list(ROWS))
            if length == "{i} - {j}" and len(names) < 2:
                length = "{i}"
            if length == "{i} - {j}":
                j, i = names[-2:]

            def make() -> str:
                return self.row(length, i, j) if r.random() < 0.7 else self.number(names)

            target = next(x for x in iter(lambda: self.row(length, i, j), "") if not x.startswith("np."))
            return [f"{target} {r.choice(('=', '=', '+=', '-=', '*='))} {self.value(make)}"]
        if kind < 0.4 and self.has_sums:
            length = r.choice(("{i}", "n - {i}", "n", "n - {i} - 1"))
            a, b = self.row(length, i, j), self.row(length, i, j)
            return [
                f"t = {r.choice((f'{a} @ {b}', f'np.dot({a}, {b})', f'({a}).sum() / 8', f'np.sum({a} * {b})'))} / 64"
            ]
        if kind < 0.55:
            target = self.filled(r.choice(("{m}[{i}, {j}]", "{v}[{i}]", "{v}[n - 1 - {j}]")), names)
            return [f"{target} {r.choice(('=', '+=', '-='))} {self.value(lambda: self.number(names))}"]
        if kind < 0.7:
            return [f"{r.choice('st')} {r.choice(('=', '='))} {self.value(lambda: self.number(names))} * 0.25"]
        if kind < 0.78:
            return [f"h[int(k[{i}])] {r.choice(('+=', '='))} {r.choice(('1', i, f'h[k[{j}]]'))}"]
        if kind < 0.88:
            body = self.block(names, depth + 1, r.randint(1, 2))
            other = [*self.block(names, depth + 1, 1)] if r.random() < 0.5 else []
            test = f"{self.number(names)} {r.choice(('>', '<='))} {self.number(names)}"
            return [f"if {test}:", *body, *(["else:", *other] if other else [])]
        if len(names) < 3 and depth < 3:
            name = "ijl"[len(names)]
            outer = names[-1]
            ends = r.choice(("n", outer, f"{outer}, n", f"{outer} + 1, n", f"{outer} - 1, -1, -1", f"k[{outer}], n"))
            return [f"for {name} in range({ends}):", *self.block([*names, name], depth + 1, r.randint(1, 3))]
        return [f"s = s * 0.5 + {self.number(names)}"]

    def block(self, names: list[str], depth: int, count: int) -> list[str]:
        return ["    " + line for _ in range(count) for line in self.statement(names, depth)]

    def text(self) -> str:
        lines = ["def f(a, b, u, v, k):", "    n = a.shape[0]", "    s = t = 0.0", "    h = np.zeros(n, np.int64)"]
        begin = self.r.choice(("n", "1, n", "n - 1, -1, -1"))
        lines += [f"    for i in range({begin}):"]
        lines += ["    " + line for line in self.block(["i"], 0, self.r.randint(2, 4))]
        lines += ["    return a, b, u, v, h, s, t"]
        return "\n".join(lines)

    def function(self) -> Callable[..., Any]:
        """The function, whose source is known."""
        return with_source(self.text(), f"<program {self.seed} {self.has_sums}>")
