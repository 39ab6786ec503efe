"""Programs whose outermost loop has iterations that do not depend on each other, which threads may share.

Each element of an array is touched by one iteration only: one of its indices moves with the loop, the same one in all
accesses. What else an iteration writes (numbers that loops inside carry, scratch arrays) it writes before it reads it:
each thread has it for itself, and the last iteration leaves what Python's leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.expressions import Expr, Index, Load, Op, rewrite
from hjit.trace.ir.graph import Definition, Stage, identity, pure
from hjit.trace.ir.poly import ONE, Dim, Indirect, Poly, Sym, Var, deep_atoms, poly
from hjit.trace.ir.programs.rewriting import with_exprs
from hjit.trace.ir.programs.steps import (
    Branch,
    Define,
    Loop,
    Program,
    Step,
    Update,
    definitions,
    every,
    exprs,
    with_bodies,
)

MOST_PRIVATE = 64  # elements of an array that the last iteration copies to where it is wanted (chosen)
UNKNOWN = 8  # iterations that a loop is taken to have where they are computed, or it can be left (chosen)
BOOL = np.dtype(bool)


def with_independent_iterations(program: Program) -> Program | None:
    """The program with an outermost loop that threads may share; None: its iterations depend on each other."""
    match program.body:
        case (Loop(until=None) as loop,) if not (loop.begin.exprs or loop.end.exprs):
            pass
        case _:
            return None
    written = {s.array for s in every(loop.body) if isinstance(s, Update)}
    shapes = {s.name: s.shape for s in (*program.arrays, *program.local)}
    own = {n for n in written & shapes.keys() if not _moves(loop, n, len(shapes[n]))}
    if any(s.shape and s.name not in own for s in program.local):  # each task would have all of it
        return None
    if _reads_earlier(loop.body, frozenset(own), shapes):
        return None
    outputs = [s for s in program.arrays if s.name in own]
    if not all(_is_small(s) for s in outputs) or _left_open(loop, loop.body, frozenset(own), shapes) & {
        s.name for s in outputs
    }:
        return None
    return _private(program, loop, outputs)


def work_of(body: Iterable[Step], around: tuple[Loop, ...]) -> Poly:
    """Estimated operations of steps, over run-time sizes.

    Args:
        around: the loops around them, outermost first: they are in the last iteration of each.
    """

    def number(n: Poly) -> Poly:
        for loop in reversed(around):
            n = n.substitute(lambda a, loop=loop: loop.end - 1 if a == loop.var else None)  # type: ignore[misc]
        return n if all(isinstance(a, Sym) for a in deep_atoms(n)) else poly(UNKNOWN)

    found = ONE
    for s in body:
        for d in definitions(s):
            points = poly(1 + cost(d.value))
            for n in d.extents:
                points = points * number(n)
            found = found + points
        match s:
            case Loop():
                count = number(s.end - s.begin) if s.until is None else poly(UNKNOWN)
                found = found + count * work_of(s.body, (*around, s))
            case Branch():
                found = found + work_of((*s.yes, *s.no), around)
    return found


def _moves(loop: Loop, array: str, ndim: int) -> bool:
    """Has some axis the same index in all accesses of an array, one that moves with the loop alone?"""
    places = [x.index for s in every(loop.body) for e in exprs(s) for x in e.loads if x.source == array]
    places += [s.definition.target for s in every(loop.body) if isinstance(s, Update) and s.array == array]
    return any(len({p[k] for p in places}) == 1 and _moves_alone(places[0][k], loop.var) for k in range(ndim))


def _moves_alone(p: Poly, var: Var) -> bool:
    """Is an index another one in each iteration, and known from that alone?"""
    factor = p.coefficient(var)
    atoms = [a for a in deep_atoms(p) if isinstance(a, (Var, Dim, Indirect))]
    return factor is not None and factor.is_const and factor.const != 0 and all(a == var for a in atoms)


def _is_small(s: Stage) -> bool:
    n = 1
    for length in s.shape:
        n = n * length.const if length.is_const else MOST_PRIVATE + 1
    return n <= MOST_PRIVATE


def _sets_all(d: Definition, shape: Sequence[Poly]) -> bool:
    """Does an update leave no element as it was?"""
    return d.order == "pure" and d.dims == tuple(shape) and not d.rdims and d.target == identity(len(d.dims))


Shapes = dict[str, tuple[Poly, ...]]


def _copied(s: Step, shapes: Shapes) -> tuple[str, str] | None:
    """What a step makes a copy of, and the copy."""
    match s:
        case Update(definition=d) if s.array in shapes and _sets_all(d, shapes[s.array]):
            name, value = s.array, d.value
        case Define(stage=t) if not t.updates and t.initial is not None:
            name, value = t.name, t.initial
        case _:
            return None
    is_copy = isinstance(value, Load) and value.index == identity(len(value.index))
    return (value.source, name) if is_copy and isinstance(value, Load) else None


def _after(s: Step, stale: frozenset[str], shapes: Shapes) -> frozenset[str]:
    """What may hold something of an earlier iteration after a step, if that of `stale` does before it."""
    copy = _copied(s, shapes)
    if copy is not None and copy[0] in stale:
        return stale | {copy[1]}
    match s:
        case Update() if s.array in shapes and _sets_all(s.definition, shapes[s.array]):
            return stale - {s.array}
        case Define():
            return stale - {s.stage.name}
        case Branch():
            return _after_all(s.yes, stale, shapes) | _after_all(s.no, stale, shapes)
        case Loop():
            return stale | _after_all(s.body, stale, shapes)
    return stale


def _after_all(body: Iterable[Step], stale: frozenset[str], shapes: Shapes) -> frozenset[str]:
    for s in body:
        stale = _after(s, stale, shapes)
    return stale


def _reads_earlier(body: Iterable[Step], stale: frozenset[str], shapes: Shapes) -> bool:
    """May steps use what an earlier iteration has left, for something else than to pass it on?"""
    for s in body:
        read = {x.source for e in exprs(s) for x in e.loads}
        if isinstance(s, Update) and s.array in shapes and not _sets_all(s.definition, shapes[s.array]):
            read.add(s.array)
        if isinstance(s, Define):
            read.discard(s.stage.name)
        if _copied(s, shapes) is None and read & stale:
            return True
        inside: tuple[tuple[Step, ...], ...] = (s.yes, s.no) if isinstance(s, Branch) else ()
        if isinstance(s, Loop):
            inside = (s.body,)
            stale |= _after_all(s.body, stale, shapes)  # of its own iterations
            if s.until is not None and {x.source for x in s.until.loads} & stale:
                return True
        if any(_reads_earlier(b, stale, shapes) for b in inside):
            return True
        stale = _after(s, stale, shapes)
    return False


def _left_open(outermost: Loop, body: Iterable[Step], stale: frozenset[str], shapes: Shapes) -> frozenset[str]:
    """What an iteration may write or not: then an earlier one may be the last to write it."""
    found: frozenset[str] = frozenset()
    for s in body:
        after, copy = _after(s, stale, shapes), _copied(s, shapes)
        match s:
            case Branch():
                found |= {x.array for x in every((*s.yes, *s.no)) if isinstance(x, Update)} & after
            case Loop():
                atoms = [a for p in (s.begin, s.end) for a in deep_atoms(p)]
                is_same = s.until is None and not any(a == outermost.var or isinstance(a, Indirect) for a in atoms)
                inside = frozenset(x.array for x in every(s.body) if isinstance(x, Update))
                found |= _left_open(outermost, s.body, stale, shapes) if is_same else inside & stale
            case Update() | Define() if copy is not None:
                found = found | {copy[1]} if copy[0] in found else found - {copy[1]}
            case Update() if s.array in shapes:
                found = found | {s.array} if s.array in after else found - {s.array}
        stale = after
    return found


def _private(program: Program, loop: Loop, outputs: Sequence[Stage]) -> Program:
    """The program with a copy of each of these outputs in each iteration, the last of which is the output."""
    names = {s.name: f"{s.name}.own" for s in outputs}

    def change(x: Expr) -> Expr | None:
        return Load(names[x.source], x.index, x.dtype) if isinstance(x, Load) and x.source in names else None

    def own(s: Step) -> Step:
        if isinstance(s, Update):
            return replace(s, array=names.get(s.array, s.array))
        return with_bodies(s, lambda body: tuple(map(own, body)))

    body = tuple(own(with_exprs(s, lambda e: rewrite(e, change))) for s in loop.body)
    if outputs:
        is_last = Op("equal", (Index(poly(loop.var)), Index(loop.end - 1)), BOOL)
        begin = (Update(names[s.name], _copy(s, s.name)) for s in outputs)  # which loops without iterations leave
        end = (Update(s.name, _copy(s, names[s.name])) for s in outputs)
        body = (*begin, *body, Branch(is_last, tuple(end), ()))
    local = (*program.local, *(replace(s, name=names[s.name]) for s in outputs))
    return replace(program, local=local, body=(replace(loop, body=body),))


def _copy(s: Stage, source: str) -> Definition:
    return pure(s.shape, Load(source, identity(len(s.shape)), s.dtype))
