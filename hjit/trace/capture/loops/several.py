"""Iterations that write several arrays: which depend on each other, and one `RerolledNest` for those that do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.nests import Kept, RerolledNest, Write
from hjit.trace.capture.loops.paths import BufferChange, NotOneUpdate, Path
from hjit.trace.capture.loops.ways import NotShared, Slots, Way, merged
from hjit.trace.ir.expressions import Const, Load, ScalarRef, substitute, walk
from hjit.trace.ir.graph import Stage, identity
from hjit.trace.ir.poly import Atom, Dim, IntLike, Poly, Var
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.writing import version_name
from hjit.trace.tracing.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class PartOfPath:
    """What one way through an iteration has recorded that has to do with some arrays.

    Attributes:
        before: for each version of them that it made, the one before it.
    """

    path: Path
    stages: tuple[Stage, ...]
    before: dict[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """Arrays that iterations write, each with its version before the loop, and its contents where these are known."""

    buffers: tuple[tuple[TracedBuffer, str, Any], ...]
    ways: tuple[PartOfPath, ...]

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

        exprs = (e for part in self.ways for s in part.stages for e in s.exprs())
        return any(
            isinstance(x, ScalarRef) or (isinstance(x, Load) and varies(x.source)) for e in exprs for x in walk(e)
        )


def independent(rec: Recorder, paths: Sequence[Path], lasting: Sequence[Sequence[BufferChange]]) -> Iterator[Group]:
    """The arrays that the ways through an iteration write, in groups that do not depend on each other."""
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
        ways = []
        for path, changes, of in zip(paths, lasting, found, strict=True):
            stages = tuple(s for s in path.body.values() if of[s.name] <= group)
            before = {new: old for buffer, old, _, new in changes if id(buffer) in group}
            ways.append(PartOfPath(path, stages, before))
        yield Group(tuple(first[k] for k in first if k in group), tuple(ways))


def _join(groups: dict[int, set[int]], some: Collection[int]) -> None:
    together = set[int]().union(*(groups[k] for k in some))
    for k in together:
        groups[k] = together


def _dependences(
    rec: Recorder, path: Path, changes: Sequence[BufferChange], first: Mapping[int, tuple[TracedBuffer, str, Any]]
) -> dict[str, frozenset[int]]:
    """For each stage of a way through an iteration the changed arrays that it depends on, or is a version of."""
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
    """Record one nest over `count` iterations in place of all ways through one of them.

    Raises:
        NotOneUpdate: they do not fit into one.
    """
    slots = Slots(rec)
    keys = {id(b): rec.unique(version_name(old)) for b, old, _ in group.buffers}
    refused = rec.unique("refused")
    try:
        ways, inner, refusals = _ways(rec, var, count, slots, group, keys, refused, is_sharing=True)
    except NotShared:
        slots = Slots(rec)
        ways, inner, refusals = _ways(rec, var, count, slots, group, keys, refused, is_sharing=False)
    numbers, elements = merged([(part.path, way) for part, way in zip(group.ways, ways, strict=True)])
    writes = [Write(name, (), value) for name, value in numbers.items() if value != Load(name, (), value.dtype)]
    arrays = {
        keys[id(b)]: Stage(keys[id(b)], b.dtype, rec.polys(b.shape), Load(old, identity(len(b.shape)), b.dtype))
        for b, old, _ in group.buffers
    }
    arrays |= slots.stages()
    if refusals:
        arrays[refused] = Stage(refused, np.dtype(bool), (), Const(False, np.bool_))
    nest = _over_iterations(RerolledNest(arrays, (), (count, *(n for _, n in inner)), (*writes, *elements)), var, inner)
    for way in ways:
        way.kept.record()
    rec.stages.update((name, nest.stage(name)) for name in nest.arrays)
    rec.rerolled.nests.update(dict.fromkeys(nest.arrays, nest))
    if refusals:
        rec.checks[:] = [name for name in rec.checks if name not in refusals] + [refused]
    for b, _, _ in group.buffers:
        b.set_version(keys[id(b)])


def _ways(
    rec: Recorder,
    var: Var,
    count: Poly,
    slots: Slots,
    group: Group,
    keys: Mapping[int, str],
    refused: str,
    is_sharing: bool,
) -> tuple[list[Way], tuple[tuple[Var, Poly], ...], list[str]]:
    """The ways through the iteration, the loop inside, and what of it says whether NumPy refuses something.

    Raises:
        NotShared: they are to be tried with `is_sharing` False.
    """
    ways = []
    for part in group.ways:
        named = {old: keys[id(b)] for b, old, _ in group.buffers}
        for new, old in part.before.items():
            named[new] = named[old]
        ways.append(Way(Kept(rec, var, count), slots, named, part.before, is_sharing))
        ways[-1].take(part.stages)
    inner = next((w.inner for w in ways if w.inner), ())
    if any(w.inner not in ((), inner) for w in ways):
        raise NotOneUpdate("it has different loops inside")
    refusals = [name for name in rec.checks if any(w.depends(name) for w in ways)]
    for way, part in zip(ways, group.ways, strict=True):
        way.end(inner, [name for name in refusals if name in part.path.body], refused)
    return ways, inner, refusals


def _over_iterations(nest: RerolledNest, var: Var, inner: tuple[tuple[Var, Poly], ...]) -> RerolledNest:
    """The nest with its iterations as dimensions."""
    place: dict[Atom, IntLike] = {v: Dim(k) for k, v in enumerate([var, *(v for v, _ in inner)])}
    writes = tuple(w.map(lambda e: substitute(e, place.get), lambda p: p.substitute(place.get)) for w in nest.writes)
    return replace(nest, writes=writes)
