"""Functions whose loops can be left, written so that a loop whose iterations are traced as one is told of that.

``break`` in a loop over ``range(...)`` becomes ``left = True``, and then, where the loop is such a one, ``continue``:
what the path through the iteration has recorded is taken, and later iterations do nothing where `left` holds. A
``return`` keeps its value, leaves all loops around it like that, and returns after the outermost. A ``while`` becomes a
loop that is left where its condition does not hold. Where Python runs these loops one iteration after the other, they
do what they did.

The names that are added are no identifiers, so that no name of the function's is one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from hjit.trace.capture.loops.bytecode import ITERABLES, LEAVES, WHILE, goes_over_variables, has_exits, indexes_lists
from hjit.trace.capture.loops.rewriting.appends import Appends
from hjit.trace.capture.loops.rewriting.branches import Branches
from hjit.trace.capture.loops.rewriting.choices import Choices
from hjit.trace.capture.loops.rewriting.dicts import Dicts
from hjit.trace.capture.loops.rewriting.directions import Directions
from hjit.trace.capture.loops.rewriting.hoisting import Hoisting
from hjit.trace.capture.loops.rewriting.indexing import Indexing, written_lists
from hjit.trace.capture.loops.rewriting.stacks import Stacks
from hjit.trace.capture.loops.rewriting.syntax import SCOPES, load, placed, walk
from hjit.trace.splitting.source import TREE, NoSource, copied, tree_of
from hjit.trace.splitting.source import code_of as code_of_tree
from hjit.trace.tracing.frames import Instruction, instructions

MAX_KNOWN = 4096  # functions; beyond that they are looked at again
_REFUSED = (ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.AsyncFor, ast.Yield, ast.YieldFrom, ast.Await)
_known: dict[tuple[CodeType, str, bool, bool], CodeType] = {}


def code_of(function: FunctionType, is_choosing: bool = False, is_branching: bool = False) -> CodeType:
    """The code of a function, whose loops say how they are left.

    Args:
        is_choosing: see `choices`.
        is_branching: see `branches`.
    """
    code = function.__code__
    if not is_choosing and not is_branching and not has_exits(code) and not _has_parts(code):
        return code
    key = code, code.co_filename, is_choosing, is_branching
    if key not in _known:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = _rewritten(function, is_choosing, is_branching)
    return _known[key]


def _rewritten(function: FunctionType, is_choosing: bool, is_branching: bool) -> CodeType:
    try:
        tree = tree_of(function)
        is_shown = hasattr(function, TREE) or _are_alike(code_of_tree(function, copied(tree)), function.__code__)
    except (NoSource, SyntaxError, ValueError):
        return function.__code__
    if not is_shown:  # the file has changed since it was loaded
        return function.__code__
    directions, hoisting = Directions(), Hoisting(is_choosing or is_branching, written_lists(tree.body))
    tree.body = directions.block(tree.body)
    appends, indexing, stacks, dicts = Appends(), Indexing(), Stacks(), Dicts()
    tree.body = appends.block(dicts.block(stacks.block(hoisting.block(tree.body))))
    tree.body = indexing.block(tree.body, _parameters(tree.args))
    exits = _Exits(_parameters(tree.args))
    choices = Choices(frozenset((*function.__code__.co_varnames, *function.__code__.co_cellvars)))
    if is_choosing:
        tree.body = choices.block(tree.body, _parameters(tree.args))
    branches = Branches()
    if is_branching:
        tree.body = branches.block(tree.body, _parameters(tree.args))
    tree.body = exits.block(tree.body, ())
    changes = (directions, hoisting, appends, indexing, stacks, dicts, exits, choices, branches)
    return code_of_tree(function, tree) if any(x.count for x in changes) else function.__code__


def _has_parts(code: CodeType) -> bool:
    """May a function have something that the other modules here change?"""
    comprehensions = ("<listcomp>", "<genexpr>")  # no functions of their own in later versions, where they do no harm
    has_one = any(isinstance(c, CodeType) and c.co_name in comprehensions for c in code.co_consts)
    return has_one or not _METHODS.isdisjoint(code.co_names) or indexes_lists(code) or goes_over_variables(code)


_METHODS = frozenset(("append", "sort", "pop", "popleft", "add", "get", "setdefault"))


def _are_alike(a: CodeType, b: CodeType) -> bool:
    """Do two functions do the same? How one calls what a module has depends on where that is imported."""

    def parts(c: CodeType) -> Any:
        own = tuple(x for x in c.co_consts if not isinstance(x, CodeType))
        names = c.co_names, c.co_varnames, c.co_cellvars, c.co_freevars
        steps = [(_SAME.get(s.opname, s.opname), _operand(s)) for s in instructions(c) if s.opname != "PUSH_NULL"]
        return steps, names, repr(own), c.co_argcount, c.co_kwonlyargcount

    inner = [[x for x in c.co_consts if isinstance(x, CodeType)] for c in (a, b)]
    return parts(a) == parts(b) and len(inner[0]) == len(inner[1]) and all(map(_are_alike, *inner))


_SAME = {"LOAD_METHOD": "LOAD_ATTR"}


def _operand(s: Instruction) -> int | str:
    """What of an instruction's operand does not depend on how methods are called."""
    if s.opname in ("LOAD_METHOD", "LOAD_ATTR"):
        return s.name
    return 0 if "JUMP" in s.opname or s.opname == "FOR_ITER" else s.arg >> (s.opname == "LOAD_GLOBAL")


