"""Programs: sequential loops whose iterations do one step after the other, as Python does.

    Program = inputs: array*, arrays: array*, body: Step*
    Step    = Define(stage) | Update(array, definition) | Branch(condition, yes, no) | Loop(var, begin, end, body)
            | Refuse(condition)

What a Graph says of loops that no stage can say, as their iterations have loops inside one after the other, or slices
whose lengths move with them. Indices, extents and the bounds of loops are polynomials over run-time sizes and the
variables of the loops around (`Var`). Where an extent is negative, there is nothing along that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.graph import Definition, Input, Stage
from hjit.trace.ir.poly import Poly, Var


@dataclass(frozen=True, slots=True)
class Define:
    """A temporary, made anew: all its elements, and then its updates one after the other."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class Update:
    """``array[target] = value`` for all points of a definition; a pure one evaluates all values first."""

    array: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Branch:
    """One of two bodies, by a bool without axes."""

    condition: Expr
    yes: tuple[Step, ...]
    no: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in range(begin, end)``: it ends before an iteration in front of which `until` holds.

    Its ends may be computed, by `hjit.trace.ir.poly.Indirect`; that happens once.
    """

    var: Var
    begin: Poly
    end: Poly
    body: tuple[Step, ...]
    until: Expr | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Where a condition holds, what the program computes does not count: NumPy refuses it."""

    condition: Expr


Step = Define | Update | Branch | Loop | Refuse


@dataclass(frozen=True, slots=True)
class Program:
    """Loops, one after the other.

    Attributes:
        inputs: arrays that are read only.
        arrays: those that are changed: they hold what they held before, and then what the program leaves in them.
        local: arrays of the program itself, whose contents at its begin do not matter.
    """

    inputs: tuple[Input, ...]
    arrays: tuple[Stage, ...]
    local: tuple[Stage, ...]
    body: tuple[Step, ...]

    def __str__(self) -> str:
        heads = [f"input {i.name}: {i.dtype}[{', '.join(map(str, i.shape))}]" for i in self.inputs]
        heads += [f"{how} {s.name}: {s.dtype}[{', '.join(map(str, s.shape))}]"
                  for how, part in (("array", self.arrays), ("local", self.local)) for s in part]  # fmt: skip
        return "\n".join([*heads, *lines(self.body)])


def lines(body: Iterable[Step], depth: int = 0) -> Iterator[str]:
    """A body as text."""
    space = "    " * depth
    for s in body:
        match s:
            case Define():
                text = str(replace(s.stage, origin=None))
                yield from (space + line for line in text.splitlines())
            case Update():
                yield f"{space}{s.array}{s.definition}"
            case Refuse():
                yield f"{space}refuse if {s.condition}"
            case Branch():
                yield f"{space}if {s.condition}:"
                yield from lines(s.yes, depth + 1)
                yield f"{space}else:"
                yield from lines(s.no, depth + 1)
            case Loop():
                until = "" if s.until is None else f" until {s.until}"
                yield f"{space}for {s.var} in [{s.begin}, {s.end}){until}:"
                yield from lines(s.body, depth + 1)


def every(body: Iterable[Step]) -> Iterator[Step]:
    """All steps, those around others first."""
    for s in body:
        yield s
        for part in inner(s):
            yield from every(part)


def inner(s: Step) -> tuple[tuple[Step, ...], ...]:
    """The bodies of a step."""
    match s:
        case Loop():
            return (s.body,)
        case Branch():
            return s.yes, s.no
    return ()


def with_bodies(s: Step, change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Step:
    """A step with other steps inside it."""
    match s:
        case Loop():
            return replace(s, body=change(s.body))
        case Branch():
            return replace(s, yes=change(s.yes), no=change(s.no))
    return s


def definitions(s: Step) -> tuple[Definition, ...]:
    """The definitions of a step itself."""
    match s:
        case Define():
            return s.stage.definitions
        case Update():
            return (s.definition,)
    return ()


def exprs(s: Step) -> tuple[Expr, ...]:
    """The expressions that a step itself evaluates, but for those of steps inside it."""
    match s:
        case Define():
            return s.stage.exprs()
        case Update():
            return s.definition.exprs()
        case Branch() | Refuse():
            return (s.condition,)
        case Loop():
            ends = tuple(e for p in (s.begin, s.end) for e in p.exprs)
            return ends if s.until is None else (*ends, s.until)
    return ()
