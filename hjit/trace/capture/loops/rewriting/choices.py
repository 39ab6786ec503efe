"""Conditions that only choose numbers, written so that both sides are computed and one is selected.

Where paths through an iteration are many, as each condition doubles them, conditions that set variables to sums,
products and the like of others need no paths of their own: ``if c: n += 1`` is ``n = choose(c, n + 1, n)``. Where the
condition or the variables are something else, Python decides as it did.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.capture.loops.bytecode import BOTH, CHOOSE, CHOOSES, EITHER
from hjit.trace.capture.loops.carried import Kind, element
from hjit.trace.capture.loops.rewriting.syntax import assign, call_of, if_statement, load, placed, renamed, set_by
from hjit.trace.ir.expressions import select
from hjit.trace.splitting.source import copied
from hjit.trace.tracing.arrays.tracer import Tracer, call, from_stage, is_tracer
from hjit.trace.tracing.recording.recorder import current, tracing

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_BY_NUMBERS = (ast.Div, ast.FloorDiv, ast.Mod, ast.RShift, ast.LShift)  # these raise for some right operands
_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_CALLED = ("max", "min", "abs")


# -- what the functions call


def chooses(condition: Any, *values: Any) -> bool:
    """Is a condition computed, in a loop where both sides of it are, and are the variables numbers?"""
    if not tracing() or not _is_number(condition) or (condition.known is not None and not current().loops):
        return False
    kinds = map(Kind.of, values)
    return all(kind is not None and kind.is_number for kind in kinds)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """One of two values; where they are numbers of one kind, both are computed."""
    if yes is no:
        return yes
    kind = Kind.of(yes)
    if kind is None or kind != Kind.of(no) or kind.dtype is None or not kind.is_number:
        return yes if condition else no
    rec = current()
    holds = condition.load() if condition.dtype == bool else (condition != 0).load()
    value = select(holds, element(rec, yes, kind.dtype), element(rec, no, kind.dtype))
    found = Tracer(from_stage(value, (), kind.dtype, name="chosen").buffer, (), (), is_scalar=True)
    found.weak = kind.weak
    return found


def both(a: Any, b: Any) -> Any:
    """``a and b``, where evaluating `b` does no harm."""
    if type(b) is bool and _is_condition(a):
        return a if b else b
    return call(np.logical_and, a, b) if _is_condition(a) and _is_condition(b) else a and b


def either(a: Any, b: Any) -> Any:
    """``a or b``, likewise."""
    if type(b) is bool and _is_condition(a):
        return b if b else a
    return call(np.logical_or, a, b) if _is_condition(a) and _is_condition(b) else a or b


def _is_condition(x: Any) -> bool:
    return _is_number(x) and x.dtype == bool


def _is_number(x: Any) -> bool:
    if not is_tracer(x) or x.dtype.kind not in "biuf" or x.ndim:
        return False
    rec = current()
    return bool(rec.loops) or rec.attempt.chooses_unrolled


# -- the functions


@dataclass
class Choices:
    """Changes the conditions in the loops of a function.

    Attributes:
        local: the variables of the function.
        count: of changed conditions.
    """

    local: frozenset[str]
    count: int = 0

    def block(self, body: Sequence[ast.stmt], known: frozenset[str], in_loop: bool = False) -> list[ast.stmt]:
        """Statements, changed; `known`: variables that have values before them."""
        found: list[ast.stmt] = []
        for s in map(_if_statement, body):
            match s:
                case ast.If() if in_loop and self._is_simple(s, known):
                    found += self._chosen(s, known)
                    known |= set_by([s])
                    continue
                case ast.For() | ast.While():
                    inside = known | _names_of(s.target) if isinstance(s, ast.For) else known
                    s.body = self.block(s.body, inside, True)
                    s.orelse = self.block(s.orelse, known, in_loop)
                case ast.If() | ast.With() | ast.Try():
                    if isinstance(s, ast.If) and in_loop:
                        s.test = self._test(s.test, known)
                    for name in ("body", "orelse", "finalbody"):
                        if getattr(s, name, None):
                            setattr(s, name, self.block(getattr(s, name), known, in_loop))
                case ast.Assign() | ast.AugAssign():
                    known |= set_by([s])
            found.append(s)
        return found

    def _chosen(self, s: ast.If, known: frozenset[str]) -> list[ast.stmt]:
        self.count += 1
        k = self.count
        test, names = f".test{k}", sorted(set_by(s.body) | set_by(s.orelse))
        own = [n for n in names if n in known]
        sides = []
        for side, body in (("yes", s.body), ("no", s.orelse)):
            new = {n: f".{side}{k}.{n}" for n in names}
            sides.append([assign(new[n], load(n)) for n in own])
            inner = self.block(copied(list(body)), known, True)
            sides[-1] += [renamed(x, new) for x in inner]
        values = [assign(n, call_of(CHOOSE, test, f".yes{k}.{n}", f".no{k}.{n}")) for n in names]
        plain = ast.If(load(test), s.body, s.orelse)
        chosen = ast.If(call_of(CHOOSES, test, *own), [*sides[0], *sides[1], *values], [plain])
        found: list[ast.stmt] = [assign(test, self._test(s.test, known)), chosen]
        return [placed(x, s.test) for x in found]

    def _test(self, e: ast.expr, known: frozenset[str]) -> ast.expr:
        """A condition, whose parts are evaluated together where that does no harm."""
        if not isinstance(e, ast.BoolOp) or not all(self._is_safe(x, known) for x in e.values[1:]):
            return e
        self.count += 1
        found = e.values[0]
        for x in e.values[1:]:
            found = ast.copy_location(call_of(BOTH if isinstance(e.op, ast.And) else EITHER, found, x), e)
            ast.copy_location(found.func, e)
        return found

    # -- what does no harm

    def _is_simple(self, s: ast.If, known: frozenset[str]) -> bool:
        """Do both sides only set variables, which all have values in the end, to what can be computed anyhow?"""
        sides = [self._after(body, known) for body in (s.body, s.orelse)]
        names = set_by(s.body) | set_by(s.orelse)
        return bool(names) and all(side is not None and names <= side for side in sides)

    def _after(self, body: Sequence[ast.stmt], known: frozenset[str]) -> frozenset[str] | None:
        """The variables that have values after statements; None where one is of another sort."""
        for s in map(_if_statement, body):
            match s:
                case ast.Pass():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_safe(value, known):
                    known |= {name}
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if (
                    len(names) == len(values)
                    and all(isinstance(x, ast.Name) for x in names)
                    and all(self._is_safe(x, known) for x in values)
                ):
                    known |= set_by([s])
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if (
                    name in known and self._is_total(op, value) and self._is_safe(value, known)
                ):
                    continue
                case ast.If() if self._is_safe(s.test, known) and self._is_simple(s, known):
                    known |= set_by([s])
                case _:
                    return None
        return known

    def _is_total(self, op: ast.operator, right: ast.expr) -> bool:
        """Does an operation of numbers raise nothing?"""
        match right:
            case ast.Constant(value=int() | float() as n) if 0 < n < 63:
                return isinstance(op, _OPERATORS + _BY_NUMBERS)
        return isinstance(op, _OPERATORS)

    def _is_safe(self, e: ast.expr, known: frozenset[str]) -> bool:
        """Can an expression of numbers be evaluated where Python would not?"""
        match e:
            case ast.Constant(value=value):
                return type(value) in (bool, int, float)
            case ast.Name(id=name):
                return name in known or name not in self.local
            case ast.BinOp(left=a, op=op, right=b):
                return self._is_total(op, b) and self._is_safe(a, known) and self._is_safe(b, known)
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self._is_safe(a, known)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant()):
                return name in known
            case ast.Compare(left=a, ops=[op], comparators=[b]):
                return isinstance(op, _COMPARED) and self._is_safe(a, known) and self._is_safe(b, known)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return name in _CALLED and name not in self.local and all(self._is_safe(x, known) for x in args)
        return False


def is_test(name: str) -> bool:
    """Does a variable that is added hold a condition?"""
    return name.startswith(".test")


def _if_statement(s: ast.stmt) -> ast.stmt:
    """``x = a if c else b`` or ``x += a if c else b``, of a variable, as the statement ``if``."""
    match s:
        case ast.Assign(targets=[ast.Name()]) | ast.AugAssign(target=ast.Name()):
            return if_statement(s)
    return s


def _names_of(e: ast.expr) -> frozenset[str]:
    return frozenset(x.id for x in ast.walk(e) if isinstance(x, ast.Name))
