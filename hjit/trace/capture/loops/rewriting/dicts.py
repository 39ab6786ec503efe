"""Dicts and sets that loops fill, written so that they may be arrays while the function is traced.

``sizes = {}`` is ``sizes = filled("dict", "sizes:7")``, ``seen = {p}`` is ``seen = filled("set", "seen:8", p)``,
``k in sizes`` is ``contains(sizes, k, True)``, and ``sizes.get(k, 0) + x`` is ``plus(sizes, k, x, 0)``, where loops may
insert keys, and no other name is given to it; see `hjit.trace.tracing.arrays.number_dicts`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.capture.loops.bytecode import CONTAINS, FILLED, PLUS
from hjit.trace.capture.loops.rewriting.syntax import (
    Made,
    assign,
    call_of,
    is_read_inside_alone,
    load,
    made_by,
    placed,
    replace_value,
    value_of,
    walk,
)
from hjit.trace.tracing.arrays.dict_keys import has_computed
from hjit.trace.tracing.arrays.number_dicts import NumberDict, dict_of
from hjit.trace.tracing.recording.recorder import current, tracing

MAX_ITEMS = 16  # that one is made of

# -- what the functions call


def filled(x: Any, name: str, *items: Any) -> Any:
    """A new dict or set; as arrays, while a function is traced.

    Args:
        x: or of a display what it is, and what is in it.
    """
    if type(x) is type:  # `set`, or what else has that name, of a list of these
        x = "set" if x is set else x([*items])
    place = sys._getframe(1).f_code.co_filename, name
    is_traced = tracing() and current().attempt.stacks_items and current().options.run_loops is not None
    if x not in ("dict", "set"):
        return dict_of(x, place) if is_traced else x
    found: Any = {} if x == "dict" else set()
    is_known = not any(map(has_computed, items))
    if is_traced and not is_known:
        found = dict_of(found, place)
    for item in items:
        if x == "set":
            found.add(item)
        else:
            key, value = item
            found[key] = value
    return dict_of(found, place) if is_traced and is_known else found


def contains(x: Any, key: Any, outcome: bool) -> Any:
    """``key in x``, or ``key not in x``, which may be a bool that is computed."""
    if type(x) is not NumberDict:
        return (key in x) is outcome
    held = x.has(key)
    return held if outcome else x.has_not(held)


def plus(x: Any, key: Any, y: Any, *default: Any) -> Any:
    """``x.get(key, default) + y``, or ``x[key] + y``, which may be numbers of other kinds than `default`."""
    if type(x) is NumberDict:
        return x.plus(key, y, *default)
    return (x.get(key, *default) if default else x[key]) + y


# -- the functions

_MAKING = frozenset(("dict", "set", "OrderedDict", "Counter", "defaultdict"))


@dataclass
class Dicts:
    """Changes how a function makes dicts and sets that its loops fill.

    Attributes:
        count: of changed expressions.
    """

    count: int = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The body of a function, changed in place."""
        for name in sorted(_asked(body)):
            makes = [pair for x in walk(*body) for pair in made_by(x, _is_new) if pair[0].id == name]
            if not makes or not _has_one_name(body, name, makes):
                continue
            values = [*map(value_of, makes)]
            asking = _Asking(name, all(map(_has_defaults, values)))
            for made, value in zip(makes, values, strict=True):
                replace_value(made, placed(_filled(value, f"{name}:{value.lineno}"), value))
                self.count += 1
            body = asking.visit(ast.Module(list(body), [])).body
        return list(body)


class _Asking(ast.NodeTransformer):
    """Has a function ask for keys by calls.

    Attributes:
        has_defaults: has the dict values for missing keys?
    """

    def __init__(self, name: str, has_defaults: bool) -> None:
        self.name, self.has_defaults = name, has_defaults
        self.count = 0

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """One of ``in`` or ``not in``."""
        match node:
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Name(id=self.name)]):
                call = call_of(CONTAINS, self.name, key, ast.Constant(isinstance(op, ast.In)))
                self.generic_visit(call)
                return placed(call, node)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """``d.get(k, 0) + y``."""
        match node:
            case ast.BinOp(
                left=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=self.name), attr="get"),
                    args=[key, ast.Constant() as default],
                    keywords=[],
                ),
                op=ast.Add(),
                right=y,
            ):
                call = call_of(PLUS, self.name, key, y, default)
                self.generic_visit(call)
                return placed(call, node)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """``d[k] += y`` of a dict that has values for missing keys."""
        match node:
            case ast.AugAssign(
                target=ast.Subscript(value=ast.Name(id=self.name), slice=key), op=ast.Add(), value=y
            ) if self.has_defaults:
                self.count += 1
                at = f".key{self.count}.{self.name}"
                call = call_of(PLUS, self.name, load(at), y)
                self.generic_visit(call)
                target = ast.Subscript(load(self.name), load(at), ast.Store())
                return [placed(assign(at, key), node), placed(ast.Assign([target], call), node)]
        return self.generic_visit(node)


