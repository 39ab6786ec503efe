"""The Graph of one chunk: dimensions moved by run-time offsets, arrays as the windows of them that it needs.

Element ``i`` of the whole array is element ``i - origin`` of a window. A definition that ran over the whole stage runs
over the window, with ``dim + origin`` in place of each dimension: indices, boundary modes and index expressions keep
the coordinates and the sizes of the whole image, so that borders are where they are. Origins and lengths are run-time
sizes, those of one chunk the numbers of its row. Sizes are above `SMALL` (`hjit.trace.ir.poly`), so an origin is given
as itself plus `SHIFT`; a length that is not is a constant of a kernel of its own, as in images that are so small.

Chunks at the image's border have one Graph, those inside of it another: without boundary modes, which have no effect
there, and with origins that differ by constants, so that its loops are those of a whole image away from its border.
Chunks that go on with a scan have theirs (`carries.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.chunks.bounds import BoundsInference, Interval, Loops, Numbers
from hjit.chunks.carries import continuing, given_iterations, name_of_rows
from hjit.chunks.subgraphs import Subgraph
from hjit.trace.ir.expressions import Change, Expr, Index, Load, ScalarRef, rewrite, substitute, walk
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, contiguous_layout
from hjit.trace.ir.poly import SMALL, ZERO, Atom, Boundary, Dim, IntLike, Poly, Sym, boundary, poly
from hjit.trace.ir.rewriting import substitute_stage

SHIFT = SMALL + 1

Axis = tuple[Poly, Poly]  # origin and length


MAX_SHARED_DIFFERENCE = 256  # that origins, or lengths, may differ by to be one run-time size and a constant


@dataclass(frozen=True, slots=True)
class Windows:
    """The Graph of some chunks of a subgraph, and its run-time sizes for each of them.

    Attributes:
        names: of the run-time sizes that are a chunk's own.
        is_length: is it a length? Else it is an origin.
        chunks: which ones, by their position in the grid.
        rows: their numbers, a row for each chunk.
        before: the stage whose rows before a chunk an input is, by its name.
    """

    graph: Graph
    names: tuple[str, ...]
    is_length: tuple[bool, ...]
    chunks: Numbers
    rows: Numbers
    before: Mapping[str, str] = field(default_factory=dict)


class _Columns:
    """The run-time sizes of chunks; sizes that differ by a constant share a column."""

    def __init__(self, chunks: Numbers, is_inside: bool) -> None:
        self.chunks, self.is_inside = chunks, is_inside
        self.names: dict[str, tuple[bool, Numbers]] = {}
        self._known: dict[tuple[bool, int, bytes], list[str]] = {}

    def _add(self, name: str, axis: int, is_length: bool, numbers: Numbers) -> Poly:
        """A size of that name, or one that has the same numbers along the same axis."""
        key = is_length, axis, (numbers - numbers[0]).tobytes()
        known = self._known.setdefault(key, [])
        for other in known:
            by = int(numbers[0] - self.names[other][1][0])
            if by == 0 or (self.is_inside and abs(by) <= MAX_SHARED_DIFFERENCE):
                return poly(Sym(other)) + by - (0 if is_length else SHIFT)
        known.append(name)
        self.names[name] = is_length, numbers
        return poly(Sym(name)) - (0 if is_length else SHIFT)

    def axis(self, name: str, axis: int, interval: Interval, n: int, length: Poly) -> Axis:
        """The window of an axis of `n` elements."""
        low, high = (np.asarray(x, np.int64) for x in interval)
        low, high = (x[self.chunks] if x.ndim else np.full(len(self.chunks), x) for x in (low, high))
        if not low.any() and (high == n - 1).all():
            return ZERO, length
        lengths = np.maximum(high - low + 1, 0)
        return (
            self._add(f"{name}.from", axis, False, low + SHIFT),
            self._add(f"{name}.length", axis, True, lengths),
        )


def windows(graph: Graph, bounds: BoundsInference, subgraph: Subgraph) -> list[Windows]:
    """The Graphs of the chunks of a subgraph: of those at the border, and of the others.

    Args:
        bounds: of the subgraph (`Cutter.bounds_with`).
    """
    count = int(np.prod(subgraph.numblocks, dtype=np.int64))
    everything, first = np.arange(count), _is_first(subgraph, bounds, count)
    inside = np.ones(count, bool)
    has_borders = False
    for name, region in subgraph.required.items():
        if name not in subgraph.reads:
            given = subgraph.given.get(name, {})
            for update, loops in enumerate(bounds.loops(name), 0 if graph.stage(name).initial is None else -1):
                dims = loops.dims(region, given.get(update, {}))
                for access in loops.accesses:
                    inside &= access.is_inside(dims, count)
                    has_borders = has_borders or bool(access.borders)
    groups = [(~inside, False), (inside, True)] if has_borders else [(np.ones(count, bool), True)]
    found = []
    for (chosen, is_inside), goes_on in itertools.product(groups, (False, True)):
        chunks = everything[chosen & (~first if goes_on else first)]
        if len(chunks):
            make = _continuing if goes_on else _windows
            found.append(make(graph, bounds, subgraph, chunks, is_inside))
    return found


def _is_first(subgraph: Subgraph, bounds: BoundsInference, count: int) -> Any:
    """Which chunks go on from no other?"""
    found = np.ones(count, bool)
    for name, carry in subgraph.carries.items():
        found = carry.is_first(subgraph.required[name], bounds.shapes[name][carry.axis])
    return found


def _continuing(graph: Graph, bounds: BoundsInference, subgraph: Subgraph, chunks: Numbers, is_inside: bool) -> Windows:
    """The Graph of chunks that go on with scans."""
    given, required, before = dict(subgraph.given), dict(subgraph.required), {}
    for name, carry in subgraph.carries.items():
        given[name] = given_iterations(carry, subgraph.required[name], bounds.sizes)
        rows = name_of_rows(graph, name)
        required[rows], before[rows] = subgraph.before[name], name
    graph = continuing(graph, subgraph.carries)
    subgraph = replace(subgraph, given=given, required=required, reads=(*subgraph.reads, *before))
    bounds = BoundsInference(graph, bounds.sizes, bounds.scalars, bounds.carried)
    return _windows(graph, bounds, subgraph, chunks, is_inside, before)


def _windows(
    graph: Graph,
    bounds: BoundsInference,
    subgraph: Subgraph,
    chunks: Numbers,
    is_inside: bool,
    before: Mapping[str, str] = {},
) -> Windows:
    columns = _Columns(chunks, is_inside)
    frames: dict[str, tuple[Axis, ...]] = {}
    order = [*subgraph.outputs, *(n for n in subgraph.required if n not in subgraph.outputs)]
    for name in order:
        array = graph.arrays[name]
        if isinstance(array, Input) and array.data is not None:
            frames[name] = tuple((ZERO, n) for n in array.shape)
            continue
        axes = zip(subgraph.required[name], bounds.shapes[name], array.shape, strict=True)
        frames[name] = tuple(columns.axis(f"{name}.{k}", k, x, n, length) for k, (x, n, length) in enumerate(axes))
    stages = [
        _Stage(s, subgraph, bounds, columns, frames, before).windowed()
        for s in graph.stages
        if s.name in subgraph.required and s.name not in subgraph.reads
    ]
    numbers = [x for _, x in columns.names.values()]
    used = _scalars(stages)
    return Windows(
        Graph(
            tuple(_input(graph, n, frames[n]) for n in subgraph.reads),
            tuple(x for x in graph.scalars if x.name in used),
            tuple(stages),
            subgraph.outputs,
        ),
        tuple(columns.names),
        tuple(is_length for is_length, _ in columns.names.values()),
        chunks,
        np.stack(numbers, axis=1) if numbers else np.zeros((len(chunks), 0), np.int64),
        before,
    )


def _scalars(stages: Sequence[Stage]) -> set[str]:
    return {e.name for s in stages for e in walk(*s.exprs()) if isinstance(e, ScalarRef)}


def _input(graph: Graph, name: str, frame: tuple[Axis, ...]) -> Input:
    """An array that is there, as its window, in C order."""
    array = graph.arrays[name]
    shape = tuple(length for _, length in frame)
    data = array.data if isinstance(array, Input) else None
    return Input(name, array.dtype, shape, contiguous_layout(shape), data)


class _Stage:
    """One stage in its window."""

    def __init__(
        self,
        s: Stage,
        subgraph: Subgraph,
        bounds: BoundsInference,
        columns: _Columns,
        frames: Mapping[str, tuple[Axis, ...]],
        before: Mapping[str, str],
    ) -> None:
        self.own = {s.name, *(rows for rows, stage in before.items() if stage == s.name)}
        self.s, self.subgraph, self.bounds, self.columns, self.frames = s, subgraph, bounds, columns, frames
        self.frame, self.shapes = frames[s.name], bounds.graph.shapes

    def windowed(self) -> Stage:
        s = self.s
        loops = self.bounds.loops(s.name)
        initial = None if s.initial is None else self._moved(s.initial, [origin for origin, _ in self.frame])
        first = 0 if s.initial is None else 1
        updates = tuple(self._update(d, number, loops[first + number]) for number, d in enumerate(s.updates))
        return replace(s, shape=tuple(length for _, length in self.frame), initial=initial, updates=updates)

    def _update(self, d: Definition, number: int, loops: Loops) -> Definition:
        given = self.subgraph.given.get(self.s.name, {}).get(number, {})
        dims = loops.dims(self.subgraph.required[self.s.name], given)
        shape = self.bounds.shapes[self.s.name]
        frame = []
        same = {k: axis for k, axis, c, rest in loops.solved if (c, rest) == (1, 0)}
        for k, (interval, extent) in enumerate(zip(dims, d.extents, strict=True)):
            n = loops.extents[k]
            axis = same.get(k)
            if k not in given and axis is not None and shape[axis] == n:
                frame.append(self.frame[axis])
            else:
                frame.append(self.columns.axis(f"{self.s.name}.{number}.{k}", -1, interval, n, extent))
        origins = [origin for origin, _ in frame]
        lengths = tuple(length for _, length in frame)
        change = shifted(origins)
        target = tuple(
            self._reading(p.substitute(change)) - origin for p, (origin, _) in zip(d.target, self.frame, strict=True)
        )
        pure = len(d.dims)
        return replace(d, dims=lengths[:pure], rdims=lengths[pure:], target=target, value=self._moved(d.value, origins))

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
        is_inside = self.columns.is_inside and e.source not in self.own
        shape = self.shapes[e.source]
        index = tuple(_in_window(p, at, n, is_inside) for p, at, n in zip(e.index, frame, shape, strict=True))
        return Load(e.source, index, e.dtype)


def _in_window(p: Poly, axis: Axis, whole: Poly, is_inside: bool) -> Poly:
    """An index of an array as one of its window.

    Where a boundary mode has an effect, the window reaches to that end of the array: the mode has the same effect at
    the end of the window. An index that is computed from such a one is brought into the window, for passes that cannot
    tell that it is.

    Args:
        axis: the window.
        whole: the length of the array's axis.
    """
    if is_inside:
        p = p.substitute(_borderless)
    origin, length = axis
    if origin == ZERO and length == whole:
        return p
    inner = p.unbounded
    if inner is not p:
        ((m, _),) = p.terms.items()
        (a,) = m
        assert isinstance(a, Boundary)
        if a.extent == whole and inner.has(Dim):
            return boundary(a.mode, inner - origin, length)
    if p.has(Boundary):
        return boundary("clamp", p - origin, length)
    return p - origin


def _borderless(a: Atom) -> IntLike | None:
    """A change of atoms that leaves boundary modes away, but for those of fixed positions."""
    return a.arg.substitute(_borderless) if isinstance(a, Boundary) and a.arg.has(Dim) else None


def shifted(origins: Sequence[Poly]) -> Change:
    """A change of atoms that moves dimension k by ``origins[k]``."""

    def change(a: Atom) -> IntLike | None:
        return poly(a) + origins[a.k] if isinstance(a, Dim) and origins[a.k] != ZERO else None

    return change


def with_constants(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The Graph with numbers for some run-time sizes, without updates that then have no iterations."""
    if not values:
        return graph

    def change(a: Atom) -> IntLike | None:
        return values.get(a.name) if isinstance(a, Sym) else None

    memo: dict[Expr, Expr] = {}
    stages = []
    for s in (substitute_stage(s, change, memo) for s in graph.stages):
        stages.append(replace(s, updates=tuple(d for d in s.updates if ZERO not in d.extents)))
    inputs = []
    for i in graph.inputs:
        shape = tuple(p.substitute(change) for p in i.shape)
        inputs.append(i if i.data is not None else replace(i, shape=shape, layout=contiguous_layout(shape)))
    return replace(graph, inputs=tuple(inputs), stages=tuple(stages))
