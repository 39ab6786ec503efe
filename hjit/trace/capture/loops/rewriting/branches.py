"""Conditions in loops of programs, written so that both sides are traced one after the other, as loops inside are.

Paths through an iteration are as many as the outcomes of all its conditions together. Where they are too many,
``if c: a else: b`` is ``for _ in once(c): a`` and ``for _ in otherwise(c): b``, of which one has an iteration: what it
changes is carried, and the iteration goes on on one path. So are the parts of ``c and d``, and of ``x < y < z``.
Where the condition is known, or no program is recorded, Python decides as it did.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.capture.loops.bytecode import BEGIN, CHOOSES, JOINED, ONCE, OTHERWISE, TRUTH, UNSET
from hjit.trace.capture.loops.elements import UNBOUND
from hjit.trace.capture.loops.iterators import traced_loop
from hjit.trace.capture.loops.rerolling import Iterations, outcome_of
from hjit.trace.capture.loops.rewriting.choices import is_test
from hjit.trace.capture.loops.rewriting.syntax import (
    SCOPES,
    assign,
    call_of,
    if_statement,
    load,
    placed,
    renamed,
    set_by,
)
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.tracer import Tracer, call, is_tracer, stage_of
from hjit.trace.tracing.recording.recorder import current, tracing

MAX_BRANCHES = 8000  # sides of conditions that are traced, on all paths: each takes a millisecond or less (chosen)
_JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
_ONE = (None,)


# -- what the functions call


def truth(x: Any, part: int) -> Any:
    """Whether a part of a condition holds: a computed bool in a program, elsewhere a known one."""
    is_computed = is_tracer(x) and not x.ndim and x.known is None and tracing() and current().records_program
    if not is_computed:
        return np.bool_(bool(x))
    found = x if x.dtype == bool else call(np.not_equal, x, 0)
    name = stage_of(found) if found.index else found.buffer.version
    found = Tracer(TracedBuffer((), found.dtype, name), (), (), is_scalar=True)
    current().rerolled.parts[sys._getframe(1).f_code, part] = found.buffer.version
    return found


def begin(*parts: int) -> None:
    """A condition of several parts is evaluated now."""
    if tracing():
        for part in parts:
            current().rerolled.parts.pop((sys._getframe(1).f_code, part), None)


def unset() -> Any:
    """The value of a variable that has none before a condition, and one after it."""
    return UNBOUND


def joined(held: Any, is_and: bool, *parts: int) -> Any:
    """A condition of several parts: where ``a and b`` holds so do both, where ``a or b`` does not neither does."""
    if is_tracer(held):
        known, code = current().rerolled.parts, sys._getframe(1).f_code
        found = tuple(known[code, part] for part in parts if (code, part) in known)
        current().rerolled.implied[held.buffer.version, is_and] = found
    return held


def once(held: Any) -> Iterable[Any]:
    """One iteration where a condition holds, or none."""
    return _branch(held, True)


def otherwise(held: Any) -> Iterable[Any]:
    """One iteration where it does not."""
    return _branch(held, False)


def _branch(held: Any, outcome: bool) -> Iterable[Any]:
    if not is_tracer(held):
        return _ONE if bool(held) is outcome else ()
    known = outcome_of(current(), held)
    if known is not None:
        return _ONE if known is outcome else ()
    rec = current()
    rec.rerolled.branches += 1
    if rec.rerolled.branches > MAX_BRANCHES:
        raise rec.loops[-1].refusal("too many conditions in an iteration")
    found = traced_loop(sys._getframe(2), Iterations(0, 1, 1, condition=held, holds=outcome))
    if found is None:
        raise rec.loops[-1].refusal("a condition in it cannot be traced as a loop")
    return found


# -- the functions


@dataclass
class Branches:
    """Changes the conditions in the loops of a function.

    Attributes:
        count: of changed conditions.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt], known: frozenset[str], in_loop: bool = False) -> list[ast.stmt]:
        """Statements, changed; `known`: variables that have values before them."""
        found: list[ast.stmt] = []
        for s in map(if_statement, body):
            match s:
                case ast.For() | ast.While():
                    inside = known | (set_by([s.target]) if isinstance(s, ast.For) else frozenset())
                    s.body = self.block(_without_continue(s.body), inside, True)
                    s.orelse = self.block(s.orelse, known, in_loop)
                case ast.If() if in_loop and not _is_own(s.test) and not any(map(_is_left, (s.body, s.orelse))):
                    found += self._branched(s, known)
                    known |= _surely_set([s])
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=test) if (
                    in_loop and is_test(name) and _has_parts(test)
                ):
                    found += [placed(x, s) for x in self._tested(test, name)]
                    continue
                case ast.If() | ast.With() | ast.Try():
                    for name in ("body", "orelse", "finalbody"):
                        if getattr(s, name, None):
                            setattr(s, name, self.block(getattr(s, name), known, in_loop))
            known |= _surely_set([s])
            found.append(s)
        return found

    def _branched(self, s: ast.If, known: frozenset[str]) -> list[ast.stmt]:
        self.count += 1
        k, held = self.count, f".held{self.count}"
        new = {n: f".value{k}.{n}" for n in sorted((_surely_set(s.body) & _surely_set(s.orelse)) - known)}
        found = [*self._tested(s.test, held), *(assign(own, call_of(UNSET)) for own in new.values())]
        for body, begin in ((s.body, ONCE), (s.orelse, OTHERWISE)):
            if body:
                found.append(_for(begin, held, [renamed(x, new) for x in self.block(body, known, True)]))
        found += [assign(n, load(own)) for n, own in new.items()]
        return [placed(x, s.test) for x in found]

    def _tested(self, e: ast.expr, held: str) -> list[ast.stmt]:
        """Set a variable to whether an expression holds, evaluating what Python would."""
        found, parts = self._in_parts(e, held)
        if len(parts) > 1:
            is_and = not (isinstance(e, ast.BoolOp) and isinstance(e.op, ast.Or))
            numbers = [ast.Constant(k) for k in (is_and, *parts)]
            found.insert(0, ast.Expr(call_of(BEGIN, *numbers[1:])))
            found.append(assign(held, call_of(JOINED, held, *numbers)))
        return found

    def _in_parts(self, e: ast.expr, held: str) -> tuple[list[ast.stmt], list[int]]:
        """Statements for that, and the numbers of the parts that all hold, or all do not."""
        match e:
            case ast.BoolOp(op=op, values=[first, *others]):
                begin = ONCE if isinstance(op, ast.And) else OTHERWISE
                found, parts = self._of(first, held, op)
                for x in others:
                    inner, more = self._of(x, held, op)
                    found.append(_for(begin, held, inner))
                    parts += more
                return found, parts
            case ast.Compare(left=left, ops=[op, *ops], comparators=[right, *rights]) if ops:
                self.count += 1
                a, b = f".value.left{self.count}", f".value.right{self.count}"
                found, parts = self._in_parts(ast.Compare(load(a), [op], [load(b)]), held)
                rest, more = self._in_parts(ast.Compare(load(b), ops, rights), held)
                return [assign(a, left), assign(b, right), *found, _for(ONCE, held, rest)], parts + more
        self.count += 1
        return [assign(held, call_of(TRUTH, e, ast.Constant(self.count)))], [self.count]

    def _of(self, e: ast.expr, held: str, op: ast.boolop) -> tuple[list[ast.stmt], list[int]]:
        """A part of a condition: the parts of a conjunction in one are parts of it, too."""
        is_other = isinstance(e, ast.BoolOp) and type(e.op) is not type(op)
        is_chain = isinstance(e, ast.Compare) and len(e.ops) > 1 and isinstance(op, ast.Or)
        return (self._tested(e, held), []) if is_other or is_chain else self._in_parts(e, held)


