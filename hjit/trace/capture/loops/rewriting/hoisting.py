"""Expressions in loops that are statements of their own before the one that they are part of.

A comprehension is a function of its own to CPython 3.11, and a list's method `sort` asks traced numbers which is less:
``total = sum(a * b for a, b in pairs)`` becomes a loop that fills a list, and ``values.sort()`` a call of `sort`. Where
conditions are to choose numbers, ``f(a if c else b)`` becomes ``x = a if c else b`` and ``f(x)``.

What is hoisted is evaluated first in its statement: only variables, their attributes and constants are before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.bytecode import SORT
from hjit.trace.capture.loops.rewriting.syntax import SCOPES, assign, call_of, load, mentions, placed, renamed, set_by
from hjit.trace.splitting.source import copied
from hjit.trace.tracing.arrays.tracer import has_tracer

_CONSUMERS = frozenset(("sum", "min", "max", "sorted", "list", "tuple"))  # these go through all of a generator at once
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_OF_THEIR_OWN = (*_COMPREHENSIONS, ast.Lambda, ast.NamedExpr, ast.Yield, ast.Await)


# -- what the functions call


def sort(x: Any, sorted_: Any) -> Any:
    """``x.sort()``; `sorted_`: the function ``sorted``, which knows traced numbers."""
    if type(x) is not list or not has_tracer(x):
        return x.sort()
    x[:] = sorted_(x)
    return None


# -- the functions


@dataclass
class Hoisting:
    """Changes the statements in the loops of a function.

    Attributes:
        conditions: are conditional expressions hoisted, too?
        lists: variables whose items loops write; comprehensions of these are loops, too.
        count: of changed statements.
    """

    conditions: bool
    lists: frozenset[str] = frozenset()
    count: int = 0

    def block(self, body: Sequence[ast.stmt], in_loop: bool = False) -> list[ast.stmt]:
        """Statements, changed."""
        found: list[ast.stmt] = []
        for s in body:
            found += self._hoisted(s, in_loop)
            is_loop = isinstance(s, ast.For | ast.While)
            if not isinstance(s, SCOPES):
                for name in ("body", "orelse", "finalbody"):
                    inside = getattr(s, name, None)
                    if isinstance(inside, list) and inside:
                        setattr(s, name, self.block(inside, in_loop or (is_loop and name == "body")))
            found.append(s)
        return found

    def _hoisted(self, s: ast.stmt, in_loop: bool) -> list[ast.stmt]:
        """What comes before a statement, which is changed."""
        match s:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=x, attr="sort"), args=[], keywords=[])):
                if not in_loop:
                    return []
                self.count += 1
                s.value = placed(call_of(SORT, x, load("sorted")), s)
                return []
            case ast.If():
                name = "test"
            case ast.For():
                name = "iter"
            case ast.AugAssign(target=ast.Name()) | ast.Assign() | ast.Expr() | ast.Return(value=ast.expr()):
                name = "value"
            case _:  # others evaluate something before that
                return []
        found: list[ast.stmt] = []
        while (place := self._first(s, name, in_loop)) is not None:
            found += self._own_statement(*place)
        return found

    def _first(self, node: Any, name: Any, in_loop: bool) -> tuple[Any, Any] | None:
        """Where the expression is that comes first, if it is to be hoisted: a list or a node, and a key of it."""
        e = node[name] if isinstance(node, list) else getattr(node, name)
        if isinstance(e, ast.IfExp) and self.conditions and in_loop and not isinstance(node, ast.Assign):
            return node, name
        is_plain = isinstance(e, ast.ListComp) and _is_plain(e)
        if is_plain and (in_loop or _goes_over_pixels(e) or self._uses_lists(e)):
            return node, name
        match e:
            case ast.Call(func=ast.Name(id=consumer), args=[ast.GeneratorExp() as inner], keywords=[]) if (
                consumer in _CONSUMERS and _is_plain(inner) and (in_loop or self._uses_lists(inner))
            ):
                return e.args, 0
        for child_of, key in _evaluated(e):
            child = child_of[key] if isinstance(child_of, list) else getattr(child_of, key)
            place = self._first(child_of, key, in_loop)
            if place is not None:
                return place
            if not _is_simple(child):
                return None
        return None

    def _uses_lists(self, e: ast.ListComp | ast.GeneratorExp) -> bool:
        return len(e.generators) == 1 and any(mentions(e, name) for name in self.lists)

    def _own_statement(self, node: Any, name: Any) -> list[ast.stmt]:
        self.count += 1
        own = f".part{self.count}"
        e = node[name] if isinstance(node, list) else getattr(node, name)
        if isinstance(e, ast.IfExp):
            found = [assign(own, e)]
        else:
            names = {n: f"{own}.{n}" for g in e.generators for n in set_by([g.target])}
            body: list[ast.stmt] = [ast.Expr(ast.Call(ast.Attribute(load(own), "append", ast.Load()), [e.elt], []))]
            for g in reversed(e.generators):
                for test in reversed(g.ifs):
                    body = [ast.If(test, body, [])]
                body = [ast.For(g.target, g.iter, body, [], None)]
            first = e.generators[0].iter  # evaluated outside: of names that are set inside it has those outside
            outer = copied(first)
            body = [renamed(s, names) for s in body]
            body[0].iter = outer  # type: ignore[attr-defined]
            found = [assign(own, ast.List([], ast.Load())), *body]
        if isinstance(node, list):
            node[name] = ast.copy_location(load(own), e)
        else:
            setattr(node, name, ast.copy_location(load(own), e))
        return [placed(s, e) for s in found]


def is_hoisted(name: str) -> bool:
    """Is it a variable that is added?"""
    return name.startswith(".part")


def _goes_over_pixels(e: ast.ListComp) -> bool:
    """May a comprehension fill a list with some of many pixels?"""
    ranges = [g for g in e.generators if isinstance(g.iter, ast.Call) and isinstance(g.iter.func, ast.Name)]
    return len(ranges) == len(e.generators) and (len(ranges) > 1 or any(g.ifs for g in e.generators))


def _is_plain(e: ast.ListComp | ast.GeneratorExp) -> bool:
    """Has a comprehension nothing in it that is a function of its own, or sets variables?"""
    inside = [x for x in ast.walk(e) if x is not e]
    return not any(isinstance(x, _OF_THEIR_OWN) for x in inside) and not any(g.is_async for g in e.generators)


def _evaluated(e: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of an expression that are evaluated whatever happens, in that order."""
    match e:
        case ast.Call():
            yield e, "func"
            yield from ((e.args, k) for k in range(len(e.args)))
            yield from ((k, "value") for k in e.keywords)
        case ast.BinOp():
            yield e, "left"
            yield e, "right"
        case ast.UnaryOp():
            yield e, "operand"
        case ast.Compare(ops=[_]):
            yield e, "left"
            yield e.comparators, 0
        case ast.Tuple() | ast.List():
            yield from ((e.elts, k) for k in range(len(e.elts)))
        case ast.Subscript():
            yield e, "value"
            yield e, "slice"
        case ast.Attribute():
            yield e, "value"
        case ast.Starred():
            yield e, "value"


def _is_simple(e: Any) -> bool:
    """Does evaluating an expression change nothing, whenever that is?"""
    match e:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute(value=value):
            return _is_simple(value)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            return all(map(_is_simple, elts))
    return False
