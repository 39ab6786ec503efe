"""Outlining: loops that occur repeatedly in a nest become functions, which LLVM compiles once.

An example are the stages of a search window that are computed row by row: there is a loop for each position, and these
differ in the addresses that they read and write. In a single function, all values computed before the loops would be
live throughout, which slows LLVM down.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import For, If, Outlined, ResetWindow, SlidingProduce, Stmt, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.printing import lines
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import inner, with_bodies
from hjit.trace.ir.graph import Graph

MANY = 24  # loops side by side, fewer compile fast
ALIKE = 4  # of them with the same text but for names and constants

_WORD = re.compile(r"[A-Za-z_][\w.]*(?!\w*\()|\d+")  # a name, but not that of an operation; a number

Body = tuple[Stmt, ...]


def outline(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Mark the loops that become functions as `Outlined`."""
    return replace(nest, body=_outlined(nest.body))


def _outlined(body: Body) -> Body:
    parts = [part for s in body for part in _parts(s)]
    if len(parts) < MANY:
        return tuple(with_bodies(s, _outlined) if isinstance(s, (For, If)) else s for s in body)
    shapes = [_shape(part) for part in parts]
    count = Counter(shapes)
    often = {part for part, shape in zip(parts, shapes, strict=True) if count[shape] >= ALIKE}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, (For, VectorLoop)):
            return Outlined((s,)) if s in often else s
        return with_bodies(s, lambda part: (Outlined(part),) if part in often else part)

    return tuple(map(visit, body))


def _parts(s: Stmt) -> Iterator[Stmt | Body]:
    """The part of a statement that may become a function: a loop, or the body of a condition."""
    match s:
        case For() | VectorLoop():
            if not _has_state((s,)):
                yield s
        case If() | SlidingProduce():
            yield from (part for part in inner(s) if part and not _has_state(part))


def _has_state(body: Body) -> bool:
    """Does a circular buffer begin or slide here? Its position is a variable of the function."""
    return any(isinstance(s, (ResetWindow, SlidingProduce)) or any(map(_has_state, inner(s))) for s in body)


def _shape(part: Stmt | Body) -> str:
    """The text of statements with names numbered in order of occurrence, and without constants."""
    names: dict[str, str] = {}

    def number(m: re.Match[str]) -> str:
        word = m[0]
        return "#" if word[0].isdigit() else names.setdefault(word, f"v{len(names)}")

    body = part if isinstance(part, tuple) else (part,)
    return _WORD.sub(number, "\n".join(line for s in body for line in lines(s, 0)))
