"""Reference values, with error bounds, of some elements of the results; see `hjit.verify.forward_error`.

They are computed for the elements in which hjit and NumPy differ. A stage is computed at these elements only if that is
possible, otherwise as a whole; sums are accumulated in higher precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Cast, Expr, Load, Op
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.interpret import evaluate, interpret, varies
from hjit.trace.ir.poly import sizes_value
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.verify.approx import Approx, Array, Columns, SparseApprox, broadcast_to, joined, reshaped, rounded_again, take
from hjit.verify.definitions import (
    LONG_SUM,
    SAMPLE_ALL,
    SAMPLE_EACH,
    is_direct,
    is_first_index,
    is_long,
    is_own,
    scanned,
    scattered,
)
from hjit.verify.externs import bounds, is_guess, larger, perturbed, reordered
from hjit.verify.forward_error import cast, truth
from hjit.verify.frame import Frame, Inputs
from hjit.verify.reductions import PartialStage, Total, product, sums_of, total_of
from hjit.verify.tolerances import is_inexact
from hjit.verify.work import PLAIN, WITH_ERRORS, Work

CHUNK = 1 << 13  # elements at once: few enough to stay in the caches
BORDER = 64  # elements that a line of a filter has in addition to those of a stage
WHOLE = 4096  # elements of a stage that is always computed whole


class Reference:
    """Reference values of the outputs of a variant's segments.

    Args:
        graphs: one for each segment.
        graph_breaks: what ends each of them.
        inexact: names of the operations whose last bits may differ.
        exact: names of the stages that have NumPy's bits.
        effort: how many times the usual work may be done.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        graph_breaks: Sequence[GraphBreak | None],
        inputs: Inputs,
        inexact: frozenset[str],
        fast: bool,
        exact: Container[str] = (),
        effort: int = 1,
    ) -> None:
        self.graphs, self.inputs, self.inexact, self.fast, self.exact = graphs, inputs, inexact, fast, exact
        self.work = Work((d for g in graphs for s in g.stages for d in s.definitions), inputs.sizes, effort)
        self.whole: dict[tuple[int, str], Approx] = {}
        self.some: dict[
            tuple[int, str], SparseApprox
        ] = {}  # what the elements that are computed now have needed so far
        self._depth = 0  # of stages whose elements are computed
        self.plain: dict[tuple[int, str], Array] = {}
        self.given: dict[str, Approx] = {}
        self.has_guessed = False
        self._calls = {
            n: (k, e)
            for k, e in enumerate(graph_breaks)
            if e is not None and e.call is not None and not e.impure
            for n in e.gives
        }
        self._constants = {
            i.name: np.frombuffer(i.data, i.dtype).reshape([p.const for p in i.shape])
            for g in graphs
            for i in g.inputs
            if i.data is not None
        }

    def at(self, name: str, positions: Array) -> Approx | None:
        """Elements of what `shape_of` knows, by their positions in C order; None of what it does not.

        Raises:
            WorkLimitExceeded: it would take too long.
        """
        if name in self._calls:
            found = self._extern(name)
            return (
                broadcast_to(found, found.value.shape)[np.unravel_index(positions, found.value.shape)]
                if found.value.shape
                else found
            )
        for k, g in enumerate(self.graphs):
            if name in g.outputs:
                shape = self.shape(g.stage(name))
                with self.work.part():
                    return self.elements(k, g.stage(name), tuple(np.unravel_index(positions, shape)) if shape else ())
        return None

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of an output, or of an array of an extern function; None where it is none."""
        if name in self._calls:
            shape: tuple[int, ...] = self._extern(name).value.shape
            return shape
        return next((self.shape(g.stage(name)) for g in self.graphs if name in g.outputs), None)

    def values_of(self, name: str) -> Array:
        """All elements of an output.

        Raises:
            TooMuch: it would take too long.
        """
        shape = self.shape_of(name)
        found = None if shape is None else self.at(name, np.arange(math.prod(shape)))
        assert shape is not None and found is not None
        return found.value.reshape(shape)

    def is_settled(self, name: str) -> bool:
        """Does a number that is decided on have the same value in hjit and in NumPy?

        Raises:
            WorkLimitExceeded: it would take too long.
        """
        found = self.at(name, np.zeros(1, np.int64))
        return found is not None and (found.doubtful is None or not found.doubtful.any())

    def shape(self, s: Stage) -> tuple[int, ...]:
        return tuple(sizes_value(p, self.inputs.sizes) for p in s.shape)

    @cached_property
    def longest(self) -> int:
        """The longest axis of all arrays."""
        stages = (n for g in self.graphs for s in g.stages for n in self.shape(s))
        inputs: list[int] = [n for a in self.inputs.arrays.values() for n in a.shape]
        return max(max(stages, default=1) + BORDER, *inputs, 1)

    # -- arrays
    def array(self, k: int, name: str) -> Approx:
        """All of what segment `k` reads."""
        stage = self.graphs[k].by_name.get(name)
        return self.load(k, name, ()) if stage is None else self.complete(k, stage)

    def load(self, k: int, name: str, index: tuple[Any, ...]) -> Approx:
        """Elements of what segment `k` reads."""
        stage = self.graphs[k].by_name.get(name)
        if stage is not None:
            return self.elements(k, stage, index)
        array = self.inputs.arrays.get(name, self._constants.get(name))
        if name in self._calls:
            return take(self._extern(name), index)
        for j in range(k):
            if name in self.graphs[j].outputs:
                return self.elements(j, self.graphs[j].stage(name), index)
        assert array is not None
        return take(Approx(array), index)

    def _extern(self, name: str) -> Approx:
        """A result of an extern function."""
        if name not in self.given:
            k, graph_break = self._calls[name]
            assert graph_break.call is not None
            needs = [self.array(k, n) for n in graph_break.needs]
            if graph_break.product is not None:
                self.work.count(math.prod(graph_break.product.shape), WITH_ERRORS)
                self.given[name] = product(graph_break.product, needs)
                return self.given[name]
            results = [np.asarray(r) for r in graph_break.call(*(x.value for x in needs)).arrays]
            spreads: list[Columns | None] = [None] * len(results)
            if graph_break.program is not None:
                if any(x.errors is not None for x in needs) or is_inexact(graph_break.program, self.fast):
                    spreads = perturbed(graph_break.call, needs, results)
            elif any(x.errors is not None for x in needs):
                self.has_guessed = self.has_guessed or is_guess(graph_break)
                spreads = bounds(graph_break, needs, results)
            if graph_break.is_reordered:
                spreads = [larger(a, b) for a, b in zip(spreads, reordered(needs, results), strict=True)]
            self.given.update({n: Approx(r, s) for n, r, s in zip(graph_break.gives, results, spreads, strict=True)})
        return self.given[name]

    # -- stages
    def elements(self, k: int, s: Stage, index: tuple[Any, ...]) -> Approx:
        """Elements of a stage at some indices, one array for each axis."""
        known = self.whole.get((k, s.name))
        if known is not None:
            return take(known, index)
        shape = self.shape(s)
        size = math.prod(shape)
        asked = np.broadcast_shapes(*(np.shape(i) for i in index))
        whole = size <= WHOLE and not any(d.rdims for d in s.definitions)
        if not is_direct(s) or whole or (_has_steps(s) and self.work.allows(s, size)):
            return take(self.complete(k, s), index)
        flat = np.ravel_multi_index(
            tuple(np.broadcast_to(np.clip(i, 0, n - 1), asked) for i, n in zip(index, shape, strict=True)), shape
        )
        self.work.count(flat.size, WITH_ERRORS)
        places, back = np.unique(flat, return_inverse=True)
        if 2 * len(places) >= size:
            return take(self.complete(k, s), index)
        if not len(places):
            return Approx(np.zeros(asked, s.dtype))
        some = self.some.get((k, s.name))
        missing = places if some is None else places[~some.has(places)]
        if len(missing):
            self.work.require(s, len(missing))
            found = SparseApprox(missing, self._direct(k, s, missing, shape))
            some = self.some[k, s.name] = found if some is None else some.with_others(found, s.dtype)
        assert some is not None
        return some.at(places)[back.reshape(asked)]

    def complete(self, k: int, s: Stage) -> Approx:
        """A stage, whole."""
        known = self.whole.get((k, s.name))
        if known is None:
            shape = self.shape(s)
            size = math.prod(shape)
            if s.name in self.exact:
                return self.whole.setdefault((k, s.name), Approx(self.plainly(k, s.name)))
            self.work.require(s, size)
            self.work.count(size, WITH_ERRORS)
            if is_direct(s):
                known = reshaped(self._direct(k, s, np.arange(size), shape), shape)
            else:
                try:
                    known = self._updated(k, s, shape)
                except BaseException:
                    self.whole.pop((k, s.name), None)  # half of it is worse than nothing
                    raise
            self.whole[k, s.name] = known
        return known

    def _direct(self, k: int, s: Stage, places: Array, shape: tuple[int, ...]) -> Approx:
        """Elements of a stage whose definitions have no other elements of it, by position."""
        parts = []
        reduced = max((math.prod(sizes_value(n, self.inputs.sizes) for n in d.rdims) for d in s.definitions), default=1)
        many = any(is_long(d, len(places), reduced) for d in s.definitions)
        step = max((LONG_SUM if many else CHUNK) // max(reduced, 1), 1)
        self._depth += 1
        try:
            for begin in range(0, len(places), step):
                index = (
                    tuple(i[:, None] for i in np.unravel_index(places[begin : begin + step], shape))
                    if shape
                    else (np.zeros((1, 1), int),)
                )
                parts.append(self._point(k, s, index if shape else (), len(places[begin : begin + step]), many))
                if self._depth == 1:  # what other elements need is computed again: all of it takes too much memory
                    self.some.clear()
        finally:
            self._depth -= 1
        return joined(parts, s.dtype)

    def _point(self, k: int, s: Stage, index: tuple[Array, ...], count: int, many: bool) -> Approx:
        value = Approx(np.zeros((count, 1), s.dtype))
        for d in s.definitions:
            if d.order == "pure":
                frame = self._frame(k, index, d.value)
                value = broadcast_to(cast(frame.value(d.value), s.dtype), (count, 1))
            elif is_own(d, s):
                value = self._steps(k, s, d, index, value, count)
            else:
                value = self._reduce(k, d, index, value, count, s.dtype, many and is_long(d, LONG_SUM, LONG_SUM))
        return reshaped(value, (count,))

    def _steps(self, k: int, s: Stage, d: Definition, index: tuple[Array, ...], value: Approx, count: int) -> Approx:
        """Steps of some elements, one after the other, `value` being what is there before."""
        own = [x for x in d.value.loads if x.source == s.name]
        rounded = d.reorders and s.dtype.kind == "f"
        for point in itertools.product(*(range(sizes_value(n, self.inputs.sizes)) for n in d.rdims)):
            frame = self._frame(k, (*index, *point), d.value, s.name)
            frame.memo.update(dict.fromkeys(own, value))
            value = broadcast_to(cast(frame.value(d.value), s.dtype), (count, 1))
            value = rounded_again(value, s.dtype) if rounded else value
        return value

    def _frame(self, k: int, index: Sequence[Any], e: Expr, own: str = "") -> Frame:
        """Where an expression is computed; what it reads of a stage in several places is computed at once.

        Args:
            own: the stage that it is part of, which is known there.
        """
        frame = Frame(self, k, index)
        loads: dict[str, list[Load]] = {}
        for x in dict.fromkeys(e.loads):
            if x.source in self.graphs[k].by_name and (k, x.source) not in self.whole and x.source != own:
                if x.index and not any(p.exprs for p in x.index):
                    loads.setdefault(x.source, []).append(x)
        for name, several in loads.items():
            if len(several) > 1:
                places = [[i.ravel() for i in np.broadcast_arrays(*frame.places(x))] for x in several]
                together = tuple(map(np.concatenate, zip(*places, strict=True)))
                self.elements(k, self.graphs[k].stage(name), together)
        return frame

    def _reduce(
        self,
        k: int,
        d: Definition,
        index: tuple[Array, ...],
        start: Approx,
        count: int,
        dtype: np.dtype[Any],
        many: bool = False,
    ) -> Approx:
        """A reduction of some elements, `start` being what is there before."""
        assert isinstance(d.value, Op)
        extents = [sizes_value(n, self.inputs.sizes) for n in d.rdims]
        size = math.prod(extents)
        if is_first_index(d):
            return self._first_index(k, d, index, start, count)
        total = total_of(d.order, d.value.dtype, self.fast)
        total.parts = self._parts(k, d)
        total.add(cast(start, d.value.dtype))
        if many:
            self._sample(k, d, index, count, extents, total)
            return cast(total.result(), dtype)
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            element = self._frame(k, (*index, *inner), d.value.args[1]).value(d.value.args[1])
            total.add(broadcast_to(cast(element, d.value.dtype), (count, min(step, size - begin))))
        return cast(total.result(), dtype)

    def _parts(self, k: int, d: Definition) -> int:
        """Of how many numbers each element of a sum is a sum itself, in double precision, as those in two steps are.

        NumPy adds all of them in the dtype of the result.
        """
        assert isinstance(d.value, Op)
        element = d.value.args[1]
        if d.order != "add" or not isinstance(element, Cast) or not isinstance(element.arg, Load):
            return 1
        stage = self.graphs[k].by_name.get(element.arg.source)
        if stage is None or not stage.updates or stage.updates[-1].order != "add":
            return 1
        if stage.dtype.kind != "f" or stage.dtype.itemsize <= element.dtype.itemsize:
            return 1
        return math.prod(sizes_value(n, self.inputs.sizes) for n in stage.updates[-1].rdims)

    def _sample(
        self, k: int, d: Definition, index: tuple[Array, ...], count: int, extents: list[int], total: Total
    ) -> None:
        """Add very many elements: as NumPy has them, as far off as some of them may be."""
        assert isinstance(d.value, Op)
        self.has_guessed = True
        size, element, dtype = math.prod(extents), d.value.args[1], d.value.dtype
        self.work.count(count * size, PLAIN * self.work.size_of(d)[2])
        places = np.linspace(0, size - 1, min(max(SAMPLE_EACH, SAMPLE_ALL // count), size)).astype(np.int64)
        inner = [i[None, :] for i in np.unravel_index(places, extents)]
        some = broadcast_to(cast(Frame(self, k, (*index, *inner)).value(element), dtype), (count, len(places)))
        arrays = {x.source: self.plainly(k, x.source) for x in element.loads}
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            values = evaluate(
                element, dict(enumerate((*index, *inner))), arrays, self.inputs.sizes, self.inputs.scalars
            ).astype(dtype)
            total.add_like(np.broadcast_to(values, (count, min(step, size - begin))), some)

    def plainly(self, k: int, name: str) -> Array:
        """An array as NumPy has it; few elements that may differ from those, such as sums, as they should be."""
        stage = self.graphs[k].by_name.get(name)
        if stage is None:
            return self.load(k, name, ()).value
        shape = self.shape(stage)
        if math.prod(shape) <= WHOLE and name not in self.exact:
            return self.complete(k, stage).value
        known = self.plain.get((k, name))
        if known is None:
            sizes = list(map(self.work.size_of, stage.definitions))
            self.work.count(
                1,
                sum(
                    (n if d.order == "sequential" else 1) * ops
                    for d, (_, n, ops) in zip(stage.definitions, sizes, strict=True)
                ),
            )
            self.work.count(sum(points * ops for points, _, ops in sizes), PLAIN)
            sources = {x.source for d in stage.definitions for x in d.loads} - {name}
            arrays = {n: self.plainly(k, n) for n in sources}
            whole = replace(self.graphs[k], stages=(stage,), outputs=(name,))
            (known,) = interpret(whole, arrays, self.inputs.sizes, self.inputs.scalars)
            self.plain[k, name] = known
        return known

    def _first_index(self, k: int, d: Definition, index: tuple[Array, ...], start: Approx, count: int) -> Approx:
        """A reduction that finds the first index where a condition holds (`is_first_index`): in hjit or in NumPy."""
        assert isinstance(d.value, Op)
        e = d.value.args[1]
        extents = [sizes_value(n, self.inputs.sizes) for n in d.rdims]
        size = math.prod(extents)
        never = np.iinfo(np.int64).max
        value, first, surely, last = start.value, never, never, np.full((count, 1), -1)
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            frame = Frame(self, k, (*index, *inner))
            shape = (count, min(step, size - begin))
            holds, place = frame.value(e.args[0]), np.broadcast_to(frame.value(e.args[1]).value, shape)
            may, must = truth(holds)
            value = np.minimum(value, np.where(holds.value, place, never).min(-1, keepdims=True))
            first = np.minimum(first, np.where(may, place, never).min(-1, keepdims=True))
            surely = np.minimum(surely, np.where(must, place, never).min(-1, keepdims=True))
            last = np.maximum(last, np.where(may, place, -1).max(-1, keepdims=True))
        error = np.maximum(value - first, np.minimum(surely, last) - value).astype(np.float64)
        return Approx(value, (error, error, np.zeros(error.shape))) if error.any() else Approx(value)

    def _updated(self, k: int, s: Stage, shape: tuple[int, ...]) -> Approx:
        """A stage that is computed definition by definition; while that lasts, `whole` has it as far as it is."""
        now = PartialStage(shape, s.dtype)
        for together in s.steps:
            d = together[0]
            self.whole[k, s.name] = now.approx
            pure = [sizes_value(n, self.inputs.sizes) for n in d.dims]
            inner = [sizes_value(n, self.inputs.sizes) for n in d.rdims]
            if 0 in pure or 0 in inner:
                continue
            running = scanned(d, s.name) if len(together) == 1 else None
            if running is not None:
                now.put(*self._scan(k, d, *running, pure, inner[0], s.dtype))
                self.whole[k, s.name] = now.approx
                continue
            added = scattered(d, s.name) if len(together) == 1 else None
            if added is not None:
                self._scatter(k, added, d, inner, now)
                continue
            if d.order in ("pure", "sequential"):
                rounded = d.reorders and s.dtype.kind == "f"
                for point in itertools.product(*map(range, inner)):
                    frame = Frame(self, k, (*_grids(pure), *point))
                    values = [cast(frame.value(x.value), s.dtype) for x in together]
                    places = [frame.target(x.target) for x in together]
                    for place, value in zip(places, values, strict=True):
                        now.put(place, rounded_again(value, s.dtype) if rounded else value)
                    self.whole[k, s.name] = now.approx
                continue
            assert isinstance(d.value, Op)
            if any(varies(p, len(pure)) for p in d.target):
                self._scatter(k, d.value.args[1], d, pure + inner, now)
                continue
            self.work.count(math.prod(pure + inner), WITH_ERRORS)
            index = tuple(i.reshape(-1, 1) for i in np.unravel_index(np.arange(math.prod(pure)), pure)) if pure else ()
            frame = Frame(self, k, index)
            target = tuple(np.reshape(t, -1) for t in frame.target(d.target)[0])
            old = take(now.approx, target)
            parts = []
            step = max(CHUNK // math.prod(inner), 1)
            for begin in range(0, math.prod(pure), step):
                part = slice(begin, min(begin + step, math.prod(pure)))
                count = part.stop - part.start
                some = reshaped(broadcast_to(old, (math.prod(pure),))[part], (count, 1))
                parts.append(
                    reshaped(self._reduce(k, d, tuple(i[part] for i in index), some, count, s.dtype), (count,))
                )
            now.put((target, None), joined(parts, s.dtype))
        return now.approx

    def _scan(
        self, k: int, d: Definition, before: Load, element: Expr, pure: list[int], length: int, dtype: np.dtype[Any]
    ) -> tuple[tuple[tuple[Array, ...], None], Approx]:
        """All of ``t[n] = t[n - 1] + element`` at once: where it is, and its values."""
        shape = (*pure, length)
        self.work.count(math.prod(shape), WITH_ERRORS)
        grids = _grids([*pure, length])
        frame = Frame(self, k, grids)
        x = broadcast_to(cast(frame.value(element), dtype), shape)
        start = broadcast_to(
            cast(Frame(self, k, (*(g[..., 0] for g in grids[:-1]), 0)).load(before), dtype), tuple(pure)
        )
        target = tuple(np.broadcast_to(i, shape) for i in frame.target(d.target)[0])
        return (target, None), sums_of(start, x, d.reorders)

    def _scatter(self, k: int, e: Expr, d: Definition, extents: list[int], now: PartialStage) -> None:
        """``ufunc.at``: elements `e` whose places are computed."""
        size = math.prod(extents)
        self.work.count(size, WITH_ERRORS)
        grids = [i.reshape(-1) for i in np.unravel_index(np.arange(size), extents)]
        frame = Frame(self, k, tuple(grids))
        element = broadcast_to(cast(frame.value(e), now.approx.value.dtype), (size,))
        target, doubtful = frame.target(d.target)
        target = tuple(np.broadcast_to(t, (size,)) for t in target)
        now.join("add" if d.order == "sequential" else d.order, target, element, doubtful, self.fast)


def _grids(extents: list[int]) -> list[Any]:
    return list(np.ogrid[tuple(slice(0, n) for n in extents)]) if extents else []


def _has_steps(s: Stage) -> bool:
    """Do elements go through steps, each of which asks for elements of other stages?"""
    return any(d.rdims and d.order == "sequential" for d in s.definitions)
