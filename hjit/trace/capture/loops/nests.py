"""Loops whose iterations write several places: arrays, and variables that they carry.

All that an iteration leaves is a function of what it finds, so a `RerolledNest` evaluates all values, and then stores
them. A loop inside is flattened with what stands before and after it: that happens in its first and in its last
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hjit.trace.capture.loops.paths import NotOneUpdate, as_first_dim, lift, varies
from hjit.trace.ir.expressions import Expr, Load, Op, rewrite, select, substitute
from hjit.trace.ir.graph import Definition, Stage, identity
from hjit.trace.ir.poly import Dim, Poly, Var, poly
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.tracing.recording.recorder import Recorder

BOOL = np.dtype(bool)
Rewritten = Callable[[Expr], Expr]
BEFORE, INSIDE, AFTER = range(3)  # where something stands in an iteration: relative to the loop inside


@dataclass(frozen=True, slots=True)
class Write:
    """``array[target] = value``, where a condition holds.

    Attributes:
        phase: where it stands.
    """

    array: str
    target: tuple[Poly, ...]
    value: Expr
    where: Expr | None = None
    phase: int = INSIDE

    def map(self, f: Callable[[Expr], Expr], index: Callable[[Poly], Poly]) -> Write:
        """The write with its expressions and the indices of its target rewritten."""
        where = None if self.where is None else f(self.where)
        return replace(self, target=tuple(map(index, self.target)), value=f(self.value), where=where)

    def exprs(self) -> tuple[Expr, ...]:
        """The expressions that it evaluates."""
        return (self.value, *([] if self.where is None else [self.where]), *(e for p in self.target for e in p.exprs))


@dataclass(frozen=True, slots=True)
class RerolledNest:
    """``for dims, rdims: evaluate all values; store them``. Loads of its arrays read what they hold at that moment.

    Attributes:
        arrays: by name, as they are before: stages without updates.
        dims: the first axes of every array and every target; points along them do not meet.
    """

    arrays: Mapping[str, Stage]
    dims: tuple[Poly, ...]
    rdims: tuple[Poly, ...]
    writes: tuple[Write, ...]

    def stage(self, name: str) -> Stage:
        """What stands for an array until the nest becomes stages."""
        own = [w for w in self.writes if w.array == name]
        updates = tuple(Definition(self.dims, self.rdims, w.target, w.value, "sequential") for w in own)
        return replace(self.arrays[name], updates=updates)

    def sources(self) -> set[str]:
        """The arrays that it reads."""
        begin = {x.source for s in self.arrays.values() for x in s.loads}
        return begin | {x.source for w in self.writes for e in w.exprs() for x in e.loads}

    def lifted(self, var: Var, count: Poly, rewritten: Rewritten) -> RerolledNest:
        """One nest for each iteration of a loop around it, along a first axis."""
        change = as_first_dim(var)

        def own(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.source in self.arrays:
                return Load(e.source, (poly(var), *e.index), e.dtype)
            return None

        def moved(e: Expr) -> Expr:
            return substitute(rewritten(rewrite(e, own)), change)

        arrays = {name: lift(map_exprs(s, rewritten), var, count) for name, s in self.arrays.items()}
        writes = tuple(w.map(moved, lambda p: p.substitute(change)) for w in self.writes)
        writes = tuple(replace(w, target=(poly(Dim(0)), *w.target)) for w in writes)
        return RerolledNest(arrays, (count, *self.dims), self.rdims, writes)


def as_nest(s: Stage, old: str = "") -> RerolledNest:
    """An array that one update follows, as the loops that it runs in.

    Args:
        old: of a stage without updates, the version of the array before it.

    Raises:
        NotOneUpdate: its order is not that of loops.
    """
    here = identity(len(s.shape))
    if s.updates:
        before, d = s.initial, s.updates[0]
    else:
        assert s.initial is not None
        before, d = Load(old, here, s.dtype), Definition(s.shape, (), here, s.initial)
    if len(s.updates) > 1 or d.order not in ("pure", "sequential"):
        raise NotOneUpdate("it writes in a way of its own")
    source = before.source if isinstance(before, Load) else ""
    own = [x for x in d.loads if x.source in (s.name, source)]
    if any(x.index != d.target if d.order == "pure" else x.source == source for x in own):
        raise NotOneUpdate("it reads elsewhere along an axis that is written at once")

    def change(e: Expr) -> Expr | None:
        return Load(s.name, e.index, e.dtype) if isinstance(e, Load) and e.source == source else None

    write = Write(s.name, d.target, rewrite(d.value, change))
    return RerolledNest({s.name: replace(s, initial=before, updates=())}, (), d.extents, (write,))


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two conditions, each of which None stands for True."""
    if a is None or b is None:
        return b if a is None else a
    return a if a == b else Op("logical_and", (a, b), BOOL)


def negated(a: Expr) -> Expr:
    """Where a condition does not hold."""
    return Op("logical_not", (a,), BOOL)


def choose(condition: Expr, a: Expr, b: Expr) -> Expr:
    """A select, where there is something to select."""
    return a if a == b else select(condition, a, b)


@dataclass
class InvariantStages:
    """The stages of an iteration that do not depend on what the loop writes: they are computed before it.

    Attributes:
        stages: with an axis for the iterations where they depend on the iteration; those of nests among them.
        nests: what these are the arrays of.
        lifted: the names of those with that axis.
    """

    rec: Recorder
    var: Var
    count: Poly
    stages: list[Stage] = field(default_factory=list)
    nests: list[RerolledNest] = field(default_factory=list)
    lifted: set[str] = field(default_factory=set)

    def add(self, s: Stage, rewritten: Rewritten) -> None:
        """Keep a stage, whose loads `rewritten` makes loads of what is kept."""
        nest = self.rec.rerolled.nests.get(s.name)
        if nest is not None:
            if all(s.name not in x.arrays for x in self.nests):
                self._add_nest(nest, rewritten)
        elif varies(s, self.var, self.lifted):
            self.lifted.add(s.name)
            self.stages.append(lift(map_exprs(s, rewritten), self.var, self.count))
        else:
            self.stages.append(s)

    def _add_nest(self, nest: RerolledNest, rewritten: Rewritten) -> None:
        exprs = [e for w in nest.writes for e in w.exprs()] + [e for s in nest.arrays.values() for e in s.exprs()]
        targets = [p for w in nest.writes for p in w.target]
        moves = any(e.mentions(self.var) for e in exprs) or any(p.mentions(self.var) for p in targets)
        if moves or not self.lifted.isdisjoint(nest.sources()):
            nest = nest.lifted(self.var, self.count, rewritten)
            self.lifted |= set(nest.arrays)
        self.nests.append(nest)
        self.stages += [nest.stage(name) for name in nest.arrays]

    def record(self) -> None:
        """Record what is kept."""
        self.rec.stages.update((s.name, s) for s in self.stages)
        self.rec.rerolled.nests.update((name, nest) for nest in self.nests for name in nest.arrays)
