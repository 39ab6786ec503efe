"""Dead statements: those after a ``return``, ``raise``, ``break`` or ``continue`` in its block never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hjit.trace.splitting.names import SCOPES, children, stores

_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_DECLARES = (ast.Global, ast.Nonlocal)


def drop_dead(tree: ast.FunctionDef) -> dict[str, None]:
    """Remove a function's dead statements, except those of inner functions; the tree is changed.

    ``global`` and ``nonlocal`` stay: they hold for the whole function.

    Returns:
        The names that dead statements bind, in order: they are local to the function as well.
    """
    names: dict[str, None] = {}
    for body in [*_blocks(tree)]:
        end = next((k for k, s in enumerate(body, 1) if isinstance(s, _EXITS)), len(body))
        dead = body[end:]
        names |= stores(dead)
        body[end:] = [x for s in dead for x in _own(s) if isinstance(x, _DECLARES)]
    return names


def binding(names: dict[str, None]) -> list[ast.stmt]:
    """A statement without effect that makes names local; none if there are no names."""
    if not names:
        return []
    targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in names]
    return [ast.If(ast.Constant(False), [ast.Assign(targets, ast.Constant(None))], [])]


def _own(s: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, except those in functions and classes."""
    yield s
    if not isinstance(s, SCOPES):
        for x in children(s):
            if isinstance(x, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                yield from _own(x)  # type: ignore[arg-type]


def _blocks(x: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements of a function, or in one of its statements, the outer ones first."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(body := getattr(x, name, None), list) and body:
            yield body
    for y in children(x):
        if isinstance(y, (ast.stmt, ast.ExceptHandler, ast.match_case)) and not isinstance(y, SCOPES):
            yield from _blocks(y)
