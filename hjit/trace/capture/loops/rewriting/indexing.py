"""Lists of numbers that loops index, and dicts that they read, written so that these may be arrays.

Before a loop that has ``hist[v] += 1``, where `hist` was made by the function, there is ``hist = indexed(hist, True)``;
before one that only reads ``table[v]``, a variable of its own, ``.of table = indexed(table, False)``, which the loop
reads in its place. Other things than lists and dicts of numbers stay what they
are; see `hjit.trace.tracing.arrays.number_lists` and `hjit.trace.tracing.arrays.lookup_tables`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.bytecode import INDEXED
from hjit.trace.capture.loops.rewriting.syntax import (
    SCOPES,
    assign,
    call_of,
    is_fixed_index,
    mentions,
    placed,
    set_by,
    walk,
)
from hjit.trace.tracing.arrays.lookup_tables import lookup_table
from hjit.trace.tracing.arrays.number_lists import number_list
from hjit.trace.tracing.recording.recorder import current, tracing

# -- what the functions call


def indexed(x: Any, is_written: bool, has_own_lists: bool = False) -> Any:
    """A list of numbers as an array, while a function is traced; anything else as it is; see `number_list`."""
    if not tracing() or not current().attempt.indexes:
        return x
    found: Any = lookup_table(x) if not is_written else None
    found = found or number_list(x, is_written, has_own_lists)
    return x if found is None else found


# -- the functions

_TAKING = frozenset(("len", "sum", "min", "max"))  # these take a list and keep nothing of it
_MAKING = frozenset(("list", "sorted"))  # what they return is new


@dataclass
class Indexing:
    """Tells the loops of a function which lists they index.

    Attributes:
        count: of lists.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt], parameters: frozenset[str]) -> list[ast.stmt]:
        """The body of a function, changed."""
        arrays = frozenset(_used_as_arrays(body))
        known = {x.id for x in walk(*body) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        outer = frozenset(name for x in walk(*body) if isinstance(x, ast.Global | ast.Nonlocal) for name in x.names)
        names = _Names(arrays, frozenset(known | parameters), outer | parameters)
        return self._block(body, _Place(body), frozenset(parameters), names, frozenset())

    def _block(
        self, body: Sequence[ast.stmt], place: _Place, bound: frozenset[str], names: _Names, done: frozenset[str]
    ) -> list[ast.stmt]:
        """A block of a function.

        Args:
            bound: the variables that have values where it begins.
            done: lists that a loop around was told of.
        """
        found: list[ast.stmt] = []
        for s in body:
            if isinstance(s, ast.For | ast.While):
                before = self._before(s, place, bound, names, done)
                found += before
                inside = bound | set_by([s.target]) if isinstance(s, ast.For) else bound
                around = _Place(place.whole, (*place.loops, s))
                s.body = self._block(s.body, around, inside, names, done | set_by(before))
            elif not isinstance(s, SCOPES):
                for name in ("body", "orelse"):
                    inside_body = getattr(s, name, None)
                    if isinstance(inside_body, list) and inside_body:
                        setattr(s, name, self._block(inside_body, place, bound, names, done))
            found.append(s)
            if isinstance(s, ast.Assign | ast.AnnAssign | ast.AugAssign):
                bound |= set_by([s])
        return found

    def _before(
        self, loop: ast.For | ast.While, place: _Place, bound: frozenset[str], names: _Names, done: frozenset[str]
    ) -> list[ast.stmt]:
        """What stands before a loop, which is changed."""
        written, read = _indexed(loop)
        found = []
        own = set_by([loop]) | done
        for name in sorted(written - own):
            if name not in bound or name in names.arrays | names.outer:
                continue
            values = _own_lists(name, place.whole, place.end(name, loop))
            if values is not None:
                self.count += 1
                new = ast.Constant(all(map(_has_own_lists, values)))
                found.append(placed(assign(name, call_of(INDEXED, name, ast.Constant(True), new)), loop))
        asked = _asked(loop)
        for name in sorted((read | asked.keys()) - own - written):
            if name not in names.arrays and (name in bound or name not in names.local):
                self.count += 1
                found.append(placed(assign(_own(name), call_of(INDEXED, name, ast.Constant(False))), loop))
                bases = [base for x in _subscripts(loop) if (base := _base(x)).id == name]
                for base in (*bases, *asked.get(name, ())):
                    base.id = _own(name)
        return found


@dataclass(frozen=True, slots=True)
class _Names:
    """Attributes:
    arrays: variables that are used as only arrays are.
    local: variables that the function sets, and its parameters.
    outer: variables whose lists others may have, too: its parameters, and global ones.
    """

    arrays: frozenset[str]
    local: frozenset[str]
    outer: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block is.

    Attributes:
        whole: the body of the function.
        loops: those around, from the outermost.
    """

    whole: Sequence[ast.stmt]
    loops: tuple[ast.For | ast.While, ...] = ()

    def end(self, name: str, loop: ast.For | ast.While) -> int:
        """The last line that runs before a loop does so for the last time, with a list that it has had before."""
        for outer in reversed(self.loops):
            if any(s.lineno < loop.lineno and _new_lists(s, name) for s in outer.body):
                break
            loop = outer
        return loop.end_lineno or 0


def _own(name: str) -> str:
    return f".of {name}"


def _used_as_arrays(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The variables with attributes that lists do not have, or with several indices."""
    for x in walk(*body):
        match x:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if not (hasattr(list, attr) or hasattr(dict, attr)):
                yield name
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple()):
                yield name


