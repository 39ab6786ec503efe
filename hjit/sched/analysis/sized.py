"""`SizedGraph`: a Graph at concrete sizes, with memoised facts that the features of its schedules need."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hjit.sched.analysis import propagation
from hjit.sched.analysis.bounds import Reads
from hjit.sched.analysis.footprint import (
    ANYWHERE,
    NUMERIC,
    Dims,
    Footprint,
    Interval,
    Memory,
    Region,
    clipped,
    concrete,
    footprint,
    is_bounded,
    joined,
    row_axes,
)
from hjit.sched.analysis.propagation import Hulls
from hjit.sched.analysis.tape import Num, Tape, Var, ceil_div, floor_div, least, most, product, total, within
from hjit.sched.language.definitions import is_associative, is_direct, is_repeatable
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.language.tree import DimKey
from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Const, Expr, Index, loads, renumber, walk
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, single_dim
from hjit.trace.ir.poly import SMALL, Dim, Indirect, Poly

T = TypeVar("T")
At = tuple[Poly, ...]  # the index of a load
NOTHING: Mapping[int, Num] = {}


@dataclass(frozen=True, slots=True, eq=False)
class DefinitionGroup(propagation.DefinitionGroup[Interval]):
    """Definitions of a stage that share their loops, at concrete sizes.

    Attributes:
        definitions: the numbers of those of the stage that share the loops.
        extents: of the dimensions of the loops.
        pure: how many of them are pure; the reduction dimensions follow.
        dimensions: of each definition: the first so many of the loops' are its own.
        written: what is stored.
        loads: every distinct load, stages that are inlined looked through.
        gathers: of each array that is read at computed places, how many loads one evaluation has.
        calls: at which indices one evaluation calls each of those.
        is_repeatable: may an element be computed twice?
        is_plain: does every region have iterations that write it?
    """

    footprints: Mapping[str, Footprint]
    definitions: tuple[int, ...]
    extents: tuple[float, ...]
    pure: int
    dimensions: tuple[int, ...]
    written: Footprint
    loads: tuple[tuple[str, At], ...]
    gathers: Mapping[str, int]
    calls: dict[str, tuple[At, ...]]
    is_repeatable: bool
    is_plain: bool

    def lengths(self, dims: Dims) -> list[Num]:
        """The number of elements of each dimension."""
        if self.is_plain:
            return [
                within(most(high - low + 1.0, min(n, 1.0)), 0.0, n)
                for (low, high), n in zip(dims, self.extents, strict=True)
            ]
        return [most(high - low + 1.0, 0.0) for low, high in dims]

    def reading(self, dims: Dims) -> Dims:
        """The ranges, at least one iteration of each: what is read where nothing is computed does not matter, but it is
        some region."""
        return dims if self.is_plain else [(low, most(low, high)) for low, high in dims]

    def points(self, lengths: Sequence[Num]) -> Num:
        """The number of evaluations of all definitions over dimensions of these lengths."""
        return total(product(lengths[:n]) for n in self.dimensions)


class SizedGraph:
    """A Graph at concrete sizes, for a machine.

    Attributes:
        graph: canonical; or before fusion, with `inlined` saying what is to be fused.
        vector_bytes: width of a native vector register.
        tasks: how many tasks the threads run for one nest at most, each of them several iterations of its parallel
            loops;
            None: as many as the loops have iterations.
        inlined: stages of one pure definition that are computed wherever they are read.
        structures: of nests that differ in sizes of loops only a number, one of `numbers`, and the arrays that are read
            there.
        plans: what `hjit.sched.features.featurise` has recorded, on `tape`, in the `sizes_of` loops; `forget` bounds
            what it takes.
        memo: what `hjit.sched.analysis.sites` has computed for places in nests.
        featuriser: the compiled featuriser of `hjit.sched.native`; None: features are recorded in Python.
        counts, reads_of, blocks: the points at which `hjit.sched.features.load_counts` counts loads, the loads of
            groups by array, and what was counted.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        vector_bytes: int = 64,
        tasks: int | None = None,
        inlined: frozenset[str] = frozenset(),
        featuriser: Callable[[bytes], int] | None = None,
    ) -> None:
        """`sizes`: the numbers of the run-time sizes (`Sym`) by name."""
        self.graph, self.vector_bytes, self.tasks, self.inlined = graph, vector_bytes, tasks, inlined
        self.reads = Reads(graph)
        self.stages = graph.by_name
        self.position = self.reads.position
        self._start()
        self.numbers = itertools.count()
        self.counts: dict[Any, Any] = {}
        self.reads_of: dict[Any, Any] = {}
        self.blocks: dict[Any, Any] = {}
        self.featuriser = featuriser
        self._sizes = sizes
        self._inputs = {x.name: x for x in graph.inputs}
        self._made: dict[tuple[Any, ...], Any] = {}
        self._polys: dict[Poly, Poly] = {}
        self._groups: dict[tuple[str, tuple[int, ...]], DefinitionGroup] = {}

    def forget(self) -> None:
        """Drop the recorded features of nests, which take the most memory by far; plans that are still referenced can
        still run."""
        self._start()

    def _start(self) -> None:
        self.tape = Tape()
        self.structures: dict[Any, tuple[int, tuple[str, ...]]] = {}
        self.plans: dict[Any, Any] = {}
        self.memo: dict[Any, Any] = {}
        self._loops: dict[tuple[str, DimKey, int], Var] = {}

    def inlining(self, stages: frozenset[str]) -> SizedGraph:
        """A copy with exactly these stages inlined; it shares everything that does not depend on that."""
        new = copy.copy(self)
        new.inlined, new._groups = stages, {}
        new._start()
        return new

    def sizes_of(self, loops: Sequence[tuple[str, DimKey]]) -> list[Var]:
        """The sizes of loops over dimensions of stages, in any order that has outer ones first: the same numbers for
        equal loops of other nests."""
        found: list[Var] = []
        seen: Counter[tuple[str, DimKey]] = Counter()
        for loop in reversed(loops):  # those of other nests may have one more around them
            key = (*loop, seen[loop])
            seen[loop] += 1
            if key not in self._loops:
                self._loops[key] = self.tape.input()
            found.append(self._loops[key])
        return found[::-1]

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The result of `make`, computed once."""
        found: T | None = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def one_of(self, p: Poly) -> Poly:
        """An interned object: equal ones are identical, and compare fast."""
        return self._polys.setdefault(p, p)

    def number(self, p: Poly) -> float:
        """The value of a size."""
        return float(max(concrete(p, self._sizes).const, 0))

    def shape(self, name: str) -> tuple[float, ...]:
        """Of an input or a stage."""
        return self.once(("shape", name), lambda: tuple(map(self.number, self._array(name).shape)))

    def _array(self, name: str) -> Input | Stage:
        return self._inputs[name] if name in self._inputs else self.stages[name]

    # -- memory
    def memory(self, name: str, layout: Layout = C_ORDER, is_order_fixed: bool = True) -> Memory:
        """The memory layout of an input or a whole stage."""
        return self.once(("memory", name, layout, is_order_fixed), lambda: self._memory(name, layout, is_order_fixed))

    def _memory(self, name: str, layout: Layout, is_order_fixed: bool) -> Memory:
        x = self._array(name)
        order = layout.order or (_order(x.layout) if isinstance(x, Input) else tuple(range(len(x.shape))))
        row = row_axes([n.is_const and n.const <= SMALL for n in x.shape], order)
        return Memory(
            float(x.dtype.itemsize), aligned(self.shape(name), layout), order, row, is_order_fixed=is_order_fixed
        )

    def buffer(self, name: str, lengths: Sequence[Num], layout: Layout) -> Memory:
        """The memory layout of a part of a stage that has a buffer of its own."""
        whole = self.memory(name, layout)
        return Memory(whole.itemsize, aligned(lengths, layout), whole.order, whole.row, is_buffer=True)

    def strides(self, name: str, layout: Layout = C_ORDER) -> tuple[int, ...]:
        """Elements from one index of each axis to the next, in the whole array."""
        memory, x = self.memory(name, layout), self._array(name)
        found = [0] * len(memory.lengths)
        step = 1
        for axis in reversed(memory.order):
            found[axis] = step
            step *= max(int(memory.lengths[axis]), 1)  # type: ignore[arg-type]
        return tuple(
            found
            if isinstance(x, Stage)
            else [n if known is None else known for n, known in zip(found, x.layout, strict=True)]
        )

    def native_lanes(self, stage: str) -> float:
        """Lanes of a native vector of the narrowest type at work; truth values are masks and do not count."""

        def count() -> float:
            s = self.stages[stage]
            sizes = [e.dtype.itemsize for d in s.definitions for e in walk(d.value) if _is_data(e)]
            return float(self.vector_bytes // min([*sizes, s.dtype.itemsize]))

        return self.once(("lanes", stage), count)

    # -- definitions
    def group(self, stage: str, definitions: tuple[int, ...]) -> DefinitionGroup:
        """What definitions of a stage compute together."""
        found = self._groups.get((stage, definitions))
        if found is None:
            key = "group", stage, definitions, self._through(stage)
            found = self._groups[stage, definitions] = self.once(
                key, lambda: self._group(self.stages[stage], definitions)
            )
        return found

    def _through(self, stage: str) -> frozenset[str]:
        """The inlined stages that the loads of a stage lead through."""
        if not self.inlined:
            return self.inlined
        found = self.stages[stage].sources & self.inlined
        return found.union(*map(self._through, found))

    def _group(self, s: Stage, numbers: tuple[int, ...]) -> DefinitionGroup:
        ds = [s.definitions[n] for n in numbers]
        last, shape = ds[-1], self.shape(s.name)
        extents = tuple(map(self.number, last.extents))
        inverse = []
        for axis, p in enumerate(last.target):
            k, p = single_dim(p, len(last.dims)), concrete(p, self._sizes)
            if k is not None:
                c = p.coefficient(Dim(k))
                assert c is not None
                plain = c.const == 1 and p.const == 0 and extents[k] == shape[axis]
                solved = None if plain else Solved(float(c.const), float(p.const), extents[k])
                inverse.append((k, axis, c.const, solved))
        found: dict[tuple[str, At], None] = {}
        calls: dict[str, list[At]] = {}
        for n in numbers:
            called: dict[tuple[str, At], None] = {}
            for source, index in self._loads(s.name, n):
                self._look_through(source, index, found, called)
            for name, index in called:
                calls.setdefault(name, []).append(index)
        by_source: dict[str, list[At]] = {}
        for source, index in found:
            by_source.setdefault(source, []).append(index)
        footprints = {
            source: self._footprint(self.shape(source), indices, extents) for source, indices in by_source.items()
        }
        written = self._footprint(shape, [tuple(concrete(p, self._sizes) for p in d.target) for d in ds])
        dimensions = tuple(len(d.extents) for d in ds)
        return DefinitionGroup(
            s.name, [(0.0, n - 1.0) for n in extents], tuple(inverse), footprints,
            numbers, extents, len(last.dims), dimensions, written, tuple(found),
            {source: len(indices) for source, indices in by_source.items() if any(map(is_computed, indices))},
            {name: tuple(indices) for name, indices in calls.items()},
            is_repeatable(s, numbers), all(solved is None for *_, solved in inverse),
        )  # fmt: skip

    def _footprint(self, shape: tuple[float, ...], indices: Sequence[At], extents: tuple[float, ...] = ()) -> Footprint:
        """One for all that read alike."""
        if not any(is_bounded(p) for index in indices for p in index):
            extents = ()
        return self.once(("footprint", shape, tuple(indices), extents), lambda: footprint(shape, indices, extents))

    def _loads(self, stage: str, number: int) -> tuple[tuple[str, At], ...]:
        """The loads of a definition."""

        def make() -> tuple[tuple[str, At], ...]:
            d = self.stages[stage].definitions[number]
            return tuple(
                (x.source, tuple(concrete(p, self._sizes) for p in x.index)) for x in loads(*_evaluated(stage, d))
            )

        return self.once(("loads", stage, number), make)

    def _look_through(
        self, source: str, index: At, found: dict[tuple[str, At], None], called: dict[tuple[str, At], None]
    ) -> None:
        """A load, or where its source is inlined those of its definition: the product of the Jacobians (section
        4.1)."""
        if source not in self.inlined:
            found[source, index] = None
        elif (source, index) not in called:
            called[source, index] = None
            for name, inner in self._loads(source, 0):
                self._look_through(name, tuple(_at(p, index) for p in inner), found, called)

    def required(self) -> dict[str, Region]:
        """The region of each stage that the outputs depend on, from bounds inference at the root."""
        return self.once(("required",), SizedGraph.inlining(self, frozenset())._required)

    def _required(self) -> dict[str, Region]:
        needs: dict[str, Region] = {}
        found: dict[str, Region] = {}
        for s in reversed(self.graph.stages):
            _, region = self.completed(s.name, None if s.name in self.graph.outputs else needs.get(s.name))
            found[s.name] = region
            if s.name in self.inlined:
                continue
            for n in range(len(s.definitions)):
                group = self.group(s.name, (n,))
                for source, w in group.footprints.items():
                    if source != s.name:
                        needs[source] = joined(needs.get(source), w.needs(group.reading(group.dims(region))))
        return found

    def minimum(self, group: DefinitionGroup) -> Num:
        """points_computed_minimum of appendix A."""
        return self.once(
            ("minimum", group), lambda: group.points(group.lengths(group.dims(self.required()[group.stage])))
        )

    def completed(
        self, stage: str, needs: Hulls[Interval] | None, round_up: Mapping[int, Num] = NOTHING
    ) -> tuple[Region, Region]:
        """The region that is computed if some of a stage is needed (None: an unknown part): unclipped, and within the
        stage.

        See `hjit.sched.analysis.bounds`: whole axes, multiples of the pieces that are written side by side, and of
        `round_up`.
        """
        whole = self.reads.whole_axes(stage)
        wanted, found = [], []
        for axis, (n, step) in enumerate(zip(self.shape(stage), self.reads.steps(stage), strict=True)):
            x = None if needs is None or axis in whole else needs[axis]
            x, c = x or ANYWHERE, float(step)
            if step > 1 and x != ANYWHERE:
                x = floor_div(x[0], c) * c, floor_div(x[1], c) * c + (c - 1.0)
            y = clipped(x, n)
            if axis in round_up and x != ANYWHERE:
                x, y = (
                    (low, low + ceil_div(high - low + 1.0, round_up[axis]) * round_up[axis] - 1.0)
                    for low, high in (x, y)
                )
                y = y[0], least(y[1], n - 1.0)
            wanted.append(x)
            found.append(y)
        return tuple(wanted), tuple(found)


@dataclass(frozen=True, slots=True)
class Solved:
    """The interval of a dimension of `n` elements if an axis is ``c * Dim + rest``; it may be empty (high < low)."""

    c: float
    rest: float
    n: float

    def __call__(self, x: Interval) -> Interval:
        return NUMERIC.solved(x, self.c, self.rest, self.n)


def _at(p: Poly, index: At) -> Poly:
    """`p` with `index` in place of the dimensions."""
    if len(p.terms) == 1:
        ((m, c),) = p.terms.items()
        if c == 1 and len(m) == 1 and isinstance(m[0], Dim):
            return index[m[0].k] + p.const
    return p.substitute(renumber(index))


def is_computed(index: At) -> bool:
    """Does an index depend on values in memory?"""
    return any(p.has(Indirect) for p in index)


def aligned(lengths: Sequence[Num], layout: Layout) -> tuple[Num, ...]:
    """Lengths of axes in memory."""
    return (
        tuple(ceil_div(n, float(a)) * float(a) for n, a in zip(lengths, layout.align, strict=True))
        if layout.align
        else tuple(lengths)
    )


def _is_data(e: Expr) -> bool:
    """Is an expression more than a mask or the arithmetic of indices?"""
    return (
        e.dtype.kind != "b"
        and not isinstance(e, (Index, Const))
        and not (len(e.args) == 1 and isinstance(e.args[0], Index))
    )


def _evaluated(stage: str, d: Definition) -> Iterable[Expr]:
    """The expressions that are evaluated at each point: all but the accumulator of a sum, which is in a register."""
    x = accumulation_of(stage, d) if is_associative(d) and is_direct(d) else None
    return d.exprs() if x is None else (x.element,)


def _order(layout: Sequence[int | None]) -> tuple[int, ...]:
    """The axes of an input from the slowest to the fastest: those of known strides are the fastest ones."""
    known = sorted((k for k, s in enumerate(layout) if s), key=lambda k: (-abs(layout[k] or 0), k))
    return (*(k for k, s in enumerate(layout) if not s), *known)