def _parameters(args: ast.arguments) -> frozenset[str]:
    return frozenset(x.arg for x in (*args.posonlyargs, *args.args, *args.kwonlyargs))


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop around a statement.

    Attributes:
        number: None of one that is as it was.
    """

    number: int | None

    @property
    def left(self) -> str:
        """The variable that says whether it has been left."""
        return f".left{self.number}"

    def leave(self, at: ast.AST) -> list[ast.stmt]:
        """Statements that end it, where they stand in it and in no other loop inside."""
        if self.number is None:
            return [placed(ast.Break(), at)]
        told = ast.Call(load(LEAVES), [ast.Constant(self.left)], [])
        return [_set(self.left, True, at), placed(ast.If(told, [ast.Continue()], []), at), placed(ast.Break(), at)]


@dataclass
class _Exits:
    """Changes the loops of a function.

    Attributes:
        assigned: variables that have values where the present statement begins.
        returns: what the loops being changed may return, by number.
    """

    assigned: frozenset[str]
    count: int = 0
    returns: dict[int, ast.expr | None] = field(default_factory=dict)

    def block(self, body: Sequence[ast.stmt], around: tuple[_Loop, ...]) -> list[ast.stmt]:
        """Statements, changed; those of `around` are the loops that a ``return`` has to leave, outermost first."""
        before, found = self.assigned, []
        for s in body:
            found += self._statement(s, around)
            if isinstance(s, ast.Assign):
                self.assigned |= {x.id for t in s.targets for x in ast.walk(t) if isinstance(x, ast.Name)}
        self.assigned = before
        return found

    def _statement(self, s: ast.stmt, around: tuple[_Loop, ...]) -> list[ast.stmt]:
        inside = any(x.number is not None for x in around)
        match s:
            case ast.For() | ast.While() if _is_plain(s):
                return self._changed(s, around)
            case ast.For() | ast.While():
                onwards = self._onwards(s, around) if inside and _returns(s) else []
                s.body = self.block(s.body, (*around, _Loop(None)) if inside else ())
                s.orelse = self.block(s.orelse, around)
                return [s, *onwards]
            case ast.Break() if around and around[-1].number is not None:
                return around[-1].leave(s)
            case ast.Return() if inside:
                return self._returned(s, around)
            case ast.If() | ast.With() | ast.Try() | ast.TryStar():
                for name in ("body", "orelse", "finalbody"):
                    if getattr(s, name, None):
                        setattr(s, name, self.block(getattr(s, name), around))
                for h in getattr(s, "handlers", ()):
                    h.body = self.block(h.body, around)
            case ast.Match():
                for c in s.cases:
                    c.body = self.block(c.body, around)
        return [s]

    def _changed(self, s: ast.For | ast.While, around: tuple[_Loop, ...]) -> list[ast.stmt]:
        self.count += 1
        loop, is_outermost = _Loop(self.count), all(x.number is None for x in around)
        if is_outermost:
            self.returns = {}
        returns, only_returns = _returns(s), _only_returns(s)
        begin = [_set(loop.left, False, s), *([_set(".returned", False, s)] if returns else [])]
        body = self.block(s.body, (*around, loop))
        if isinstance(s, ast.While):
            if not (isinstance(s.test, ast.Constant) and s.test.value):
                body = [placed(ast.If(ast.UnaryOp(ast.Not(), s.test), loop.leave(s.test), []), s.test), *body]
            bounds = [x for pair in self._counters(s) for x in pair]
            target, runs = _store(f".i{loop.number}"), ast.Call(load(WHILE), [ast.Constant(loop.left), *bounds], [])
            changed: ast.For = placed(ast.For(target, placed(runs, s.test), body, [], None), s)
        else:
            changed, s.body = s, body
            if s.orelse:
                otherwise = self.block(s.orelse, around)
                s.orelse = [placed(ast.If(ast.UnaryOp(ast.Not(), load(loop.left)), otherwise, []), s.orelse[0])]
        if not returns:
            return [*begin, changed]
        after = self._return_now(s) if is_outermost else around[-1].leave(s)
        return [*begin, changed, *(after if only_returns else [placed(ast.If(load(".returned"), after, []), s)])]

    def _counters(self, s: ast.While) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What each iteration of a ``while`` counts up, and what it ends at, where its condition says so."""
        tests = s.test.values if isinstance(s.test, ast.BoolOp) and isinstance(s.test.op, ast.And) else [s.test]
        counted = {
            x.target.id
            for x in s.body
            if isinstance(x, ast.AugAssign)
            and isinstance(x.op, ast.Add)
            and isinstance(x.target, ast.Name)
            and isinstance(x.value, ast.Constant)
            and x.value.value == 1
        }
        for t in tests:
            if not isinstance(t, ast.Compare) or len(t.ops) != 1 or not isinstance(t.ops[0], (ast.Lt, ast.LtE)):
                continue
            a, b = t.left, t.comparators[0]
            names = {x.id for x in (a, b) if isinstance(x, ast.Name)}
            if not isinstance(a, ast.Name) or not isinstance(b, (ast.Name, ast.Constant)):
                continue
            if a.id in counted and names <= self.assigned and _sets_once(s, a.id, b):
                yield copied(a), copied(b)

    # -- return

    def _returned(self, s: ast.Return, around: tuple[_Loop, ...]) -> list[ast.stmt]:
        k = len(self.returns)
        parts: list[ast.stmt] = []

        def kept(e: ast.expr, name: str) -> ast.expr:
            if isinstance(e, ast.Constant):
                return e
            parts.append(placed(ast.Assign([_store(name)], e), s))
            return load(name)

        value = s.value
        if isinstance(value, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in value.elts):
            elements = [kept(e, f".value{k}.{i}") for i, e in enumerate(value.elts)]
            self.returns[k] = ast.Tuple(elements, ast.Load())
        else:
            self.returns[k] = None if value is None else kept(value, f".value{k}")
        flags = [_set(".returned", True, s), _set(f".return{k}", True, s)]
        flags += [_set(f".return{j}", False, s) for j in range(k)]
        return [*parts, *flags, *around[-1].leave(s)]

    def _onwards(self, s: ast.stmt, around: tuple[_Loop, ...]) -> list[ast.stmt]:
        """After a loop: where it has been left to return, so are those around it."""
        return [placed(ast.If(load(".returned"), around[-1].leave(s), []), s)]

    def _return_now(self, s: ast.stmt) -> list[ast.stmt]:
        """After the outermost loop."""
        *others, (_, value) = self.returns.items()
        found: list[ast.stmt] = [placed(ast.Return(value), s)]
        for k, v in reversed(others):
            found = [placed(ast.If(load(f".return{k}"), [placed(ast.Return(v), s)], found), s)]
        return found


