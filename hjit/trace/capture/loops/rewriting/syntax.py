"""Parts of Python's syntax trees that rewritten loops are made of."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hjit.trace.splitting.source import copied

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def set_by(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """The variables that these set."""
    return frozenset(
        x.id for s in nodes for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
    )


def renamed(s: ast.stmt, names: dict[str, str]) -> ast.stmt:
    """A statement with other names for some variables, in place."""
    for x in ast.walk(s):
        if isinstance(x, ast.Name):
            x.id = names.get(x.id, x.id)
    return s


def load(name: str) -> ast.Name:
    """The value of a variable."""
    return ast.Name(name, ast.Load())


def assign(name: str, value: ast.expr) -> ast.stmt:
    """Set a variable."""
    return ast.Assign([ast.Name(name, ast.Store())], value)


def call_of(name: str, *args: str | ast.expr) -> ast.Call:
    """A call of a function by its name, on variables and expressions."""
    return ast.Call(load(name), [load(x) if isinstance(x, str) else x for x in args], [])


def if_statement(s: ast.stmt) -> ast.stmt:
    """``x = a if c else b``, and ``x += a if c else b``, as the statement ``if``; any other statement as it is."""
    match s:
        case ast.Assign(value=ast.IfExp(test=test, body=a, orelse=b)):
            sides = [[if_statement(ast.copy_location(ast.Assign(copied(s.targets), e), s))] for e in (a, b)]
            return ast.copy_location(ast.If(test, *sides), s)
        case ast.AugAssign(target=ast.Name() as x, op=op, value=ast.IfExp(test=test, body=a, orelse=b)):
            sides = [[if_statement(ast.copy_location(ast.AugAssign(copied([x])[0], op, e), s))] for e in (a, b)]
            return ast.copy_location(ast.If(test, *sides), s)
    return s


def walk(*nodes: ast.AST) -> Iterator[ast.AST]:
    """Nodes and those in them, but for those in functions and classes inside."""
    for x in nodes:
        yield x
        if not isinstance(x, SCOPES):
            yield from walk(*ast.iter_child_nodes(x))


def is_fixed_index(index: ast.expr) -> bool:
    """Is an index no computed one: a constant, a slice, or several?"""
    match index:
        case ast.Constant() | ast.Slice() | ast.Tuple() | ast.UnaryOp(operand=ast.Constant()):
            return True
    return False


def mentions(s: ast.AST, name: str) -> bool:
    """Is a variable named anywhere in a node?"""
    return any(isinstance(x, ast.Name) and x.id == name for x in ast.walk(s))


def placed(x: Any, place: ast.AST) -> Any:
    """A new node, with the place of another one for its nodes that have none of their own."""
    for y in ast.walk(x):
        if isinstance(y, ast.stmt | ast.expr) and not hasattr(y, "lineno"):
            ast.copy_location(y, place)
    return x


Made = tuple[ast.Name, Any, Any]  # a variable that is set, and where the expression is: a node or a list, and its place


def made_by(s: ast.AST, is_new: Callable[[ast.expr], bool]) -> Iterator[Made]:
    """The variables that a statement sets to something new, and where that expression is."""
    match s:
        case ast.Assign(targets=[ast.Name() as name], value=ast.expr() as value) if is_new(value):
            yield name, s, "value"
        case ast.AnnAssign(target=ast.Name() as name, value=ast.expr() as value) if is_new(value):
            yield name, s, "value"
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            for k, (n, v) in enumerate(zip(names, values, strict=True)):
                if isinstance(n, ast.Name) and is_new(v):
                    yield n, values, k


def value_of(made: Made) -> ast.expr:
    """The expression that a variable is set to."""
    _, s, at = made
    found: ast.expr = s[at] if isinstance(s, list) else getattr(s, at)
    return found


def replace_value(made: Made, new: ast.expr) -> None:
    """Have a variable be set to another expression."""
    _, s, at = made
    if isinstance(s, list):
        s[at] = new
    else:
        setattr(s, at, new)


def is_read_inside_alone(body: Sequence[ast.stmt], name: str) -> bool:
    """Are the scopes inside that mention a variable functions that do not set it?"""
    inner = [x for x in walk(*body) if isinstance(x, SCOPES) and mentions(x, name)]
    return all(isinstance(x, ast.FunctionDef) and name not in set_by([x]) | _parameters(x) for x in inner)


def _parameters(f: ast.FunctionDef) -> set[str]:
    return {x.arg for x in ast.walk(f.args) if isinstance(x, ast.arg)}
