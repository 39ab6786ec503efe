"""Redirecting reads to an earlier version of a buffer where the writes in between do not overlap.

A version that stages other than the next version read cannot share memory with the next one, which begins with a copy
of it. In

    for k in range(0, n, 8):
        norms = sqrt(sum(x[k : k + 8] ** 2, axis=0))
        x[k : k + 8] /= norms

each `norms` reads another version of `x`, but could read the first one: then `merge_versions` leaves one copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hjit.process import deadline
from hjit.trace.ir.expressions import Expr, Load, rewrite
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.intervals import Interval, interval, whole
from hjit.trace.ir.large_numbers import with_numbers
from hjit.trace.ir.poly import Poly, is_never_negative
from hjit.trace.passes.interleaved_updates import never_equal
from hjit.trace.passes.limits import EARLIER_VERSIONS


@dataclass(frozen=True, slots=True)
class Region:
    """The values of an index of an array, over all iterations; a span is None if it is not known."""

    index: tuple[Poly, ...]
    spans: tuple[Interval | None, ...]

    def is_apart(self, other: Region) -> bool:
        """Are the regions certainly disjoint?"""
        return any(map(never_equal, self.index, other.index)) or any(map(_lie_apart, self.spans, other.spans))


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a buffer.

    Attributes:
        number: how many there are before it.
        before: the one that it is a copy of, with updates.
        written: by its updates.
    """

    name: str
    number: int
    before: Version | None = None
    written: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a version by a definition of a stage, except in place."""

    stage: str
    definition: Definition = field(repr=False)
    version: Version
    regions: tuple[Region, ...]

    def earlier(self) -> Iterator[Version]:
        """The versions that it may read, the latest first."""
        v: Version | None = self.version
        for _ in range(EARLIER_VERSIONS):
            if v is None:
                return
            yield v
            if not all(w.is_apart(r) for w in v.written for r in self.regions):
                return
            v = v.before


def read_earlier_versions(graph: Graph) -> Graph:
    """Redirect reads to earlier versions, so that few versions of a buffer have readers other than the next one."""
    versions = _versions(graph)
    if all(v.number < 2 for v in versions.values()):
        return graph  # of a buffer with one copy there is nothing to save
    reads = [x for s in graph.stages for d in s.definitions for x in _reads(s, d, versions)]
    kept = {*graph.outputs, *(i.name for i in graph.inputs)}  # in memory of their own, whatever reads them
    moved: dict[tuple[str, Definition], dict[str, str]] = {}
    for x in deadline.within("looking for versions", sorted(reads, key=lambda x: x.version.number)):
        name = next((v.name for v in x.earlier() if v.name in kept), x.version.name)
        kept.add(name)
        if name != x.version.name:
            moved.setdefault((x.stage, x.definition), {})[x.version.name] = name
    names = {stage for stage, _ in moved}
    return replace(graph, stages=tuple(_rewritten(s, moved) if s.name in names else s for s in graph.stages))


def _versions(graph: Graph) -> dict[str, Version]:
    """All arrays, as versions of buffers."""
    found = {i.name: Version(i.name, 0) for i in graph.inputs}
    for s in graph.stages:
        before = found.get(_copied(s))
        written = () if before is None else tuple(_region(d.target, d) for d in s.updates)
        found[s.name] = Version(s.name, 0 if before is None else before.number + 1, before, written)
    return found


def _copied(s: Stage) -> str:
    """What a stage is a copy of, with updates; nothing where it is none."""
    e = s.initial
    return e.source if s.updates and isinstance(e, Load) and e.index == identity(len(s.shape)) else ""


def _region(index: tuple[Poly, ...], d: Definition) -> Region:
    every = {k: whole(with_numbers(n)) for k, n in enumerate(d.extents)}
    index = tuple(map(with_numbers, index))
    return Region(index, tuple(interval(p, every, every) for p in index))


def _reads(s: Stage, d: Definition, versions: Mapping[str, Version]) -> Iterator[Read]:
    """What a definition reads of versions, but for what the next one may read of that before it in the same memory."""
    found: dict[str, list[Load]] = {}
    for x in d.loads:
        if x.source != s.name and not (x.source == _copied(s) and x.index == d.target):
            found.setdefault(x.source, []).append(x)
    for name, loads in found.items():
        yield Read(s.name, d, versions[name], tuple(_region(x.index, d) for x in loads))


def _rewritten(s: Stage, moved: Mapping[tuple[str, Definition], Mapping[str, str]]) -> Stage:
    """A stage whose definitions read other versions of the same names."""

    def definition(d: Definition) -> Definition:
        names = moved.get((s.name, d), {})

        def change(e: Expr) -> Expr | None:
            is_moved = (
                isinstance(e, Load) and e.source in names and not (e.source == _copied(s) and e.index == d.target)
            )
            return Load(names[e.source], e.index, e.dtype) if isinstance(e, Load) and is_moved else None

        return replace(d, value=rewrite(d.value, change)) if names else d

    first = s.definitions[0]
    initial = s.initial if s.initial is None else definition(first).value
    return replace(s, initial=initial, updates=tuple(map(definition, s.updates)))


def _lie_apart(a: Interval | None, b: Interval | None) -> bool:
    """Does one span end before the other begins?"""
    if a is None or b is None:
        return False
    return is_never_negative(a.low - b.high - 1) or is_never_negative(b.low - a.high - 1)