def _has_parts(e: ast.expr) -> bool:
    """Is a condition one of those that are evaluated one after the other?"""
    return isinstance(e, ast.BoolOp) or (isinstance(e, ast.Compare) and len(e.ops) > 1)


def _is_own(test: ast.expr) -> bool:
    """Is a condition one that `choices` has made?"""
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == CHOOSES


def _without_continue(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements at the end of an iteration, where ``if c: continue`` has what follows on its other side."""
    for k, s in enumerate(body):
        if not isinstance(s, ast.If):
            continue
        ends = [bool(side) and isinstance(side[-1], ast.Continue) for side in (s.body, s.orelse)]
        if any(ends):
            rest = [] if all(ends) else list(body[k + 1 :])
            for name, is_end in zip(("body", "orelse"), ends, strict=True):
                side = getattr(s, name)
                side = side[:-1] if is_end else [*side, *rest]
                setattr(s, name, _without_continue(side))
            s.body = s.body or [ast.copy_location(ast.Pass(), s)]
            return list(body[: k + 1])
        if k == len(body) - 1:
            s.body, s.orelse = _without_continue(s.body), _without_continue(s.orelse)
    return list(body)


def _is_left(body: Sequence[ast.stmt]) -> bool:
    """Do statements leave what they are in?"""

    def leaves(x: ast.AST, in_loop: bool) -> bool:
        if isinstance(x, SCOPES):
            return False
        if isinstance(x, _JUMPS):
            return not in_loop or not isinstance(x, ast.Break | ast.Continue)
        inside = in_loop or isinstance(x, ast.For | ast.While)
        return any(leaves(y, inside) for y in ast.iter_child_nodes(x))

    return any(leaves(s, False) for s in body)


def _surely_set(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The variables that have values after statements, whichever way they go."""
    found = frozenset[str]()
    for s in body:
        match s:
            case ast.Assign(targets=targets):
                found |= set_by(targets)
            case ast.If():
                found |= _surely_set(s.body) & _surely_set(s.orelse)
    return found


def _for(begin: str, held: str, body: Sequence[ast.stmt]) -> ast.stmt:
    return ast.For(ast.Name(".once", ast.Store()), call_of(begin, held), list(body), [], None)
