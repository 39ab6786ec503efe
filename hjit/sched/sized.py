"""A Graph in numbers: what the features of its schedules ask again and again, worked out once for concrete sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hjit.sched.boxes import Reads, single_dim
from hjit.sched.check import is_associative, is_direct, is_repeatable
from hjit.sched.footprint import ANYWHERE, Box, Dims, Interval, Memory, Window, clipped, concrete, joined, row_axes, window
from hjit.sched.formulas import Num, ceil_div, floor_div, least, most, product, total, within
from hjit.sched.memory import C_ORDER, Layout
from hjit.trace.graph import Const, Definition, Expr, Graph, Index, Input, Load, Op, Stage, loads, renumber, walk
from hjit.trace.poly import SMALL, Dim, Poly

At = tuple[Poly, ...]  # the index of a load
NOTHING: Mapping[int, Num] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """What a computation of a schedule tree evaluates: definitions of a stage that share their loops.

    Attributes:
        extents: of the dimensions of the loops.
        pure: how many of them are pure; the reduction dimensions follow.
        dimensions: of each definition: the first so many of the loops' are its own.
        inverse: of the loops' dimensions those that one axis of the stage tells: dimension, axis, coefficient, offset, and
            whether the dimension is all of the axis.
        windows: what is loaded, by source.
        written: what is stored.
        loads: every distinct load, stages that are inlined looked through.
        calls: how often one evaluation calls each of those.
        is_repeatable: may an element be computed twice?
        is_plain: does every box have iterations that write it?
    """

    stage: str
    definitions: tuple[int, ...]
    extents: tuple[float, ...]
    pure: int
    dimensions: tuple[int, ...]
    inverse: tuple[tuple[int, int, float, float, bool], ...]
    windows: dict[str, Window]
    written: Window
    loads: tuple[tuple[str, At], ...]
    calls: dict[str, float]
    is_repeatable: bool
    is_plain: bool

    @property
    def whole(self) -> list[Interval]:
        """All iterations."""
        return [(0.0, n - 1.0) for n in self.extents]

    def dims(self, box: Box) -> list[Interval]:
        """The iterations that write a box (see `hjit.sched.boxes.dims_of_box`); possibly none: ranges that end before they begin."""
        found = self.whole
        for k, axis, c, offset, plain in self.inverse:
            low, high = box[axis]
            if not plain:
                low = most(ceil_div(low - offset, c), 0.0)
                high = least(floor_div(high - offset, c), self.extents[k] - 1.0)
            found[k] = low, high
        return found

    def lengths(self, dims: Dims) -> list[Num]:
        """How many elements each dimension has."""
        if self.is_plain:
            return [within(high - low + 1.0, min(n, 1.0), n) for (low, high), n in zip(dims, self.extents, strict=True)]
        return [most(high - low + 1.0, 0.0) for low, high in dims]

    def reading(self, dims: Dims) -> Dims:
        """The ranges, at least one iteration of each: what is read where nothing is computed does not matter, but it is some box."""
        return dims if self.is_plain else [(low, most(low, high)) for low, high in dims]

    def points(self, lengths: Sequence[Num]) -> Num:
        """Evaluations of all definitions over dimensions of these lengths."""
        return total(product(lengths[:n]) for n in self.dimensions)


@dataclass(eq=False)
class SizedGraph:
    """A Graph at concrete sizes, for a machine.

    Attributes:
        graph: canonical, or before fusion, with `inlined` saying what is to be fused.
        sizes: the numbers of the run-time sizes (`Sym`) by name.
        vector_bytes: width of a native vector register.
        tasks: tasks that the threads run at most for one nest, each of them several turns of its parallel loops; None: as many
            as the loops have turns.
        inlined: stages that are computed wherever they are read.
        blocks: what `hjit.sched.lanes` has counted already.
        plans: what `hjit.sched.features` has recorded already.
    """

    graph: Graph
    sizes: Mapping[str, int]
    vector_bytes: int = 64
    tasks: int | None = None
    inlined: frozenset[str] = frozenset()
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)
    _parts: dict[tuple[str, tuple[int, ...]], Part] = field(default_factory=dict, repr=False)
    _memories: dict[tuple[str, Layout, bool], Memory] = field(default_factory=dict, repr=False)
    _lanes: dict[str, float] = field(default_factory=dict, repr=False)
    _minimum: dict[tuple[str, tuple[int, ...]], Num] = field(default_factory=dict, repr=False)
    blocks: dict[Any, tuple[float, float, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def reads(self) -> Reads:
        return Reads(self.graph)

    @cached_property
    def stages(self) -> dict[str, Stage]:
        return self.graph.by_name

    @cached_property
    def position(self) -> dict[str, int]:
        """Stages in the order of the Graph."""
        return {s.name: k for k, s in enumerate(self.graph.stages)}

    @cached_property
    def shapes(self) -> dict[str, tuple[float, ...]]:
        """Of inputs and stages."""
        return {x.name: tuple(map(self.number, x.shape)) for x in (*self.graph.inputs, *self.graph.stages)}

    @cached_property
    def steps(self) -> dict[str, dict[int, float]]:
        """For each stage the axes of which several elements are computed together, and how many."""
        return {name: {k: float(n) for k, n in enumerate(self.reads.steps(name)) if n > 1} for name in self.stages}

    def number(self, p: Poly) -> float:
        """The number that a size is."""
        return float(concrete(p, self.sizes).const)

    # -- memory
    def memory(self, name: str, layout: Layout = C_ORDER, settled: bool = True) -> Memory:
        """How an input or a whole stage lies in memory."""
        found = self._memories.get((name, layout, settled))
        if found is None:
            x = self._arrays[name]
            order = layout.order or (_order(x.layout) if isinstance(x, Input) else tuple(range(len(x.shape))))
            row = row_axes([n.is_const and n.const <= SMALL for n in x.shape], order)
            found = Memory(float(x.dtype.itemsize), aligned(self.shapes[name], layout), order, row, settled=settled)
            self._memories[name, layout, settled] = found
        return found

    def buffer(self, name: str, lengths: Sequence[Num], layout: Layout) -> Memory:
        """The same of a buffer for a part of a stage."""
        whole = self.memory(name, layout)
        return Memory(whole.itemsize, aligned(lengths, layout), whole.order, whole.row, is_buffer=True)

    @cached_property
    def _arrays(self) -> dict[str, Input | Stage]:
        return {x.name: x for x in (*self.graph.inputs, *self.graph.stages)}

    def strides(self, name: str, layout: Layout = C_ORDER) -> tuple[int, ...]:
        """Elements from one index of each axis to the next, in the whole array."""
        memory, x = self.memory(name, layout), self._arrays[name]
        found = [0] * len(memory.lengths)
        step = 1
        for axis in reversed(memory.order):
            found[axis] = step
            step *= max(int(memory.lengths[axis]), 1)  # type: ignore[arg-type]
        return tuple(found if isinstance(x, Stage) else [n if known is None else known for n, known in zip(found, x.layout, strict=True)])

    def native_lanes(self, stage: str) -> float:
        """Lanes of a native vector of the narrowest type at work; truth values are masks and do not count."""
        found = self._lanes.get(stage)
        if found is None:
            s = self.stages[stage]
            sizes = [e.dtype.itemsize for d in s.definitions for e in walk(d.value) if _is_data(e)]
            found = self._lanes[stage] = float(self.vector_bytes // min([*sizes, s.dtype.itemsize]))
        return found

    # -- definitions
    def part(self, stage: str, definitions: tuple[int, ...]) -> Part:
        """What definitions of a stage compute together."""
        found = self._parts.get((stage, definitions))
        if found is None:
            found = self._parts[stage, definitions] = self._part(self.stages[stage], definitions)
        return found

    def _part(self, s: Stage, numbers: tuple[int, ...]) -> Part:
        ds = [s.definitions[n] for n in numbers]
        last, shape = ds[-1], self.shapes[s.name]
        extents = tuple(map(self.number, last.extents))
        inverse = []
        for axis, p in enumerate(last.target):
            k, p = single_dim(p, len(last.dims)), concrete(p, self.sizes)
            if k is not None:
                c = p.coefficient(Dim(k))
                assert c is not None
                plain = c.const == 1 and p.const == 0 and extents[k] == shape[axis]
                inverse.append((k, axis, float(c.const), float(p.const), plain))
        found: dict[tuple[str, At], None] = {}
        calls: dict[str, float] = {}
        for d in ds:
            called: dict[tuple[str, At], None] = {}
            for load in loads(*_evaluated(s.name, d)):
                self._look_through(load, found, called)
            for name, _ in called:
                calls[name] = calls.get(name, 0.0) + 1.0 / len(ds)
        by_source: dict[str, list[At]] = {}
        for source, index in found:
            by_source.setdefault(source, []).append(index)
        windows = {source: window(source, self.shapes[source], indices) for source, indices in by_source.items()}
        written = window(s.name, shape, [tuple(concrete(p, self.sizes) for p in d.target) for d in ds])
        dimensions = tuple(len(d.extents) for d in ds)
        return Part(
            s.name, numbers, extents, len(last.dims), dimensions, tuple(inverse), windows, written, tuple(found), calls,
            is_repeatable(s, numbers), all(plain for *_, plain in inverse),
        )  # fmt: skip

    def _look_through(self, load: Load, found: dict[tuple[str, At], None], called: dict[tuple[str, At], None]) -> None:
        """A load, or where its source is inlined those of its definition: the product of the Jacobians (section 4.1)."""
        index = tuple(concrete(p, self.sizes) for p in load.index)
        key = load.source, index
        if load.source not in self.inlined:
            found[key] = None
        elif key not in called:
            called[key] = None
            (d,) = self.stages[load.source].definitions
            for inner in loads(d.value):
                self._look_through(Load(inner.source, tuple(p.substitute(renumber(index)) for p in inner.index), inner.dtype), found, called)

    @cached_property
    def required(self) -> dict[str, Box]:
        """The part of each stage that the outputs depend on: what box inference finds at the root."""
        needs: dict[str, Box] = {}
        found: dict[str, Box] = {}
        for s in reversed(self.graph.stages):
            _, box = self.completed(s.name, None if s.name in self.graph.outputs else needs.get(s.name))
            found[s.name] = box
            if s.name in self.inlined:
                continue
            for n in range(len(s.definitions)):
                part = self.part(s.name, (n,))
                for source, w in part.windows.items():
                    if source != s.name:
                        needs[source] = joined(needs.get(source), w.needs(part.reading(part.dims(box))))
        return found

    def minimum(self, part: Part) -> Num:
        """points_computed_minimum of appendix A."""
        key = part.stage, part.definitions
        if key not in self._minimum:
            self._minimum[key] = part.points(part.lengths(part.dims(self.required[part.stage])))
        return self._minimum[key]

    def completed(self, stage: str, needs: Box | None, round_up: Mapping[int, Num] = NOTHING) -> tuple[Box, Box]:
        """What is computed where some of a stage is needed (None: nobody says what): as it is asked for, and within the stage.

        See `hjit.sched.boxes`: whole axes, multiples of the pieces that are written side by side, and of `round_up`.
        """
        shape, whole = self.shapes[stage], self.reads.whole_axes(stage)
        wanted, found = [], []
        for axis, n in enumerate(shape):
            x = ANYWHERE if needs is None or axis in whole else needs[axis]
            c = self.steps[stage].get(axis)
            if c is not None and x is not ANYWHERE:
                x = floor_div(x[0], c) * c, floor_div(x[1], c) * c + (c - 1.0)
            y = clipped(x, n)
            if axis in round_up and x is not ANYWHERE:
                x, y = ((low, low + ceil_div(high - low + 1.0, round_up[axis]) * round_up[axis] - 1.0) for low, high in (x, y))
                y = y[0], least(y[1], n - 1.0)
            wanted.append(x)
            found.append(y)
        return tuple(wanted), tuple(found)


def aligned(lengths: Sequence[Num], layout: Layout) -> tuple[Num, ...]:
    """Lengths of axes in memory."""
    return tuple(ceil_div(n, float(a)) * float(a) for n, a in zip(lengths, layout.align, strict=True)) if layout.align else tuple(lengths)


def _is_data(e: Expr) -> bool:
    """Is an expression more than a mask or the arithmetic of indices?"""
    return e.dtype.kind != "b" and not isinstance(e, (Index, Const)) and not (len(e.args) == 1 and isinstance(e.args[0], Index))


def _evaluated(stage: str, d: Definition) -> Iterable[Expr]:
    """What is evaluated at each point: all but the accumulator of a sum, which is in a register."""
    if is_associative(d) and is_direct(d) and isinstance(d.value, Op) and d.value.args[0] == Load(stage, d.target, d.value.args[0].dtype):
        return (d.value.args[1],)
    return d.exprs()


def _order(layout: Sequence[int | None]) -> tuple[int, ...]:
    """The axes of an input from the slowest to the fastest: those of known strides are the fastest ones."""
    known = sorted((k for k, s in enumerate(layout) if s), key=lambda k: (-abs(layout[k] or 0), k))
    return (*(k for k, s in enumerate(layout) if not s), *known)
