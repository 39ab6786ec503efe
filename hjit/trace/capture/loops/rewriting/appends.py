"""Lists that loops over pixels fill, written so that the loop is told what is appended.

``found.append(x)`` in a loop is ``append(found, x)``, where ``found = []`` stands before the loop, and nothing else has
to do with the list until the loop has ended; see `hjit.trace.tracing.arrays.grown`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.bytecode import APPEND
from hjit.trace.capture.loops.carried import Kind
from hjit.trace.capture.loops.elements import MAX_ELEMENTS
from hjit.trace.capture.loops.rewriting.hoisting import is_hoisted
from hjit.trace.capture.loops.rewriting.syntax import SCOPES, call_of, mentions, placed, walk
from hjit.trace.tracing.arrays.grown import GrowingList, GrownList, Item
from hjit.trace.tracing.arrays.stacks import NumberStack, in_program
from hjit.trace.tracing.recording.recorder import Recorder, current, tracing
from hjit.trace.tracing.recording.state.attempt import Growing, place_of
from hjit.trace.tracing.scalars.induction import CannotReroll

# -- what the functions call


def append(to: Any, *items: Any, is_read: bool = False) -> None:
    """``to.append(x)`` of each item, also in a loop whose iterations are traced as one.

    Args:
        is_read: does the loop ask what is in the list?

    Raises:
        CannotReroll: the list has to be known when that loop begins.
    """
    if type(to) is NumberStack and current().loops:
        in_program()
    for x in items:
        if type(to) is NumberStack:
            to.append_item(item_of(x), x)
        else:
            _append(to, x, is_read)


def _append(to: Any, x: Any, is_read: bool) -> None:
    if type(to) is GrownList:  # by a loop inside of one that is traced iteration by iteration
        site = sys._getframe(2).f_code, 0
        raise CannotReroll(site, "it appends to a list that a loop has filled", growing=True)
    if type(to) is not list or is_read or not tracing() or not current().loops:
        to.append(x)
        return
    rec = current()
    known: GrowingList | None = rec.rerolled.growing.get(id(to))
    if known is not None:
        known.append(item_of(x), x)
        return
    item, outermost = item_of(x), rec.loops[0]
    is_found = not to and any(c is to for c, _ in outermost.found.containers)
    name = next((n for n, v in outermost.frame.f_locals.items() if v is to), "")
    if is_found and name and item is not None and rec.attempt.grows and _have_places(rec):
        shape = rec.polys(tuple(loop.count for loop in GrowingList.loops(rec)))
        why = "a list or a dict is changed"
        growing = Growing(place_of(outermost.site), name, item, shape)
        raise CannotReroll(outermost.site, why, growing=growing)
    to.append(x)


def _have_places(rec: Recorder) -> bool:
    """Is it known of each loop how many iterations it has at most, and may each of them have an element?"""
    return not any(loop.iterations.is_bound or loop.iterations.computed is not None for loop in rec.loops)


def item_of(x: Any) -> Item | None:
    """What is appended; None of other things than numbers, and tuples and lists of these."""
    parts = x if type(x) in (tuple, list) else (x,)
    if not 0 < len(parts) <= MAX_ELEMENTS:
        return None
    kinds = [Kind.of(p) for p in parts]
    known = [k for k in kinds if k is not None and k.dtype is not None and k.is_number]
    if len(known) < len(kinds):
        return None
    container = type(x) if type(x) in (tuple, list) else None
    return Item(container, tuple(k.dtype for k in known if k.dtype is not None), tuple(k.weak for k in known))


# -- the functions


@dataclass
class Appends:
    """Changes what loops of a function append to lists.

    Attributes:
        count: of changed statements.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The body of a function, changed in place."""
        for name in sorted({name for x in walk(*body) for name in _new_lists(x)}):
            found = _filled(body, name)
            for call in found:
                self.count += 1
                call.value = placed(call_of(APPEND, name, call.value.args[0]), call.value)  # type: ignore[attr-defined]
        return list(body)


def _filled(body: Sequence[ast.stmt], name: str) -> list[ast.Expr]:
    """The statements in loops that append to a list that is new before these; none where something else has to do with
    it there."""
    makes = [x for x in walk(*body) if name in _new_lists(x)]
    uses = [x for x in walk(*body) if isinstance(x, ast.Name) and x.id == name]
    if any(isinstance(x, SCOPES) and mentions(x, name) for x in walk(*body)) or len(makes) != 1:
        return []
    loops = [x for x in walk(*body) if isinstance(x, ast.For) and _calls(x, name) and not _has(x, makes[0])]
    outermost = [x for x in loops if not any(_has(y, x) for y in loops if y is not x)]
    begin, end = makes[0].lineno, max((x.end_lineno or 0 for x in outermost), default=0)  # type: ignore[attr-defined]
    calls = [c for x in outermost for c in _calls(x, name)]
    own = {id(c.value.func.value) for c in calls} | {id(x) for x in walk(*makes)}  # type: ignore[attr-defined]
    if isinstance(body[-1], ast.Return):  # of a part of a function, this has the line of what is before it
        own |= {id(x) for x in walk(body[-1])}
    others = [x for x in uses if id(x) not in own and not is_hoisted(name)]  # these are used once, after the loop
    return calls if all(not begin <= x.lineno <= end for x in others) else []


def _new_lists(s: ast.AST) -> list[str]:
    """The variables that ``name = []``, ``name = list()``, or ``name, other = [], []`` set."""
    match s:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_empty_list(value):
            return [name]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = zip(names, values, strict=True)
            return [n.id for n, v in pairs if isinstance(n, ast.Name) and _is_empty_list(v)]
    return []


def _is_empty_list(e: ast.expr) -> bool:
    match e:
        case ast.List(elts=[]) | ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            return True
    return False


def _calls(s: ast.AST, name: str) -> list[ast.Expr]:
    """The statements ``name.append(x)``."""
    found = []
    for x in walk(s):
        match x:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=own), attr="append"), args=[ast.expr() as arg], keywords=[]
                )
            ) if own == name and not isinstance(arg, ast.Starred):
                found.append(x)
    return found


def _has(a: ast.AST, b: ast.AST) -> bool:
    return any(x is b for x in walk(a))