def _only_returns(s: ast.stmt) -> bool:
    """Is a loop never left but by a return?"""
    if not isinstance(s, ast.While) or not isinstance(s.test, ast.Constant):
        return False
    return bool(s.test.value) and not _breaks(s.body)


def _is_plain(s: ast.For | ast.While) -> bool:
    """Is it a loop to change, a ``while`` or one over a range or an array that can be left, and is nothing else left
    with it?"""
    if any(isinstance(x, _REFUSED) for x in walk(s)):
        return False
    if isinstance(s, ast.While):
        return not s.orelse
    e = s.iter
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "reversed" and len(e.args) == 1:
        e = e.args[0]
    is_made = isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ITERABLES
    return (is_made or isinstance(e, ast.Name)) and (_returns(s) or _breaks(s.body))


def _returns(s: ast.stmt) -> bool:
    return any(isinstance(x, ast.Return) for x in walk(s))


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Is there a ``break`` of the loop whose body this is?"""
    for s in body:
        if isinstance(s, ast.Break):
            return True
        if isinstance(s, SCOPES):
            continue
        inner = (
            [s.orelse] if isinstance(s, (ast.For, ast.While)) else [getattr(s, "body", []), getattr(s, "orelse", [])]
        )
        inner += [c.body for c in getattr(s, "cases", ())]
        if any(_breaks(x) for x in inner):
            return True
    return False


def _sets_once(s: ast.While, name: str, bound: ast.expr) -> bool:
    """Does the body set a counter in one place, and its bound nowhere?"""
    stored = [x.id for x in walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
    jumps = any(isinstance(x, ast.Continue) for x in walk(s))
    return stored.count(name) == 1 and not jumps and not (isinstance(bound, ast.Name) and bound.id in stored)


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def _set(name: str, value: Any, place: ast.AST) -> ast.stmt:
    found: ast.stmt = placed(ast.Assign([_store(name)], ast.Constant(value)), place)
    return found
