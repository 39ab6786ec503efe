"""Loops over one of two ranges, as serpentine scans have them, written as one loop for each range.

``for x in range(w) if y % 2 == 0 else reversed(range(w)): ...`` becomes ``if y % 2 == 0: for x in range(w): ...``, and
``else: for x in reversed(range(w)): ...``; so does a loop over a variable that the statement before it, which may be an
``if``, sets to one of two ranges.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.rewriting.syntax import SCOPES, call_of, mentions, placed, set_by, walk
from hjit.trace.splitting.source import copied

_BLOCKS = ("body", "orelse", "finalbody")


@dataclass
class Directions:
    """Changes the loops of a function.

    Attributes:
        count: of changed loops.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The body of a function, changed."""
        names = [x.id for x in walk(*body) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)]
        return self._block(body, Counter(names))

    def _block(self, body: Sequence[ast.stmt], reads: Counter[str]) -> list[ast.stmt]:
        """A block; `reads`: in how many places the function reads its variables."""
        found: list[ast.stmt] = []
        for s in body:
            if not isinstance(s, SCOPES):
                for name in _BLOCKS:
                    inside = getattr(s, name, None)
                    if isinstance(inside, list) and inside:
                        setattr(s, name, self._block(inside, reads))
            between = _between(s, found)
            before = found[: len(found) - len(between)]
            ways = _ways(s, before, reads) if isinstance(s, ast.For) and not s.orelse else None
            if ways is None or (between and not _is_free_of(ways, between)):
                found.append(s)
                continue
            self.count += 1
            found = [*before[: len(before) - ways.statements], *between]
            sides = [[_over(s, r)] for r in (ways.yes, ways.no)]
            found.append(placed(ast.If(ways.test, *sides), s))
        return found


@dataclass(frozen=True, slots=True)
class _Ways:
    """A loop over one of two ranges.

    Attributes:
        test: the condition that says which.
        yes: the range where it holds, and
        no: where it does not.
        statements: how many before the loop say that.
    """

    test: ast.expr
    yes: ast.expr
    no: ast.expr
    statements: int


def _between(loop: ast.stmt, before: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements before a loop that set other variables than the one that it goes over."""
    found: list[ast.stmt] = []
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Name):
        for s in reversed(before):
            if not isinstance(s, ast.Assign) or loop.iter.id in set_by([s]):
                break
            found.insert(0, s)
    return found


def _is_free_of(ways: _Ways, between: Sequence[ast.stmt]) -> bool:
    """May what says where a loop goes be evaluated after other statements?"""
    parts = [x for e in (ways.test, ways.yes, ways.no) for x in ast.walk(e)]
    names = {x.id for x in parts if isinstance(x, ast.Name)}
    functions = [x.func for x in parts if isinstance(x, ast.Call)]
    is_plain = all(isinstance(f, ast.Name) and f.id in _PLAIN for f in functions)
    return is_plain and names.isdisjoint(set_by(between))


_PLAIN = frozenset(("range", "reversed", "len"))


def _ways(loop: ast.For, before: Sequence[ast.stmt], reads: Counter[str]) -> _Ways | None:
    """What a loop goes over; None where that is nothing of the kind."""
    last = before[-1] if before else None
    match loop.iter, last:
        case ast.IfExp(test=test, body=a, orelse=b), _:
            count, times = 0, 0
        case ast.Name(id=name), ast.Assign(
            targets=[ast.Name(id=other)], value=ast.IfExp(test=test, body=a, orelse=b)
        ) if name == other:
            count, times = 1, 1
        case ast.Name(id=name), ast.If(test=test, body=[one], orelse=other_side):
            first = _set(one, name)
            earlier = other_side if len(other_side) == 1 else before[-2:-1] if not other_side else []
            second = _set(earlier[0], name) if earlier else None
            if first is None or second is None or mentions(test, name):
                return None
            a, b, count = first, second, 1 if other_side else 2
            times = 1 + mentions(a, name)
            if mentions(a, name) and not other_side:  # the other range, reversed
                a = _with(a, name, b)
        case _:
            return None
    yes, no = _range(a), _range(b)
    if yes is None or no is None or (isinstance(loop.iter, ast.Name) and reads[loop.iter.id] != times):
        return None
    return _Ways(test, yes, no, count)


def _set(s: ast.stmt, name: str) -> ast.expr | None:
    """What a statement sets a variable to."""
    match s:
        case ast.Assign(targets=[ast.Name(id=own)], value=value) if own == name:
            return value
    return None


def _with(e: ast.expr, name: str, value: ast.expr) -> ast.expr:
    """``reversed(name)`` or ``name[::-1]`` of another range."""
    match e:
        case ast.Call(func=ast.Name(id="reversed") as f, args=[ast.Name(id=own)], keywords=[]) if own == name:
            return ast.copy_location(ast.Call(f, copied([value]), []), e)
        case ast.Subscript(value=ast.Name(id=own), slice=at, ctx=ctx) if own == name:
            return ast.copy_location(ast.Subscript(copied([value])[0], at, ctx), e)
    return e


def _range(e: ast.expr) -> ast.expr | None:
    """A range, or a reversed one, as it is iterated over; None of anything else."""
    match e:
        case ast.Call(func=ast.Name(id="range"), keywords=[]):
            return e
        case ast.Call(func=ast.Name(id="reversed"), args=[ast.Call(func=ast.Name(id="range"), keywords=[])]):
            return e
        case ast.Subscript(
            value=ast.Call(func=ast.Name(id="range"), keywords=[]) as inner,
            slice=ast.Slice(lower=None, upper=None, step=step),
        ):
            match step:
                case None | ast.Constant(value=1):
                    return inner
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
                    return placed(call_of("reversed", inner), e)  # type: ignore[no-any-return]
    return None


def _over(loop: Any, iterated: ast.expr) -> ast.stmt:
    found: ast.For = copied([loop])[0]
    found.iter = iterated
    return found
