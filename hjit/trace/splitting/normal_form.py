"""Splitting a simple statement into one statement per operation, in Python's order of evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hjit.trace.splitting.names import walk

TEMPORARY = "__hjit_t"  # begins the names of values in between
OPERATIONS = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)


def steps(s: ast.stmt, first: int) -> list[ast.stmt]:
    """A statement split into one statement for each operation; unchanged if it has only one.

    Args:
        first: the number of the first value in between.
    """
    if any(isinstance(x, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for x in walk(s)):
        return [s]  # names that an expression binds are read where they stand
    found: list[ast.stmt] = []
    names = (f"{TEMPORARY}{k}" for k in range(first, 1 << 30))
    match s:
        case ast.Assign(value=value) | ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
            s.value = _parts(value, found, names)
        case ast.AugAssign(target=ast.Name(), value=value):
            s.value = _named(value, found, names)
        case ast.Assign(targets=[ast.Subscript()], value=value):
            s.value = _named(value, found, names)
    return [*found, s]


def _parts(e: ast.expr, found: list[ast.stmt], names: Iterator[str]) -> ast.expr:
    """An expression whose operands are names."""
    match e:
        case ast.Call():
            if isinstance(e.func, ast.Attribute):
                e.func.value = _named(e.func.value, found, names)
            else:
                e.func = _named(e.func, found, names)
            e.args = [_starred(x, found, names) for x in e.args]
            for k in e.keywords:
                k.value = _named(k.value, found, names)
        case ast.BinOp():
            e.left = _named(e.left, found, names)
            e.right = _named(e.right, found, names)
        case ast.UnaryOp():
            e.operand = _named(e.operand, found, names)
        case ast.Compare() if len(e.ops) == 1:
            e.left = _named(e.left, found, names)
            e.comparators = [_named(e.comparators[0], found, names)]
        case ast.Subscript():
            e.value = _named(e.value, found, names)
        case ast.Attribute():
            e.value = _named(e.value, found, names)
        case ast.Tuple() | ast.List():
            e.elts = [_starred(x, found, names) for x in e.elts]
    return e


def _starred(e: ast.expr, found: list[ast.stmt], names: Iterator[str]) -> ast.expr:
    if isinstance(e, ast.Starred):
        e.value = _named(e.value, found, names)
        return e
    return _named(e, found, names)


def _named(e: ast.expr, found: list[ast.stmt], names: Iterator[str]) -> ast.expr:
    """A name for an operation, or for anything with side effects, which then happen in order."""
    if not any(isinstance(x, OPERATIONS) for x in walk(e)):
        return e
    e = _parts(e, found, names)
    if isinstance(e, (ast.Attribute, ast.Tuple, ast.List)):
        return e
    name = next(names)
    target = ast.copy_location(ast.Name(name, ast.Store()), e)
    found.append(ast.copy_location(ast.Assign([target], e), e))
    return ast.copy_location(ast.Name(name, ast.Load()), e)
