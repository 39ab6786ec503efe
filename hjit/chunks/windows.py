"""The Graph of one chunk: dimensions moved by run-time offsets, arrays as the windows of them that it needs.

Element ``i`` of the whole array is element ``i - origin`` of a window. A definition that ran over the whole stage runs
over the window, with ``dim + origin`` in place of each dimension: indices, boundary modes and index expressions keep
the coordinates and the sizes of the whole image, so that borders are where they are. Origins and lengths are run-time
sizes, those of one chunk the numbers of its row. Sizes are above `SMALL` (`hjit.trace.ir.poly`), so an origin is given
as itself plus `SHIFT`; a length that is not is a constant of a kernel of its own, as in images that are so small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hjit.chunks.boxes import Interval, Loops, Numbers, Regions
from hjit.chunks.parts import Part
from hjit.trace.ir.graph import (
    Change,
    Definition,
    Expr,
    Graph,
    Index,
    Input,
    Load,
    ScalarRef,
    Stage,
    rewrite,
    substitute,
    walk,
)
from hjit.trace.ir.poly import ONE, SMALL, ZERO, Atom, Dim, IntLike, Poly, Sym, poly

SHIFT = SMALL + 1

Axis = tuple[Poly, Poly]  # origin and length


@dataclass(frozen=True, slots=True)
class Windows:
    """The Graph of any chunk of a part, and the numbers of all of them.

    Attributes:
        names: of the run-time sizes that are a chunk's own.
        is_length: is it a length? Else it is an origin.
        rows: their numbers, a row for each chunk.
    """

    graph: Graph
    names: tuple[str, ...]
    is_length: tuple[bool, ...]
    rows: Numbers


class _Columns:
    """The run-time sizes of chunks; equal ones are one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.names: dict[str, tuple[bool, Numbers]] = {}
        self._known: dict[tuple[bool, bytes], str] = {}

    def add(self, name: str, is_length: bool, numbers: Numbers) -> Poly:
        """A size of that name, or one that has the same numbers."""
        key = is_length, numbers.tobytes()
        found = self._known.setdefault(key, name)
        if found == name:
            self.names[name] = is_length, numbers
        return poly(Sym(found)) - (0 if is_length else SHIFT)

    def axis(self, name: str, interval: Interval, n: int, length: Poly) -> Axis:
        """The window of an axis of `n` elements."""
        low, high = (np.broadcast_to(np.asarray(x, np.int64), self.count) for x in interval)
        if not low.any() and (high == n - 1).all():
            return ZERO, length
        lengths = np.maximum(high - low + 1, 0)
        return self.add(f"{name}.from", False, low + SHIFT), self.add(f"{name}.length", True, lengths)


def windows(graph: Graph, regions: Regions, part: Part) -> Windows:
    """The Graph of the chunks of a part."""
    count = int(np.prod(part.numblocks, dtype=np.int64))
    columns = _Columns(count)
    frames: dict[str, tuple[Axis, ...]] = {}
    order = [*part.outputs, *(n for n in part.boxes if n not in part.outputs)]
    for name in order:
        array = graph.arrays[name]
        if isinstance(array, Input) and array.data is not None:
            frames[name] = tuple((ZERO, n) for n in array.shape)
            continue
        axes = zip(part.boxes[name], regions.shapes[name], array.shape, strict=True)
        frames[name] = tuple(columns.axis(f"{name}.{k}", x, n, length) for k, (x, n, length) in enumerate(axes))
    stages = []
    for s in graph.stages:
        if s.name in part.boxes and s.name not in part.reads:
            stages.append(_Stage(s, part, regions, columns, frames).windowed())
    names = tuple(columns.names)
    numbers = [columns.names[n][1] for n in names]
    return Windows(
        Graph(
            tuple(_input(graph, n, frames[n]) for n in part.reads),
            tuple(x for x in graph.scalars if x.name in _scalars(stages)),
            tuple(stages),
            part.outputs,
        ),
        names,
        tuple(columns.names[n][0] for n in names),
        np.stack(numbers, axis=1) if numbers else np.zeros((count, 0), np.int64),
    )


def _scalars(stages: Sequence[Stage]) -> set[str]:
    return {e.name for s in stages for e in walk(*s.exprs()) if isinstance(e, ScalarRef)}


def _input(graph: Graph, name: str, frame: tuple[Axis, ...]) -> Input:
    """An array that is there, as its window, in C order."""
    array = graph.arrays[name]
    shape = tuple(length for _, length in frame)
    data = array.data if isinstance(array, Input) else None
    return Input(name, array.dtype, shape, contiguous(shape), data)


