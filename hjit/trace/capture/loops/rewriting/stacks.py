"""Lists and deques that loops take items from, written so that they may be arrays while the function is traced.

``stack = [(y, x)]`` is ``stack = stacked([(y, x)], "stack:7")``, and ``stack.append(x)`` is ``append(stack, x)``, where
nothing else has to do with it but ``pop``, ``popleft``, indices, ``len`` and conditions; see
`hjit.trace.tracing.arrays.stacks`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.bytecode import APPEND, STACKED
from hjit.trace.capture.loops.rewriting.appends import item_of
from hjit.trace.capture.loops.rewriting.syntax import (
    Made,
    call_of,
    is_fixed_index,
    is_read_inside_alone,
    made_by,
    placed,
    replace_value,
    value_of,
    walk,
)
from hjit.trace.tracing.arrays.stacks import stack_of
from hjit.trace.tracing.recording.recorder import current, tracing

MAX_ITEMS = 16  # that one is made of

# -- what the functions call


def stacked(x: Any, name: str) -> Any:
    """A list or a deque as arrays, while a function is traced; anything else as it is."""
    if not tracing() or not current().attempt.stacks_items or current().options.run_loops is None:
        return x
    if not hasattr(x, "append") or len(x) > MAX_ITEMS:
        return x
    return stack_of(x, (sys._getframe(1).f_code.co_filename, name), [item_of(y) for y in x])


# -- the functions

_TAKING = frozenset(("pop", "popleft"))


@dataclass
class Stacks:
    """Changes how a function makes lists that it takes items from.

    Attributes:
        count: of changed expressions.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The body of a function, changed in place."""
        taken = {x.func.value.id for x in _calls(body, _TAKING)}  # type: ignore[attr-defined]
        for name in sorted(taken | _grown_and_indexed(body)):
            makes = [pair for x in walk(*body) for pair in made_by(x, _is_new) if pair[0].id == name]
            if not makes or not _has_no_other_use(body, name, makes):
                continue
            for made in makes:
                value = value_of(made)
                replace_value(made, placed(call_of(STACKED, value, ast.Constant(f"{name}:{value.lineno}")), value))
                self.count += 1
            _Appending(name).visit(ast.Module(list(body), []))
        return list(body)


class _Appending(ast.NodeTransformer):
    """Has a function append what statements append to a list."""

    def __init__(self, name: str) -> None:
        self.name = name

    def generic_visit(self, node: ast.AST) -> ast.AST:
        items = _appended(node, self.name)
        if items is None:
            return super().generic_visit(node)
        new = call_of(APPEND, self.name, *items)
        new.keywords.append(ast.keyword("is_read", ast.Constant(True)))
        return placed(ast.Expr(new), node)  # type: ignore[no-any-return]


def _calls(body: Sequence[ast.stmt], methods: frozenset[str]) -> Iterator[ast.Call]:
    """Calls of methods of variables in loops."""
    for loop in walk(*body):
        if isinstance(loop, ast.While | ast.For):
            for x in walk(loop):
                match x:
                    case ast.Call(func=ast.Attribute(value=ast.Name(), attr=attr)) if attr in methods:
                        yield x


def _grown_and_indexed(body: Sequence[ast.stmt]) -> set[str]:
    """The variables that loops append to, and index at computed places."""
    inside = [x for loop in walk(*body) if isinstance(loop, ast.While | ast.For) for x in walk(loop)]
    grown = {x.func.value.id for x in _calls(body, frozenset(("append",)))}  # type: ignore[attr-defined]
    found = set()
    for x in [*inside, *(y for s in walk(*body) if isinstance(s, ast.FunctionDef) for y in ast.walk(s))]:
        match x:
            case ast.Subscript(value=ast.Name(id=name), slice=at) if name in grown and not is_fixed_index(at):
                found.add(name)
    return found


def _is_new(e: ast.expr) -> bool:
    match e:
        case ast.List(elts=elts):
            return not any(isinstance(x, ast.Starred) for x in elts)
        case ast.Call(func=ast.Name(id="list" | "deque") | ast.Attribute(attr="deque"), args=args, keywords=[]):
            return not args or (len(args) == 1 and isinstance(args[0], ast.List))
    return False


def _appended(s: ast.AST, name: str) -> Sequence[ast.expr] | None:
    """What ``name.append(x)``, ``name.extend([x, y])`` or ``name += [x, y]`` append; None of anything else."""
    match s:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr="append"), args=[item], keywords=[])
        ):
            found = [item]
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id=own), attr="extend"),
                args=[ast.List(elts=found) | ast.Tuple(elts=found)],
                keywords=[],
            )
        ):
            pass
        case ast.AugAssign(target=ast.Name(id=own), op=ast.Add(), value=ast.List(elts=found) | ast.Tuple(elts=found)):
            pass
        case _:
            return None
    return found if own == name and not any(isinstance(x, ast.Starred) for x in found) else None


def _has_no_other_use(body: Sequence[ast.stmt], name: str, makes: Sequence[Made]) -> bool:
    """Is a list used by nothing but its methods, ``len``, indices and conditions, and by what is made of it after all?

    Functions inside may use it, too, where they do not set the variable.
    """
    own = {id(m[0]) for m in makes}
    if not is_read_inside_alone(body, name):
        return False
    every = [y for s in body for y in ast.walk(s)]
    for x in every:
        if _appended(x, name) is not None:
            own.add(id(x.target if isinstance(x, ast.AugAssign) else x.value.func.value))  # type: ignore[attr-defined]
        match x:
            case ast.Subscript(value=ast.Name() as base, slice=at, ctx=ctx) if not isinstance(ctx, ast.Del):
                if not isinstance(at, ast.Slice):
                    own.add(id(base))
            case ast.Return(value=value):
                own |= {id(v) for v in (value, *(value.elts if isinstance(value, ast.Tuple) else ()))}
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="array"), args=[ast.Name() as base]):
                own.add(id(base))
            case ast.Call(func=ast.Attribute(value=ast.Name() as base, attr=attr)) if attr in _TAKING:
                own.add(id(base))
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as base]):
                own.add(id(base))
            case ast.While(test=test) | ast.If(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                own |= {id(t) for t in (test, *(test.values if isinstance(test, ast.BoolOp) else ()))}
    return all(id(x) in own for x in every if isinstance(x, ast.Name) and x.id == name)
