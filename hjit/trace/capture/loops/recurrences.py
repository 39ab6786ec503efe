"""What one iteration of a loop recorded, as one update over all its iterations.

Where an iteration decides on computed values, each path through it is recorded, and the value of the update selects
among what they write (if-conversion).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.nests import InvariantStages
from hjit.trace.capture.loops.paths import NotOneUpdate, Path, ReadsWhatItWrites, lift
from hjit.trace.capture.loops.several import Group, independent, merge_several
from hjit.trace.ir.borders import piecewise
from hjit.trace.ir.expressions import Change, Expr, Load, ScalarRef, rewrite, select, substitute, walk
from hjit.trace.ir.graph import Definition, Stage, identity
from hjit.trace.ir.poly import ONE, ZERO, Atom, Dim, Indirect, Poly, Var, deep_atoms, poly
from hjit.trace.ir.rewriting import map_exprs, with_source
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.writing import next_version, version_name
from hjit.trace.tracing.recording.recorder import Recorder


def merge_iterations(rec: Recorder, var: Var, count: Poly, serial: int, paths: Sequence[Path]) -> None:
    """Record one update over `count` iterations in place of what all paths through one of them have recorded.

    Where an iteration writes several arrays, or an array in several places, these updates run together.

    Args:
        serial: the serial number of buffers when the loop began.

    Raises:
        NotOneUpdate: it is not one update.
    """
    lasting = [p.lasting(serial) for p in paths]
    changes = [c for some in lasting for c in some]
    for buffer, _, contents, _ in changes:
        if contents is not None and buffer.last_read > serial:
            raise ReadsWhatItWrites("it reads what it writes")
    if any(c[3] not in p.body for p, some in zip(paths, lasting, strict=True) for c in some):
        raise NotOneUpdate("it writes known numbers")
    if not changes:
        for path in paths:
            if path.is_checked(rec):  # nothing depends on what is written
                _Body(InvariantStages(rec, var, count), "", frozenset()).take(path.body.values()).kept.record()
    for group in independent(rec, paths, lasting):
        _merge(rec, var, count, group)


def _merge(rec: Recorder, var: Var, count: Poly, group: Group) -> None:
    """Merge what writes some arrays that depend on each other."""
    if len(group.buffers) == 1:
        try:
            _merge_one(rec, var, count, group)
        except NotOneUpdate as why:
            if group.is_known and not group.reads_arguments(rec):
                raise
            try:
                merge_several(rec, var, count, group)
            except NotOneUpdate:
                raise why from None
    else:
        merge_several(rec, var, count, group)


def _merge_one(rec: Recorder, var: Var, count: Poly, group: Group) -> None:
    """Merge what writes one array, in one place."""
    ((buffer, old, contents),) = group.buffers
    bodies = [_Body(InvariantStages(rec, var, count), old, frozenset(p.before)).take(p.stages) for p in group.parts]
    iteration = _one_of([p.path for p in group.parts], bodies, buffer.dtype)
    assert iteration.write is not None
    if contents is not None and not _reads_arguments(rec, iteration, bodies):
        raise NotOneUpdate("its result is known while tracing")
    refusals = [name for name in rec.checks if any(b.is_value(name) for b in bodies)]
    if refusals and len(bodies) > 1:
        raise NotOneUpdate("NumPy refuses some values in a branch of what the loop writes")
    checks = [iteration.checked(group.parts[0].path.body[name], "") for name in refusals]
    for b in bodies:
        b.kept.record()
    _install(rec, iteration, buffer, iteration.write)
    for s in checks:  # of all iterations, whichever path they take: where one holds, NumPy runs
        rec.stages[s.name] = map_exprs(s, lambda e: with_source(e, "", buffer.version))


def _one_of(paths: Sequence[Path], bodies: Sequence[_Body], dtype: np.dtype[Any]) -> _Body:
    """An iteration that writes what the path that is taken writes."""
    if len(bodies) == 1:
        return bodies[0]
    writes = [b.write for b in bodies if b.write is not None]
    d = writes[0]
    if any((w.target, w.extents, w.order) != (d.target, d.extents, d.order) or w.rdims for w in writes):
        raise NotOneUpdate("it writes to several places of an array")

    def value(some: Sequence[tuple[Path, _Body]], met: int) -> Expr:
        path, body = some[0]
        if len(path.decided) == met:
            return Load(body.old, d.target, dtype) if body.write is None else body.write.value
        yes, no = ([x for x in some if x[0].decided[met][1] is outcome] for outcome in (True, False))
        taken, other = value(yes, met + 1), value(no, met + 1)
        return taken if taken == other else select(body.condition(path.decided[met][0]), taken, other)

    return replace(bodies[0], write=replace(d, value=value(list(zip(paths, bodies, strict=True)), 0)))


@dataclass
class _Body:
    """The stages of one iteration, taken up one after the other.

    Attributes:
        old: the version of the written array that the iteration found.
        versions: those that it made.
        kept: stages that do not depend on that array.
        write: what is written, over the dimensions of the written view; its value loads `old` where it reads the array.
    """

    kept: InvariantStages
    old: str
    versions: frozenset[str]
    write: Definition | None = None
    _values: dict[str, Expr] = field(default_factory=dict)
    _memo: dict[Expr, Expr] = field(default_factory=dict)

    @property
    def var(self) -> Var:
        """The iteration."""
        return self.kept.var

    @property
    def count(self) -> Poly:
        """How many iterations there are."""
        return self.kept.count

    def take(self, stages: Iterable[Stage]) -> _Body:
        """Take up what the iteration has recorded."""
        for s in stages:
            self._add(s)
        return self

    def is_value(self, stage: str) -> bool:
        """Is a stage part of what is written?"""
        return stage in self._values

    def _add(self, s: Stage) -> None:
        nest = self.kept.rec.rerolled.nests.get(s.name)
        if nest is not None and (s.name in self.versions or self._depends(nest.sources())):
            raise NotOneUpdate("it has a loop inside that writes several places")
        if s.name in self.versions:
            self._written(s)
        elif nest is None and self._depends({x.source for x in s.loads}):
            value = piecewise(s)
            if value is None:
                raise NotOneUpdate("it writes to, or reduces, a temporary that depends on what the loop writes")
            self._values[s.name] = self._rewritten(value)
        else:
            self.kept.add(s, self._rewritten)

    def _depends(self, sources: Iterable[str]) -> bool:
        return any(name == self.old or name in self.versions or name in self._values for name in sources)

    def condition(self, stage: str) -> Expr:
        """What a stage without axes decides, in each iteration."""
        return self._rewritten(Load(stage, (), np.dtype(bool)))

    def checked(self, s: Stage, final: str) -> Stage:
        """A check for all iterations of what the loop writes: `final` holds what earlier iterations wrote."""
        assert self.write is not None
        target = self.write.target
        at = next((k for k, p in enumerate(target) if p.mentions(self.var) and _alone(p, self.var)), None)
        if at is None or self.write.rdims:
            raise NotOneUpdate("NumPy refuses some values of what the loop writes again and again")
        step = target[at].coefficient(self.var)

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.source != self.old:
                return None
            away = e.index[at] - target[at]
            if step is None or not away.is_const:
                raise NotOneUpdate("NumPy refuses some values of what it reads elsewhere in what it writes")
            return Load(final, e.index, e.dtype) if away.const * step.const < 0 else None

        checked = replace(s, initial=rewrite(self._values[s.name], change), updates=())
        return lift(checked, self.var, self.count)

    def _rewritten(self, e: Expr) -> Expr:
        """The expression with temporaries put in their place."""

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            if e.source in self.kept.lifted:
                return Load(e.source, (poly(self.var), *e.index), e.dtype)
            if e.source in self._values:
                return substitute(self._values[e.source], lambda a: e.index[a.k] if isinstance(a, Dim) else None)
            if e.source in self.versions:
                return self._again(e)
            return None

        return rewrite(e, change, self._memo)

    def _again(self, e: Load) -> Expr:
        """What the iteration reads of the array after it has written to it."""
        assert self.write is not None
        target = self.write.target
        if e.index == target and not self.write.rdims:
            return self.write.value
        if any((p - q).is_const and p != q and not q.has(Dim) for p, q in zip(e.index, target, strict=True)):
            return Load(self.old, e.index, e.dtype)
        raise NotOneUpdate("it reads elsewhere in what it has just written")

    def _written(self, s: Stage) -> None:
        if s.updates:
            d, initial = s.updates[-1], s.initial
            keeps = (
                isinstance(initial, Load)
                and initial.index == identity(len(s.shape))
                and initial.source in (self.old, *self.versions)
            )
            if len(s.updates) > 1 or not keeps or d.order not in ("pure", "sequential"):
                raise NotOneUpdate("it writes in a way of its own")
        else:
            assert s.initial is not None
            d = Definition(s.shape, (), identity(len(s.shape)), s.initial)
        if any(p.has(Indirect) for p in d.target):
            raise NotOneUpdate("it writes where an array says")
        if self.write is not None and (self.write.target != d.target or self.write.extents != d.extents or d.rdims):
            raise NotOneUpdate("it writes to several places of an array")
        value = with_source(d.value, s.name, self.old) if d.rdims else d.value
        self.write = replace(d, value=self._rewritten(value))


def _reads_arguments(rec: Recorder, iteration: _Body, bodies: Sequence[_Body]) -> bool:
    """Does the value depend on more than constants?"""
    assert iteration.write is not None
    made = {s.name for b in bodies for s in b.kept.stages}

    def varies(name: str) -> bool:
        return name in made or name not in rec.inputs or rec.inputs[name].where != ("constant",)

    value = iteration.write.value
    return any(isinstance(e, ScalarRef) or (isinstance(e, Load) and varies(e.source)) for e in walk(value))


# -- the update


def _install(rec: Recorder, iteration: _Body, buffer: TracedBuffer, d: Definition) -> None:
    """Make the next version of the buffer."""
    own = [x for x in d.value.loads if x.source == iteration.old]
    axes = _own_axes(d)
    at = next((k for k, p in enumerate(d.target) if p.mentions(iteration.var) and _alone(p, iteration.var)), None)
    crossed = [k for k, axis in enumerate(axes) if any(x.index[axis] != d.target[axis] for x in own)]
    if crossed and not all(x.index == d.target or _is_of_other_iteration(x, d, at) for x in own):
        raise NotOneUpdate("it reads elsewhere along an axis that is written at once")
    if at is not None and not d.rdims and all(x.index == d.target for x in own):
        _install_pure(rec, iteration, buffer, d, [*axes], at)
    else:
        _install_recurrence(rec, iteration, buffer, d, crossed)


def _is_of_other_iteration(x: Load, d: Definition, at: int | None) -> bool:
    """Is what is read in the rows of another iteration, which this one writes nothing of?"""
    away = None if at is None or d.rdims else x.index[at] - d.target[at]
    return away is not None and away.is_const and away != ZERO


def _own_axes(d: Definition) -> list[int]:
    """For each pure dimension the axis that it alone runs along, so that its points never meet."""
    found = []
    for k, n in enumerate(d.dims):
        axis = next((a for a, p in enumerate(d.target) if p.mentions(Dim(k)) and _alone(p, Dim(k))), None)
        if axis is None and n != ONE:
            raise NotOneUpdate("it may write an element twice")
        found.append(-1 if axis is None else axis)
    return found


def _alone(p: Poly, atom: Atom) -> bool:
    """Is an index a constant multiple of `atom`, but for what no loop changes?"""
    factor = p.coefficient(atom)
    others = (a for a in deep_atoms(p) if isinstance(a, (Dim, Var, Indirect)) and a != atom)
    return factor is not None and factor.is_const and factor.const != 0 and next(others, None) is None


def _install_pure(
    rec: Recorder, iteration: _Body, buffer: TracedBuffer, d: Definition, axes: list[int], at: int
) -> None:
    """One dimension more, in the order of the axes: all iterations at once."""
    order: list[Any] = sorted([*range(len(axes)), iteration.var], key=lambda k: at if k is iteration.var else axes[k])
    place = {k: poly(Dim(new)) for new, k in enumerate(order)}
    dims = tuple(iteration.count if k is iteration.var else d.dims[k] for k in order)
    var = iteration.var
    target, value = _moved(d, lambda a: place.get(a.k) if isinstance(a, Dim) else place[a] if a == var else None)
    shape = rec.polys(buffer.shape)
    if dims == shape and target == identity(len(shape)):
        stage = rec.stage(value, buffer.shape, buffer.dtype, name=version_name(iteration.old))
        buffer.set_version(stage.name)
    else:
        next_version(buffer, iteration.old, (Definition(dims, (), target, value),))


def _install_recurrence(
    rec: Recorder, iteration: _Body, buffer: TracedBuffer, d: Definition, crossed: Sequence[int]
) -> None:
    """A reduction dimension outside those that there are: iteration by iteration.

    Inside it are dimensions that are `crossed`: an iteration must end along all of them before the next one begins.
    """
    pure = [k for k in range(len(d.dims)) if k not in crossed]
    inner = [*crossed, *range(len(d.dims), len(d.extents))]
    place = {k: Dim(new) for new, k in enumerate([*pure, None, *inner])}
    var = iteration.var
    target, value = _moved(d, lambda a: place[None] if a == var else place[a.k] if isinstance(a, Dim) else None)
    name = rec.unique(version_name(iteration.old))
    value = with_source(value, iteration.old, name)
    dims, rdims = (tuple(d.extents[k] for k in some) for some in (pure, inner))
    update = Definition(dims, (iteration.count, *rdims), target, value, "sequential")
    next_version(buffer, iteration.old, (update,), name)


def _moved(d: Definition, change: Change) -> tuple[tuple[Poly, ...], Expr]:
    """Target and value over other dimensions."""
    return tuple(p.substitute(change) for p in d.target), substitute(d.value, change)
