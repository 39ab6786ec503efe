"""The tables of a Graph that the native featuriser reads: arrays, definition groups, footprints, memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from hjit.sched.analysis.footprint import Footprint
from hjit.sched.analysis.sized import DefinitionGroup, SizedGraph, Solved
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.native.records import (
    CONST,
    DIM,
    END,
    FAR,
    LEAST,
    MIRROR,
    MOST,
    QUOTIENT,
    REMAINDER,
    TIMES,
    WRAP,
    Tables,
)
from hjit.trace.ir.poly import Atom, Boundary, Dim, Extremum, FloorDiv, Mod, Poly

MODES = ("clamp", "reflect", "symmetric")
ANYWHERE = [CONST, -int(FAR), int(FAR)]


class _Growing:
    """An array that records are appended to."""

    def __init__(self, dtype: type) -> None:
        self.length = 0
        self.values: np.ndarray[Any, Any] = np.zeros(1024, dtype)

    def add(self, record: Sequence[float]) -> int:
        """Append a record; where it is."""
        start, end = self.length, self.length + len(record)
        if end > len(self.values):
            self.values = np.concatenate([self.values, np.zeros(max(end, len(self.values)), self.values.dtype)])
        self.values[start:end] = record
        self.length = end
        return start


class GraphTables:
    """The tables of a Graph, whichever stages are inlined; each record is written when it is first asked for.

    Attributes:
        dims, axes, deep: the most dimensions of a group, axes of an array, and intervals that an index needs at once.
    """

    def __init__(self) -> None:
        self._ints, self._floats = _Growing(np.int64), _Growing(np.float64)
        self._known: dict[Hashable, int] = {}
        self._sources: dict[DefinitionGroup, list[tuple[str, int]]] = {}
        self.dims = self.axes = self.deep = 1

    @property
    def tables(self) -> Tables:
        """As they are now."""
        return Tables(self._ints.values, self._floats.values)

    def _once(self, key: Hashable, make: Callable[[], Sequence[int]]) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._ints.add(make())
        return found

    def array(self, graph: SizedGraph, name: str) -> int:
        """An input or a stage."""
        return self._once(("array", name), lambda: self._array(graph, name))

    def _array(self, graph: SizedGraph, name: str) -> list[int]:
        shape, is_stage = graph.shape(name), name in graph.stages
        self.axes = max(self.axes, len(shape))
        lanes = graph.native_lanes(name) if is_stage else 1.0
        whole = graph.reads.whole_axes(name) if is_stage else ()
        steps = graph.reads.steps(name) if is_stage else (1,) * len(shape)
        floats = self._floats.add([graph.memory(name).itemsize, lanes, *shape])
        return [len(shape), floats, *(n for axis, step in enumerate(steps) for n in (axis in whole, step))]

    def memory(self, graph: SizedGraph, name: str, layout: Layout = C_ORDER, is_order_fixed: bool = True) -> int:
        """The memory layout of a whole array."""
        return self._once(
            ("memory", name, layout, is_order_fixed), lambda: self._memory(graph, name, layout, is_order_fixed)
        )

    def _memory(self, graph: SizedGraph, name: str, layout: Layout, is_order_fixed: bool) -> list[int]:
        memory = graph.memory(name, layout, is_order_fixed)
        lengths: list[Any] = list(memory.lengths)
        floats = self._floats.add([memory.itemsize, *lengths, *(layout.align or (0,) * len(lengths))])
        return [len(lengths), memory.row, is_order_fixed, floats, *memory.order]

    def footprint(self, w: Footprint) -> int:
        """What loads read of an array."""
        return self._once(w, lambda: self._footprint(w))

    def _footprint(self, w: Footprint) -> list[int]:
        self.axes = max(self.axes, len(w.shape))
        found = [len(w.shape), self._floats.add(w.shape)]
        for parts, slack, rates, indices in zip(w.axes, w.slack, w.rates, w.indices, strict=True):
            rows = [n for k, c in rates for n in (k, c.numerator, c.denominator)]
            at = [self._ints.add([*self.index(rest, low, high), END]) for rest, low, high in indices]
            found += [bool(parts), slack, self._ints.add([len(rates), *rows]), self._ints.add([len(at), *at])]
        return found

    def group(self, graph: SizedGraph, group: DefinitionGroup) -> int:
        """What a computation evaluates."""
        found = self._known.get(group)  # without a function of its own: there are many
        return self._once(group, lambda: self._group(graph, group)) if found is None else found

    def sources(self, group: DefinitionGroup) -> list[tuple[str, int]]:
        """The arrays that a group reads, and the footprint of each."""
        found = self._sources.get(group)
        if found is None:
            found = self._sources[group] = [(name, self.footprint(w)) for name, w in group.footprints.items()]
        return found

    def _group(self, graph: SizedGraph, group: DefinitionGroup) -> list[int]:
        self.dims = max(self.dims, len(group.extents))
        floats = self._floats.add([graph.minimum(group), *group.extents])  # type: ignore[list-item]
        rows: list[int] = []
        for k, axis, c, solved in group.inverse:
            assert solved is None or isinstance(solved, Solved)
            rows += [k, axis, c, solved is not None]
            rows += [int(solved.rest), int(solved.n)] if solved is not None else [0, 0]
        return [
            self.array(graph, group.stage), len(group.extents), group.pure, group.is_repeatable, group.is_plain,
            self.footprint(group.written), floats, self._ints.add([len(group.dimensions), *group.dimensions]),
            self._ints.add([len(group.inverse), *rows]),
        ]  # fmt: skip

    # -- indices, as `hjit.trace.ir.intervals.bounds_of` has them over pairs of numbers
    def index(self, p: Poly, first: int, last: int, depth: int = 1) -> list[int]:
        """The operations of an index, its constant being first .. last."""
        self.deep = max(self.deep, depth)
        code = [CONST, first, last]
        for m, c in p.terms.items():
            match m:
                case (Dim(k=k),):
                    code += [DIM, k, c]
                case (atom,):
                    code += [*self._atom(atom, depth + 1), TIMES, c]
                case _:
                    code += [*ANYWHERE, TIMES, c]
        return code

    def _atom(self, atom: Atom, depth: int) -> list[int]:
        self.deep = max(self.deep, depth)
        match atom:
            case FloorDiv(arg=p, by=by) if by.is_const:
                return [*self.index(p, p.const, p.const, depth), QUOTIENT, by.const]
            case Mod(arg=p, by=by) if by.is_const:
                return [*self.index(p, p.const, p.const, depth), REMAINDER, by.const]
            case Extremum(which=which, a=a, b=b):
                both = [*self.index(a, a.const, a.const, depth), *self.index(b, b.const, b.const, depth + 1)]
                return [*both, LEAST if which == "min" else MOST]
            case Boundary(mode=mode, arg=p, extent=n) if n.is_const:
                inner = self.index(p, p.const, p.const, depth)
                return [*inner, WRAP, n.const] if mode == "wrap" else [*inner, MIRROR, MODES.index(mode), n.const]
        return ANYWHERE


def tables_of(graph: SizedGraph) -> GraphTables:
    """The tables of a Graph: one for all sets of stages that are inlined."""
    found: GraphTables = graph.once(("native tables",), GraphTables)
    return found
