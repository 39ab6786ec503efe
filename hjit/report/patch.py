"""Decorators for functions of a file, as a unified diff."""

from __future__ import annotations

import ast
import difflib
import os
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

DECORATOR, IMPORT = "@hjit.pipeline", "import hjit"


def patch(file: Path, lines: Iterable[int]) -> str:
    """A diff that decorates the functions that begin at these lines, with a decorator or with ``def``.

    Empty where none of them is found. Its paths are relative to the working folder, for ``patch -p1``.
    """
    with tokenize.open(file) as f:
        encoding = f.encoding
    before = file.read_bytes().decode(encoding).splitlines(keepends=True)
    after = _decorated(before, set(lines))
    name = os.path.relpath(file).replace(os.sep, "/")
    return "".join(map(_ended, difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")))


def _decorated(lines: list[str], starts: set[int]) -> list[str]:
    tree = ast.parse("".join(lines))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _start(node) in starts]
    if not functions:
        return lines
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    new = {f.lineno: f"{' ' * f.col_offset}{DECORATOR}{end}" for f in functions}
    if not any(
        isinstance(s, ast.Import) and any(a.name == "hjit" and not a.asname for a in s.names) for s in tree.body
    ):
        at = _after_imports(tree, min(new))
        new[at] = IMPORT + end + new.get(at, "")
    return [part for number, line in enumerate(lines, 1) for part in (*_before(new, number), line)]


def _before(new: dict[int, str], number: int) -> Iterator[str]:
    yield from new.get(number, "").splitlines(keepends=True)


def _after_imports(tree: ast.Module, first: int) -> int:
    """The line after the imports at the head of a module, or after what stands before them; at most `first`."""
    at = 1
    for k, s in enumerate(tree.body):
        is_docstring = k == 0 and isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
        if not is_docstring and not isinstance(s, (ast.Import, ast.ImportFrom)):
            return min(at if k else s.lineno, _start(s))
        at = (s.end_lineno or s.lineno) + 1
    return min(at, first)


def _start(s: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(s, "decorator_list", [])
    return min([s.lineno, *(d.lineno for d in decorators)])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
