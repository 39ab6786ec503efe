"""Iterations that write several arrays: which depend on each other, and one `RerolledNest` for those that do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.capture.loops.nests import InvariantStages, RerolledNest, Write
from hjit.trace.capture.loops.path_writes import NotShared, PathWrites, Slots, merged
from hjit.trace.capture.loops.paths import BufferChange, NotOneUpdate, Path
from hjit.trace.ir.expressions import Const, Load, ScalarRef, substitute, walk
from hjit.trace.ir.graph import Stage, identity
from hjit.trace.ir.poly import Atom, Dim, IntLike, Poly, Var
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.writing import version_name
from hjit.trace.tracing.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class PartOfPath:
    """What one path through an iteration has recorded that has to do with some arrays.

    Attributes:
        before: for each version of them that it made, the one before it.
    """

    path: Path
    stages: tuple[Stage, ...]
    before: dict[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """Arrays that iterations write.

    Attributes:
        buffers: each with its version before the loop, and its contents where these are known.
        parts: of each path through an iteration what has to do with them.
    """

    buffers: tuple[tuple[TracedBuffer, str, Any], ...]
    parts: tuple[PartOfPath, ...]

    @property
    def is_known(self) -> bool:
        """Do all of them hold known numbers?"""
        return all(contents is not None for _, _, contents in self.buffers)

    def reads_arguments(self, rec: Recorder) -> bool:
        """Does what is written depend on more than known numbers?"""
        own = {old for _, old, _ in self.buffers}

        def varies(name: str) -> bool:
            is_constant = name in rec.inputs and rec.inputs[name].where == ("constant",)
            return name not in own and not is_constant and (name in rec.stages or name in rec.inputs)

        exprs = (e for part in self.parts for s in part.stages for e in s.exprs())
        return any(
            isinstance(x, ScalarRef) or (isinstance(x, Load) and varies(x.source)) for e in exprs for x in walk(e)
        )


def independent(rec: Recorder, paths: Sequence[Path], lasting: Sequence[Sequence[BufferChange]]) -> Iterator[Group]:
    """The arrays that the paths through an iteration write, in groups that do not depend on each other."""
    first: dict[int, tuple[TracedBuffer, str, Any]] = {}
    for changes in lasting:
        for buffer, old, contents, _ in changes:
            first.setdefault(id(buffer), (buffer, old, contents))
    found = [_dependences(rec, p, changes, first) for p, changes in zip(paths, lasting, strict=True)]
    groups = {k: {k} for k in first}
    for path, changes, of in zip(paths, lasting, found, strict=True):
        decided = frozenset[int]().union(*(of[name] for name, _ in path.decided))
        for buffer, *_, new in changes:
            _join(groups, {id(buffer)} | of[new] | decided)
        for name in rec.checks:
            _join(groups, of.get(name, frozenset()))
    for group in {id(g): g for g in groups.values()}.values():
        parts = []
        for path, changes, of in zip(paths, lasting, found, strict=True):
            stages = tuple(s for s in path.body.values() if of[s.name] <= group)
            before = {new: old for buffer, old, _, new in changes if id(buffer) in group}
            parts.append(PartOfPath(path, stages, before))
        yield Group(tuple(first[k] for k in first if k in group), tuple(parts))


def _join(groups: dict[int, set[int]], some: Collection[int]) -> None:
    together = set[int]().union(*(groups[k] for k in some))
    for k in together:
        groups[k] = together


def _dependences(
    rec: Recorder, path: Path, changes: Sequence[BufferChange], first: Mapping[int, tuple[TracedBuffer, str, Any]]
) -> dict[str, frozenset[int]]:
    """For each stage of a path through an iteration the changed arrays that it depends on, or is a version of."""
    of = {old: frozenset((k,)) for k, (_, old, _) in first.items()}
    own = {new: frozenset((id(buffer),)) for buffer, *_, new in changes}
    none: frozenset[int] = frozenset()
    for s in path.body.values():
        if s.name in of:
            continue
        nest = rec.rerolled.nests.get(s.name)
        names = list(nest.arrays) if nest is not None else [s.name]
        sources = nest.sources() if nest is not None else s.sources
        together = none.union(*(of.get(x, none) for x in sources), *(own.get(n, none) for n in names))
        of.update(dict.fromkeys(names, together))
    return of


def merge_several(rec: Recorder, var: Var, count: Poly, group: Group) -> None:
    """Record one nest over `count` iterations in place of all paths through one of them.

    Raises:
        NotOneUpdate: they do not fit into one.
    """
    keys = {id(b): rec.unique(version_name(old)) for b, old, _ in group.buffers}
    merge = _Merge(rec, var, count, group, keys, rec.unique("refused"))
    try:
        iteration = merge.iteration(is_sharing=True)
    except NotShared:
        iteration = merge.iteration(is_sharing=False)
    merge.record(iteration)


@dataclass(frozen=True, slots=True)
class _Iteration:
    """What one iteration writes.

    Attributes:
        paths: in the order of the group's parts.
        inner: the dimensions of the loop inside, as variables, and their extents.
        refusals: the stages of it that say whether NumPy refuses something.
    """

    paths: tuple[PathWrites, ...]
    slots: Slots
    inner: tuple[tuple[Var, Poly], ...]
    refusals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Merge:
    """The iterations of a loop that are to be one nest.

    Attributes:
        keys: by the id of a buffer the array of the nest that holds its elements.
        refused: the array that says whether NumPy has refused something.
    """

    rec: Recorder
    var: Var
    count: Poly
    group: Group
    keys: Mapping[int, str]
    refused: str

    def iteration(self, is_sharing: bool) -> _Iteration:
        """Each path through the iteration, in terms of what it finds in the arrays.

        Raises:
            NotShared: they are to be tried with `is_sharing` False.
        """
        slots = Slots(self.rec)
        paths = tuple(self._path(part, slots, is_sharing) for part in self.group.parts)
        inner = next((p.inner for p in paths if p.inner), ())
        if any(p.inner not in ((), inner) for p in paths):
            raise NotOneUpdate("it has different loops inside")
        refusals = tuple(name for name in self.rec.checks if any(p.depends(name) for p in paths))
        for path, part in zip(paths, self.group.parts, strict=True):
            path.end(inner, [name for name in refusals if name in part.path.body], self.refused)
        return _Iteration(paths, slots, inner, refusals)

    def _path(self, part: PartOfPath, slots: Slots, is_sharing: bool) -> PathWrites:
        named = {old: self.keys[id(b)] for b, old, _ in self.group.buffers}
        for new, old in part.before.items():
            named[new] = named[old]
        kept = InvariantStages(self.rec, self.var, self.count)
        found = PathWrites(kept, slots, named, part.before, part.path.decided, is_sharing)
        found.take(part.stages)
        return found

    def record(self, iteration: _Iteration) -> None:
        """Record the nest, and what is computed before it."""
        rec, nest = self.rec, self._nest(iteration)
        for path in iteration.paths:
            path.kept.record()
        rec.stages.update((name, nest.stage(name)) for name in nest.arrays)
        rec.rerolled.nests.update(dict.fromkeys(nest.arrays, nest))
        if iteration.refusals:
            rec.checks[:] = [name for name in rec.checks if name not in iteration.refusals] + [self.refused]
        for b, _, _ in self.group.buffers:
            b.set_version(self.keys[id(b)])

    def _nest(self, iteration: _Iteration) -> RerolledNest:
        """The nest, with its iterations as dimensions."""
        numbers, elements = merged(iteration.paths)
        writes = [Write(name, (), value) for name, value in numbers.items() if value != Load(name, (), value.dtype)]
        place: dict[Atom, IntLike] = {v: Dim(k) for k, v in enumerate([self.var, *(v for v, _ in iteration.inner)])}
        over = [
            w.map(lambda e: substitute(e, place.get), lambda p: p.substitute(place.get)) for w in (*writes, *elements)
        ]
        return RerolledNest(self._arrays(iteration), (), (self.count, *(n for _, n in iteration.inner)), tuple(over))

    def _arrays(self, iteration: _Iteration) -> dict[str, Stage]:
        """What it finds in its arrays before the first iteration."""
        found: dict[str, Stage] = {}
        for b, old, _ in self.group.buffers:
            key = self.keys[id(b)]
            found[key] = Stage(key, b.dtype, self.rec.polys(b.shape), Load(old, identity(len(b.shape)), b.dtype))
        found |= iteration.slots.stages()
        if iteration.refusals:
            found[self.refused] = Stage(self.refused, np.dtype(bool), (), Const(False, np.bool_))
        return found
