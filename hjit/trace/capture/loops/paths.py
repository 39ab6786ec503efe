"""The paths through an iteration of a loop that is traced as one, and the stages that they record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.trace.ir.analysis.gathers import checked_atoms
from hjit.trace.ir.expressions import Const, Expr, Load, Op, map_polys, rewrite, select, substitute, walk
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import Atom, Dim, Indirect, IntLike, Poly, Var, poly
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.tracing.recording.recorder import Recorder

BOOL = np.dtype(bool)
# a buffer, its version before, the contents where they were known, and its version
BufferChange = tuple[Any, str, Any, str]


class NotOneUpdate(Exception):
    """What an iteration recorded is not one update, of one array or of several."""


class ReadsWhatItWrites(NotOneUpdate):
    """An iteration has used what the array holds before the first one, which it does not hold before the others."""


@dataclass(frozen=True, slots=True)
class Path:
    """What one path through an iteration recorded.

    Attributes:
        body: its stages by name.
        changes: of buffers, see `Recorder.changes`, with the versions that the buffers had in the end.
        decided: the stages of the conditions that it met, and the outcomes.
        guard: the stage that says whether there is such an iteration; "": there always is.
    """

    body: dict[str, Stage]
    changes: tuple[tuple[Any, str, Any, str], ...]
    decided: tuple[tuple[str, bool], ...]
    guard: str = ""

    @classmethod
    def rolled_back(cls, rec: Recorder, at: tuple[int, int], decided: Sequence[tuple[str, bool]]) -> Path:
        """What was recorded since `at`, so many stages and changes; the recorder and the buffers are as before."""
        stages, changes = at
        body = {name: rec.stages.pop(name) for name in list(rec.stages)[stages:]}
        made = tuple((*c, c[0].version) for c in rec.changes[changes:])
        del rec.changes[changes:]
        for buffer, version, contents, _ in reversed(made):
            buffer.version, buffer.contents = version, contents
        return cls(body, made, tuple(decided))

    def is_checked(self, rec: Recorder) -> bool:
        """May NumPy refuse something that it computes?"""
        return not self.body.keys().isdisjoint((*rec.checks, *(noted.stage for noted in rec.indices.values())))

    def needed(self, checks: Collection[str]) -> list[Stage]:
        """The stages that matter to what it changes, to what it decides after its first condition, and to `checks`."""
        live = {c[3] for c in self.changes} | {c[1] for c in self.changes} | {name for name, _ in self.decided[1:]}
        live |= set(checks)
        found = []
        for s in reversed(self.body.values()):
            if s.name in live:
                found.append(s)
                live |= s.sources
        return found[::-1]

    def lasting(self, serial: int) -> list[BufferChange]:
        """Changes of buffers that were there when the loop began, each with the version that it made."""
        found = [c for c in self.changes if c[0].serial < serial or c[0].argument]
        later: dict[int, str] = {}
        steps: list[BufferChange] = []
        for buffer, before, contents, last in reversed(found):
            steps.append((buffer, before, contents, later.get(id(buffer), last)))
            later[id(buffer)] = before
        return steps[::-1]


def guard_gathers(rec: Recorder, path: Path) -> Path:
    """A path whose indices that arrays hold are 0 where it is not taken: NumPy does not look at them there."""
    if not path.decided:
        return path
    met = [_outcome(name, held) for name, held in path.decided if name not in path.body]
    decided = {name: held for name, held in path.decided if name in path.body}
    noted = {x.stage for x in rec.indices.values()}
    body: dict[str, Stage] = {}
    for s in path.body.values():
        body[s.name] = s
        nest = rec.rerolled.nests.get(s.name)
        if met and nest is None:
            body[s.name] = _with_guard(s, met, s.name in noted)
        elif met and nest is not None and s.name == next(iter(nest.arrays)):
            guard = _conjunction(met)
            writes = tuple(w.map(lambda e: _guarded_gathers(e, guard), lambda p: p) for w in nest.writes)
            if writes != nest.writes:
                rec.rerolled.nests.update(dict.fromkeys(nest.arrays, replace(nest, writes=writes)))
        if s.name in decided:
            met.append(_outcome(s.name, decided[s.name]))
    return replace(path, body=body)


def _outcome(name: str, held: bool) -> Expr:
    load = Load(name, (), BOOL)
    return load if held else Op("logical_not", (load,), BOOL)


def _conjunction(met: Sequence[Expr]) -> Expr:
    return functools.reduce(lambda a, b: Op("logical_and", (a, b), BOOL), met)


def _with_guard(s: Stage, met: Sequence[Expr], is_index: bool) -> Stage:
    has_gathers = any(checked_atoms(p) for e in walk(*s.exprs()) for p in e.polys)
    if not has_gathers and not is_index:
        return s
    guard = _conjunction(met)
    s = map_exprs(s, lambda e: _guarded_gathers(e, guard))
    if is_index and s.initial is not None:
        s = replace(s, initial=select(guard, s.initial, Const(0, s.initial.dtype)))
    return s


def _guarded_gathers(e: Expr, guard: Expr) -> Expr:
    def atom(a: Atom) -> IntLike | None:
        if isinstance(a, Indirect) and a.extent is not None:
            return Indirect(select(guard, a.expr, Const(0, a.expr.dtype)), a.extent)
        return None

    def change(e: Expr) -> Expr | None:
        return map_polys(e, lambda p: p.substitute(atom)) if any(map(checked_atoms, e.polys)) else None

    return rewrite(e, change)


def guarded(paths: Sequence[Path], left: str) -> list[Path]:
    """The paths through an iteration, and those of iterations that do nothing.

    Args:
        left: the array that says whether the loop has been left before; "" of a loop that is not.
    """
    outside = ((left, False),) if left else ()
    found = [replace(p, decided=(*outside, *([(p.guard, True)] if p.guard else []), *p.decided)) for p in paths]
    if paths[0].guard:
        body, live = {}, {paths[0].guard}
        for s in reversed(paths[0].body.values()):
            if s.name in live:
                body[s.name] = s
                live |= s.sources
        found.append(Path(dict(reversed(body.items())), (), (*outside, (paths[0].guard, False))))
    return [Path({}, (), ((left, True),)), *found] if left else found


def without_first(paths: Sequence[Path], begins: Mapping[str, Expr], checks: Collection[str]) -> list[Path]:
    """The paths through an iteration that is not the first one, where the first one does the same.

    Args:
        paths: the first condition of each is that it is the first iteration.
        begins: numbers that the first iteration finds in arrays.
        checks: stages that say whether NumPy refuses something.
    """
    first, others = ([p for p in paths if p.decided[0][1] is outcome] for outcome in (True, False))
    if len(first) == len(others) and all(_are_alike(a, b, begins, checks) for a, b in zip(first, others, strict=True)):
        return [replace(p, decided=p.decided[1:]) for p in others]
    return list(paths)


def _are_alike(a: Path, b: Path, begins: Mapping[str, Expr], checks: Collection[str]) -> bool:
    """Have two paths recorded the same, but for names, where what `b` reads of some arrays is what they begin with?"""
    left, right = a.needed(checks), b.needed(checks)
    if len(left) != len(right) or len(a.changes) != len(b.changes):
        return False
    names = {y.name: x.name for x, y in zip(left, right, strict=True)}

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        return begins.get(e.source, Load(names.get(e.source, e.source), e.index, e.dtype))

    memo: dict[Expr, Expr] = {}
    for x, y in zip(left, right, strict=True):
        same = map_exprs(y, lambda e: rewrite(e, change, memo))
        if replace(x, name="", origin=None) != replace(same, name="", origin=None):
            return False
    changes = [(c[0], names.get(c[1], c[1]), names.get(c[3], c[3])) for c in b.changes]
    decided = [(names.get(name), outcome) for name, outcome in b.decided[1:]]
    return changes == [(c[0], c[1], c[3]) for c in a.changes] and decided == list(a.decided[1:])


def varies(s: Stage, var: Var, lifted: Collection[str]) -> bool:
    """Is a stage another one in each iteration?"""
    exprs = s.exprs()
    targets = [p for d in s.updates for p in d.target]
    return (
        any(e.mentions(var) for e in exprs)
        or any(p.mentions(var) for p in targets)
        or any(x.source in lifted for x in s.loads)
    )


def as_first_dim(var: Var) -> Callable[[Atom], IntLike | None]:
    """A change of atoms that makes a loop variable the first dimension, before all others."""

    def change(a: Atom) -> IntLike | None:
        return Dim(a.k + 1) if isinstance(a, Dim) else Dim(0) if a == var else None

    return change


def lift(s: Stage, var: Var, count: Poly) -> Stage:
    """The stage for all iterations: the iteration is its first axis."""
    change = as_first_dim(var)

    def lifted(d: Definition) -> Definition:
        target = (poly(Dim(0)), *(p.substitute(change) for p in d.target))
        return replace(d, dims=(count, *d.dims), target=target, value=substitute(d.value, change))

    initial = None if s.initial is None else substitute(s.initial, change)
    return replace(s, shape=(count, *s.shape), initial=initial, updates=tuple(map(lifted, s.updates)))
