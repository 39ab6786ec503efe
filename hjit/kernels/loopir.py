"""The loop IR: what the back ends print. Indices are polynomials over loop variables (`Var`) and run-time sizes.

    Stmt = For(var, ranges, step, kind, body) | Store(buffer, index, value) | Reduce(...) | Block
    Program = nests, one for each root of the schedule tree, run in order
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.graph import Expr, describe
from hjit.trace.poly import Poly, Var

Range = tuple[Poly, Poly]


@dataclass(frozen=True, slots=True)
class Put:
    """``buffer[index] = value``."""

    buffer: str
    index: tuple[Poly, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(begin, end, step)``, over one or two ranges after each other.

    kind "vector": the lanes are ``var .. var + step - 1``. "parallel": the driver splits the range into tasks.
    """

    var: Var
    ranges: tuple[Range, ...]
    step: int
    kind: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """``buffer[index] = op over loops of value, starting from the initial value``, accumulated in registers.

    Attributes:
        op: the associative ufunc.
        initial: what the target starts from: an expression, or a load of the target itself.
        dtype: of the accumulator.
        compensated: is the rounding error of each addition carried along (Neumaier's sum)?
        loops: headers of the reduction loops, outermost first, their bodies empty; the innermost may be a vector loop.
        dtype_out: dtype that op's result has; the accumulator is cast to it at the end.
    """

    buffer: str
    index: tuple[Poly, ...]
    op: str
    initial: Expr
    loops: tuple[For, ...]
    value: Expr
    dtype: np.dtype[Any]
    compensated: bool
    dtype_out: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Slide:
    """``for var in [max(low, done), high)``, where `done` is how far earlier steps of the task have come.

    The stage's line buffer keeps the rows that earlier steps computed.
    """

    stage: str
    var: Var
    low: Poly
    high: Poly
    body: tuple[Stmt, ...]


Stmt = For | Put | Reduce | Slide


@dataclass(frozen=True, slots=True)
class Nest:
    """One root of the schedule tree.

    Attributes:
        parallel: the outermost loop, whose range the driver splits; None: the body runs once.
        work: estimated operations of one iteration of it.
        lines: stages kept in line buffers -> their rows, a power of two.
    """

    stage: str
    body: tuple[Stmt, ...]
    parallel: For | None
    work: Poly
    lines: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """The nests of a kernel, in order."""

    nests: tuple[Nest, ...]

    def __str__(self) -> str:
        return "\n".join(line for nest in self.nests for line in _nest_lines(nest))


def _nest_lines(nest: Nest) -> Iterator[str]:
    kept = ", ".join(f"{rows} rows of {stage}" for stage, rows in nest.lines.items())
    yield f"nest {nest.stage}:" + (f" keeps {kept}" if kept else "")
    if nest.parallel is not None:
        a, b = nest.parallel.ranges[0]
        yield f"  parallel {nest.parallel.var} in [{a}, {b}):"
    for s in nest.body:
        yield from lines(s, 1 if nest.parallel is None else 2)


def lines(s: Stmt, depth: int) -> Iterator[str]:
    """A statement as indented text."""
    pad = "  " * depth
    match s:
        case For(var, ranges, step, kind, body):
            where = ", ".join(f"[{a}, {b})" for a, b in ranges)
            yield f"{pad}{kind} {var} in {where}" + (f" step {step}" if step != 1 else "") + ":"
            for t in body:
                yield from lines(t, depth + 1)
        case Slide(stage, var, low, high, body):
            yield f"{pad}slide {stage} {var} in [{low}, {high}):"
            for t in body:
                yield from lines(t, depth + 1)
        case Put(buffer, index, value):
            lets, text = describe(value)
            yield from (f"{pad}{line}" for line in lets)
            yield f"{pad}{buffer}[{', '.join(map(str, index))}] = {text}"
        case Reduce():
            loops = " ".join(f"{x.kind} {x.var}<{x.ranges[-1][1]}" for x in s.loops)
            how = "compensated " if s.compensated else ""
            yield f"{pad}{s.buffer}[{', '.join(map(str, s.index))}] = {how}{s.op} in {s.dtype} from {s.initial} for {loops}:"
            lets, text = describe(s.value)
            yield from (f"{pad}  {line}" for line in [*lets, text])
