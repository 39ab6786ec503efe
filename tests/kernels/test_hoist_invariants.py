"""What the iterations of a loop compute alike is computed before it, once."""

from __future__ import annotations

from typing import Any

import numpy as np

import hjit
from hjit.kernels.lower.loopir import Choose, For, Let
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.hoist_invariants import hoist_invariants
from hjit.kernels.lower.program import Nest
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import FloorDiv, Var, extremum, poly
from tests.numpy_check import check

RNG = np.random.default_rng(3)
GRAY = RNG.random((30, 47), np.float32)


def loops(function: Any, *args: Any, **options: Any) -> list[str]:
    text = str(hjit.pipeline(function, tune=False, cache="off", **options).loops(*args))
    return [line for line in text.splitlines() if line.strip()]


def depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_a_value_of_rows_is_computed_once_a_row() -> None:
    def scaled(a: Any, k: Any) -> Any:
        return a * np.sqrt(k)[:, None] + np.exp(k[0])

    text = loops(scaled, GRAY, GRAY[:, 0].copy())
    row = next(line for line in text if "for d0 in" in line)
    column = next(line for line in text if " d1 in [" in line)
    (of_all,) = (line for line in text if " = exp(" in line)
    (of_row,) = (line for line in text if " = sqrt(" in line)
    assert depth(of_all) == depth(row) < depth(of_row) == depth(column)
    check(scaled, GRAY, GRAY[:, 0].copy(), exact=False)


def test_what_a_loop_writes_stays_inside() -> None:
    def running(a: Any) -> Any:
        out = a.copy()
        for y in range(1, a.shape[0]):
            out[y] = out[y - 1] * 0.5 + np.sqrt(out[0])
        return out

    text = loops(running, GRAY)
    assert not any(line.lstrip().startswith("%invariant") and "out" in line for line in text)
    check(running, GRAY)


def test_two_loops_with_one_invariant_have_it_both() -> None:
    def limited(a: Any) -> Any:
        return np.minimum(a, np.invert(np.uint8(20))) + 20  # vectors, and what they leave over

    check(limited, RNG.integers(0, 256, (9, 133), np.uint8))
    text = loops(limited, RNG.integers(0, 256, (9, 133), np.uint8))
    named = {line.split(" = ")[0].strip() for line in text if line.lstrip().startswith("%invariant")}
    used = {word.strip("(),") for line in text for word in line.split() if word.startswith("%invariant")}
    assert used <= named


def test_names_of_indices_go_out_of_loops_that_they_do_not_depend_on() -> None:
    y, x, n, low, high, at, share = map(poly, map(Var, ("y", "x", "n", "low", "high", "at", "share")))

    def var(p: Any) -> Var:
        return next(a for a in p.atoms() if isinstance(a, Var))

    of_all = Let(var(low), extremum("max", n - 4, poly(0)))
    of_all_too = Choose(var(high), n - 9, low + 2, low)
    of_row = Let(var(at), low + y)
    may_fail = Let(var(share), poly(FloorDiv(poly(7), n)))
    columns = For(var(x), low, high, 1, (of_all_too, of_row, may_fail))
    rows = For(var(y), poly(0), n, 1, (of_all, columns))
    nest = Nest("stage", (rows,), None, poly(1))
    first, second, loop = hoist_invariants(nest, Graph((), (), (), ()), Machine()).body
    assert (first, second) == (of_all, of_all_too)
    assert isinstance(loop, For) and loop.var == var(y)
    assert loop.body[0] == of_row
    (inner,) = loop.body[1:]
    assert isinstance(inner, For) and inner.body == (may_fail,)