def _has_defaults(e: ast.expr) -> bool:
    match e:
        case ast.Call(func=ast.Name(id=cls) | ast.Attribute(attr=cls)):
            return cls in ("defaultdict", "Counter")
    return False


def _asked(body: Sequence[ast.stmt]) -> set[str]:
    """The variables into which loops, or functions inside, may insert keys."""
    inside = [x for loop in walk(*body) if isinstance(loop, ast.While | ast.For) for x in walk(loop)]
    found = set()
    for x in [*inside, *(y for s in walk(*body) if isinstance(s, ast.FunctionDef) for y in ast.walk(s))]:
        match x:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="add" | "setdefault")):
                found.add(name)
            case ast.Call(func=ast.Name(), args=args):  # of a function that may
                found |= {y.id for y in args if isinstance(y, ast.Name)}
    return found


def _is_new(e: ast.expr) -> bool:
    match e:
        case ast.Dict(keys=keys):
            return len(keys) <= MAX_ITEMS and None not in keys
        case ast.Set(elts=elts):
            return _is_set_of_few(elts)
        case ast.DictComp() | ast.Call(func=ast.Attribute(value=ast.Name(id="dict"), attr="fromkeys")):
            return True
        case ast.Call(func=ast.Name(id=cls) | ast.Attribute(attr=cls)):
            return cls in _MAKING
    return False


def _is_set_of_few(elts: Sequence[ast.expr]) -> bool:
    """Is the order of a set that of what is inserted?"""
    return len(elts) <= 1 and not any(isinstance(x, ast.Starred) for x in elts)


def _filled(e: ast.expr, place: str) -> ast.expr:
    """An expression that makes a dict or a set, as a call of `filled`."""
    match e:
        case ast.Dict(keys=keys, values=values):
            items = [ast.Tuple([k, v], ast.Load()) for k, v in zip(keys, values, strict=True) if k is not None]
            return call_of(FILLED, ast.Constant("dict"), ast.Constant(place), *items)
        case ast.Set(elts=elts):
            return call_of(FILLED, ast.Constant("set"), ast.Constant(place), *elts)
        case ast.Call(func=ast.Name(id="set") as f, args=[ast.List(elts=elts)], keywords=[]) if _is_set_of_few(elts):
            return call_of(FILLED, f, ast.Constant(place), *elts)
    return call_of(FILLED, e, ast.Constant(place))


def _has_one_name(body: Sequence[ast.stmt], name: str, makes: Sequence[Made]) -> bool:
    """Has a dict or a set no other name, and is it part of nothing else but what is returned?

    Functions inside may use it, too, where they do not set the variable.
    """
    own = {id(m[0]) for m in makes}
    if not is_read_inside_alone(body, name):
        return False
    every = [y for s in body for y in ast.walk(s)]
    for x in every:
        match x:
            case ast.Subscript(value=ast.Name() as base, ctx=ctx) if not isinstance(ctx, ast.Del):
                own.add(id(base))
            case ast.Attribute(value=ast.Name() as base, ctx=ast.Load()):
                own.add(id(base))
            case ast.Compare(comparators=[ast.Name() as base], ops=[ast.In() | ast.NotIn()]):
                own.add(id(base))
            case ast.Call(func=ast.Name(), args=args):
                own |= set(map(id, args))
            case ast.For(iter=ast.Name() as base) | ast.comprehension(iter=ast.Name() as base):
                own.add(id(base))
            case ast.Return(value=value):
                own |= set(map(id, _parts(value)))
            case ast.While(test=test) | ast.If(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                own |= {id(t) for t in (test, *(test.values if isinstance(test, ast.BoolOp) else ()))}
    return all(id(x) in own for x in every if isinstance(x, ast.Name) and x.id == name)


def _parts(e: ast.expr | None) -> Iterator[ast.expr]:
    """What is returned, and what is in its tuples, lists and dicts."""
    match e:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            for x in parts:
                yield from _parts(x)
        case ast.expr():
            yield e