def contiguous(shape: tuple[Poly, ...]) -> tuple[int | None, ...]:
    """`hjit.trace.tracing.recorder.layout` of an array in C order."""
    found: list[int | None] = []
    step = ONE
    for n in reversed(shape):
        found.insert(0, 0 if n == ONE else step.const if step.is_const and step.const <= SMALL else None)
        step = step * n
    return tuple(found)


class _Stage:
    """One stage in its window."""

    def __init__(
        self, s: Stage, part: Part, regions: Regions, columns: _Columns, frames: Mapping[str, tuple[Axis, ...]]
    ) -> None:
        self.s, self.part, self.regions, self.columns, self.frames = s, part, regions, columns, frames
        self.frame = frames[s.name]

    def windowed(self) -> Stage:
        s = self.s
        loops = self.regions.loops(s.name)
        initial = None if s.initial is None else self._moved(s.initial, [origin for origin, _ in self.frame])
        first = 0 if s.initial is None else 1
        updates = tuple(self._update(d, number, loops[first + number]) for number, d in enumerate(s.updates))
        return replace(s, shape=tuple(length for _, length in self.frame), initial=initial, updates=updates)

    def _update(self, d: Definition, number: int, loops: Loops) -> Definition:
        given = self.part.given if self.s.name in self.part.outputs else {}
        dims = loops.dims(self.part.boxes[self.s.name], given)
        shape = self.regions.shapes[self.s.name]
        frame = []
        same = {k: axis for k, axis, c, rest in loops.solved if (c, rest) == (1, 0)}
        for k, (interval, extent) in enumerate(zip(dims, d.extents, strict=True)):
            n = loops.extents[k]
            axis = same.get(k)
            if axis is not None and shape[axis] == n:
                frame.append(self.frame[axis])
            else:
                frame.append(self.columns.axis(f"{self.s.name}.{number}.{k}", interval, n, extent))
        origins = [origin for origin, _ in frame]
        lengths = tuple(length for _, length in frame)
        change = shifted(origins)
        target = tuple(
            self._reading(p.substitute(change)) - origin
            for p, (origin, _) in zip(d.target, self.frame, strict=True)
        )
        pure = len(d.dims)
        return replace(
            d, dims=lengths[:pure], rdims=lengths[pure:], target=target, value=self._moved(d.value, origins)
        )

    def _moved(self, e: Expr, origins: Sequence[Poly]) -> Expr:
        """An expression whose dimensions begin at their origins, and which reads windows."""
        return rewrite(substitute(e, shifted(origins)), self._load, {})

    def _reading(self, p: Poly) -> Poly:
        """An index whose expressions read windows."""
        if not p.exprs:
            return p
        found = rewrite(Index(p), self._load, {})
        assert isinstance(found, Index)
        return found.poly

    def _load(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        frame = self.frames[e.source]
        index = tuple(p - origin for p, (origin, _) in zip(e.index, frame, strict=True))
        return Load(e.source, index, e.dtype)


def shifted(origins: Sequence[Poly]) -> Change:
    """A change of atoms that moves dimension k by ``origins[k]``."""

    def change(a: Atom) -> IntLike | None:
        return poly(a) + origins[a.k] if isinstance(a, Dim) and origins[a.k] != ZERO else None

    return change


def with_constants(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The Graph with numbers for some run-time sizes, without the updates that have no iterations then."""
    if not values:
        return graph

    def change(a: Atom) -> IntLike | None:
        return values.get(a.name) if isinstance(a, Sym) else None

    memo: dict[Expr, Expr] = {}

    def polys(ps: Sequence[Poly]) -> tuple[Poly, ...]:
        return tuple(p.substitute(change) for p in ps)

    def definition(d: Definition) -> Definition:
        return replace(
            d, dims=polys(d.dims), rdims=polys(d.rdims), target=polys(d.target), value=substitute(d.value, change, memo)
        )

    stages = []
    for s in graph.stages:
        updates = [definition(d) for d in s.updates]
        initial = None if s.initial is None else substitute(s.initial, change, memo)
        kept = tuple(d for d in updates if not any(n == ZERO for n in d.extents))
        stages.append(replace(s, shape=polys(s.shape), initial=initial, updates=kept))
    inputs = []
    for i in graph.inputs:
        shape = polys(i.shape)
        inputs.append(i if i.data is not None else replace(i, shape=shape, layout=contiguous(shape)))
    return replace(graph, inputs=tuple(inputs), stages=tuple(stages))