def _subscripts(s: ast.AST) -> Iterator[ast.Subscript]:
    """Those of variables, at places that are no constants."""
    for x in walk(s):
        match x:
            case ast.Subscript(value=ast.Name(), slice=index) if not is_fixed_index(index):
                yield x


def _asked(loop: ast.AST) -> dict[str, list[ast.Name]]:
    """The variables of which a loop does ``lut.get(v, 0)`` or ``v in lut``, and nothing else to its contents."""
    found: dict[str, list[ast.Name]] = {}
    changed = set()
    for x in walk(loop):
        match x:
            case ast.Attribute(value=ast.Name() as base, attr="get"):
                found.setdefault(base.id, []).append(base)
            case ast.Attribute(value=ast.Name(id=name)):
                changed.add(name)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name() as base]):
                found.setdefault(base.id, []).append(base)
    return {name: bases for name, bases in found.items() if name not in changed}


def _base(x: ast.expr) -> Any:
    while isinstance(x, ast.Subscript):
        x = x.value
    return x


def _indexed(loop: ast.AST) -> tuple[set[str], set[str]]:
    """The variables whose items a loop writes, and reads."""
    all_of = [x for x in walk(loop) if isinstance(x, ast.Subscript)]
    stored = {_base(x).id for x in all_of if not isinstance(x.ctx, ast.Load) and isinstance(_base(x), ast.Name)}
    found = {_base(x).id for x in _subscripts(loop)}
    return found & stored, found - stored


def _own_lists(name: str, whole: Sequence[ast.stmt], end: int) -> list[ast.expr] | None:
    """The expressions that make a list; None if another one is, or something but this variable has to do with the list
    until line `end`."""
    before = [x for x in walk(*whole) if getattr(x, "lineno", end + 1) <= end]
    own: set[int] = set()
    values = []
    for x in before:
        for target, value in _new_lists(x, name):
            own.add(id(target))
            values.append(value)
        match x:
            case ast.Subscript(value=ast.Name(id=other) as base) if other == name and not isinstance(x.ctx, ast.Del):
                own.add(id(base))
            case ast.Call(func=ast.Name(id=f), args=[ast.Name(id=other) as arg], keywords=[]) if other == name:
                if f in _TAKING:
                    own.add(id(arg))
            case ast.For(iter=ast.Name(id=other) as arg) if other == name:
                own.add(id(arg))
            case ast.MatchAs() | ast.MatchStar() if x.name == name:
                return None
    uses = [x for x in before if isinstance(x, ast.Name) and x.id == name]
    if any(isinstance(x, SCOPES) and mentions(x, name) for x in walk(*whole)):
        return None
    return values if all(id(x) in own for x in uses) else None


def _new_lists(s: ast.AST, name: str) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Where a statement sets a variable to a new list: the variable, and the list."""
    match s:
        case (
            ast.Assign(targets=[target], value=ast.expr() as value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
        ):
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(target.elts, value.elts, strict=False)]
            yield from ((t, v) for t, v in pairs if isinstance(t, ast.Name) and t.id == name and _is_new_list(v))


def _has_own_lists(e: ast.expr) -> bool:
    """Are lists in a new list new, too, and each of them in it once?"""
    match e:
        case ast.List(elts=elts):
            return all(map(_is_new_row, elts))
        case ast.ListComp(elt=elt):
            return _is_new_row(elt)
    return False


def _is_new_row(e: ast.expr) -> bool:
    match e:
        case ast.Subscript(slice=ast.Slice()) | ast.Call(func=ast.Attribute(attr="copy"), args=[]):
            return True
    return _is_new_list(e)


def _is_new_list(e: ast.expr) -> bool:
    match e:
        case ast.List() | ast.ListComp():
            return True
        case ast.BinOp(left=ast.List(), op=ast.Mult()) | ast.BinOp(op=ast.Mult(), right=ast.List()):
            return True
        case ast.Call(func=ast.Name(id=f)):
            return f in _MAKING or f == INDEXED
    return False


def written_lists(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The variables whose items loops of a function write at computed places."""
    return frozenset(n for x in walk(*body) if isinstance(x, ast.For | ast.While) for n in _indexed(x)[0])
