"""The elements of a function's results as they should be, and how far a kernel's and NumPy's may be from them; see `hjit.verify.forward_error`.

`verify` asks for elements that differ. A stage is computed at the elements that are asked for where it can be, else whole, and sums with more
digits than they have. Work is counted, so that what takes too long for a first call is not begun.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Cast, Const, Definition, Expr, Graph, Index, Load, Op, ScalarRef, Stage, walk
from hjit.trace.ir.interpret import IndexEvaluator, evaluate, interpret
from hjit.trace.ir.poly import Indirect, Poly, sizes_value
from hjit.trace.tracing.recorder import GraphBreak
from hjit.trace.tracing.results import Called
from hjit.verify.definitions import MANY, TOLD, is_direct, is_long, is_place, scanned, varies
from hjit.verify.forward_error import NUMPYS, OURS, SAME_WAY, Approx, Columns, apply, cast, decided, truth, ulp, wider
from hjit.verify.reductions import Total, Written, full, product, sums_of, three, total_of

Array = np.ndarray[Any, Any]

MOST_WORK = 64_000_000  # operations on elements, beside a share of those of the function itself; some half a second
OWN_SHARE = 16  # of the function's operations, sums apart; one here takes some ten times as long as in NumPy
SUM_SHARE = 64  # of those that are summed, which NumPy may leave to BLAS
WITH_ERRORS = 8  # as many operations is one on values with errors
LOADED = 4  # as many operations is a load
STEP_WORK = 1000  # of an operation on few elements
WIDEST = 3  # as many operations is one on doubles, which is done with more digits
CHUNK = 1 << 13  # elements at once; so few stay in the caches
WHOLE = 4096  # elements of a stage that is computed whole in any case
PLAIN = 1  # as many operations is one on elements as NumPy has them
PROBES = 2  # of an extern function, with its arguments moved by their errors
PROBED = 8.0  # times as far as the results of probes were moved, results may be


class TooMuch(Exception):
    """It would take too long."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a call has: arrays by input, run-time sizes, and scalars by name."""

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]
    scalars: Mapping[str, Any]


class Reference:
    """What the segments of a variant should compute.

    Args:
        graphs: one for each segment.
        events: what ends each of them.
        inexact: names of the operations whose last bits may differ.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        events: Sequence[GraphBreak | None],
        inputs: Inputs,
        inexact: frozenset[str],
        fast: bool,
    ) -> None:
        self.graphs, self.inputs, self.inexact, self.fast = graphs, inputs, inexact, fast
        self.left = MOST_WORK + sum(self.own_work(d) for g in graphs for s in g.stages for d in s.definitions)
        self.work, self.most = 0, self.left
        self.whole: dict[tuple[int, str], Approx] = {}
        self.plain: dict[tuple[int, str], Array] = {}
        self.given: dict[str, Approx] = {}
        self.has_guessed = False
        self._calls = {
            n: (k, e)
            for k, e in enumerate(events)
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
            TooMuch: it would take too long.
        """
        if name in self._calls:
            found = self._extern(name)
            return (
                full(found, found.value.shape)[np.unravel_index(positions, found.value.shape)]
                if found.value.shape
                else found
            )
        for k, g in enumerate(self.graphs):
            if name in g.outputs:
                shape = self.shape(g.stage(name))
                self.work, self.most = 0, self.left
                try:
                    return self.elements(k, g.stage(name), tuple(np.unravel_index(positions, shape)) if shape else ())
                finally:
                    self.left -= min(self.work, self.most)
        return None

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of an output, or of an array of an extern function; None where it is none."""
        if name in self._calls:
            return self._extern(name).value.shape
        return next((self.shape(g.stage(name)) for g in self.graphs if name in g.outputs), None)

    def is_settled(self, name: str) -> bool:
        """Is a number that is decided on the same in hjit and in NumPy?

        Raises:
            TooMuch: it would take too long.
        """
        found = self.at(name, np.zeros(1, np.int64))
        return found is not None and (found.doubtful is None or not found.doubtful.any())

    def count(self, elements: int, times: int = 1) -> None:
        """So much is to be done now."""
        self.work += max(elements, STEP_WORK) * times
        if self.work > self.most:
            raise TooMuch

    def size_of(self, d: Definition) -> tuple[int, int, int]:
        """How many points a definition has, how many of them each element is reduced from, and the operations on each."""
        points, inner = (
            math.prod(sizes_value(n, self.inputs.sizes) for n in extents) for extents in (d.extents, d.rdims)
        )
        return points, inner, sum(isinstance(e, (Op, Cast)) for e in walk(d.value)) + 1

    def own_work(self, d: Definition) -> int:
        """What may be done for a definition beside `MOST_WORK`."""
        points, _, operations = self.size_of(d)
        return points * operations // (SUM_SHARE if d.order == "add" else OWN_SHARE)

    def foresee(self, s: Stage, elements: int) -> None:
        """So much will be done for some elements of a stage, what it reads apart."""
        for d in s.definitions:
            points, inner, operations = self.size_of(d)
            calls = inner if d.order == "sequential" else 1
            times = PLAIN if is_long(d, elements, inner) else WITH_ERRORS
            if self.work + max(min(points, elements * inner) * times, calls * STEP_WORK) * operations > self.most:
                raise TooMuch

    def shape(self, s: Stage) -> tuple[int, ...]:
        return tuple(sizes_value(p, self.inputs.sizes) for p in s.shape)

    # -- arrays
    def load(self, k: int, name: str, index: tuple[Any, ...]) -> Approx:
        """Elements of what segment `k` reads."""
        stage = self.graphs[k].by_name.get(name)
        if stage is not None:
            return self.elements(k, stage, index)
        array = self.inputs.arrays.get(name, self._constants.get(name))
        if name in self._calls:
            return _taken(self._extern(name), index)
        for j in range(k):
            if name in self.graphs[j].outputs:
                return self.elements(j, self.graphs[j].stage(name), index)
        assert array is not None
        return _taken(Approx(array), index)

    def _extern(self, name: str) -> Approx:
        """A result of an extern function."""
        if name not in self.given:
            k, event = self._calls[name]
            assert event.call is not None
            needs = [
                self.load(k, n, ()) if n not in self.graphs[k].by_name else self.complete(k, self.graphs[k].stage(n))
                for n in event.needs
            ]
            if event.product is not None:
                self.count(math.prod(event.product.shape), WITH_ERRORS)
                self.given[name] = product(event.product, needs)
                return self.given[name]
            results = [np.asarray(r) for r in event.call(*(x.value for x in needs)).arrays]
            spreads: list[Columns | None] = [None] * len(results)
            if any(x.errors is not None for x in needs):
                self.has_guessed = True
                spreads = _probed(event.call, needs, results)
            self.given.update({n: Approx(r, s) for n, r, s in zip(event.gives, results, spreads, strict=True)})
        return self.given[name]

    # -- stages
    def elements(self, k: int, s: Stage, index: tuple[Any, ...]) -> Approx:
        """Elements of a stage at some indices, one array for each axis."""
        known = self.whole.get((k, s.name))
        if known is not None:
            return _taken(known, index)
        shape = self.shape(s)
        size = math.prod(shape)
        asked = np.broadcast_shapes(*(np.shape(i) for i in index))
        whole = size <= WHOLE and not any(d.rdims for d in s.definitions)
        if not is_direct(s) or whole or 2 * math.prod(asked) >= size:
            return _taken(self.complete(k, s), index)
        flat = np.ravel_multi_index(
            tuple(np.broadcast_to(np.clip(i, 0, n - 1), asked) for i, n in zip(index, shape, strict=True)), shape
        )
        self.count(flat.size, WITH_ERRORS)
        places, back = np.unique(flat, return_inverse=True)
        self.foresee(s, len(places))
        found = self._direct(k, s, places, shape)
        return found[back.reshape(asked)]

    def complete(self, k: int, s: Stage) -> Approx:
        """A stage, whole."""
        known = self.whole.get((k, s.name))
        if known is None:
            shape = self.shape(s)
            size = math.prod(shape)
            self.foresee(s, size)
            self.count(size, WITH_ERRORS)
            if is_direct(s):
                known = _reshaped(self._direct(k, s, np.arange(size), shape), shape)
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
        step = max((MANY if many else CHUNK) // max(reduced, 1), 1)
        for begin in range(0, len(places), step):
            index = (
                tuple(i[:, None] for i in np.unravel_index(places[begin : begin + step], shape))
                if shape
                else (np.zeros((1, 1), int),)
            )
            parts.append(self._point(k, s, index if shape else (), len(places[begin : begin + step]), many))
        return _joined(parts, s.dtype)

    def _point(self, k: int, s: Stage, index: tuple[Array, ...], count: int, many: bool) -> Approx:
        value = Approx(np.zeros((count, 1), s.dtype))
        for d in s.definitions:
            if d.order == "pure":
                frame = _Frame(self, k, index)
                value = full(cast(frame.value(d.value), s.dtype), (count, 1))
            else:
                value = self._reduce(k, d, index, value, count, s.dtype, many and is_long(d, MANY, MANY))
        return _reshaped(value, (count,))

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
        if is_place(d):
            return self._place(k, d, index, start, count)
        total = total_of(d.order, d.value.dtype, self.fast)
        total.add(cast(start, d.value.dtype))
        if many:
            self._sample(k, d, index, count, extents, total)
            return cast(total.result(), dtype)
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            element = _Frame(self, k, (*index, *inner)).value(d.value.args[1])
            total.add(full(cast(element, d.value.dtype), (count, min(step, size - begin))))
        return cast(total.result(), dtype)

    def _sample(
        self, k: int, d: Definition, index: tuple[Array, ...], count: int, extents: list[int], total: Total
    ) -> None:
        """Add very many elements: as NumPy has them, as far off as some of them may be."""
        assert isinstance(d.value, Op)
        self.has_guessed = True
        size, element, dtype = math.prod(extents), d.value.args[1], d.value.dtype
        self.count(count * size, PLAIN * self.size_of(d)[2])
        places = np.linspace(0, size - 1, min(max(TOLD[0], TOLD[1] // count), size)).astype(np.int64)
        inner = [i[None, :] for i in np.unravel_index(places, extents)]
        some = full(cast(_Frame(self, k, (*index, *inner)).value(element), dtype), (count, len(places)))
        arrays = {x.source: self.plainly(k, x.source) for x in element.loads}
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            values = evaluate(
                element, dict(enumerate((*index, *inner))), arrays, self.inputs.sizes, self.inputs.scalars
            ).astype(dtype)
            total.add_like(np.broadcast_to(values, (count, min(step, size - begin))), some)

    def plainly(self, k: int, name: str) -> Array:
        """An array as NumPy has it; few elements, such as sums, as they should be."""
        stage = self.graphs[k].by_name.get(name)
        if stage is None:
            return self.load(k, name, ()).value
        shape = self.shape(stage)
        if math.prod(shape) <= WHOLE:
            return self.complete(k, stage).value
        known = self.plain.get((k, name))
        if known is None:
            sizes = list(map(self.size_of, stage.definitions))
            self.count(
                1,
                sum(
                    (n if d.order == "sequential" else 1) * ops
                    for d, (_, n, ops) in zip(stage.definitions, sizes, strict=True)
                ),
            )
            self.count(sum(points * ops for points, _, ops in sizes), PLAIN)
            sources = {x.source for d in stage.definitions for x in d.loads} - {name}
            arrays = {n: self.plainly(k, n) for n in sources}
            whole = replace(self.graphs[k], stages=(stage,), outputs=(name,))
            (known,) = interpret(whole, arrays, self.inputs.sizes, self.inputs.scalars)
            self.plain[k, name] = known
        return known

    def _place(self, k: int, d: Definition, index: tuple[Array, ...], start: Approx, count: int) -> Approx:
        """A reduction that `_is_place`: wherever it holds in hjit or in NumPy, it does so in one place at least."""
        assert isinstance(d.value, Op)
        e = d.value.args[1]
        extents = [sizes_value(n, self.inputs.sizes) for n in d.rdims]
        size = math.prod(extents)
        never = np.iinfo(np.int64).max
        value, first, surely, last = start.value, never, never, np.full((count, 1), -1)
        step = max(CHUNK // count, 1)
        for begin in range(0, size, step):
            inner = [i[None, :] for i in np.unravel_index(np.arange(begin, min(begin + step, size)), extents)]
            frame = _Frame(self, k, (*index, *inner))
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
        now = Written(shape, s.dtype)
        for d in s.definitions:
            self.whole[k, s.name] = now.approx
            pure = [sizes_value(n, self.inputs.sizes) for n in d.dims]
            inner = [sizes_value(n, self.inputs.sizes) for n in d.rdims]
            if 0 in pure or 0 in inner:
                continue
            running = scanned(d, s.name)
            if running is not None:
                now.put(*self._scan(k, d, *running, pure, inner[0], s.dtype))
                self.whole[k, s.name] = now.approx
                continue
            if d.order in ("pure", "sequential"):
                for point in itertools.product(*map(range, inner)):
                    frame = _Frame(self, k, (*_grids(pure), *point))
                    value = cast(frame.value(d.value), s.dtype)
                    rounded = (
                        d.order == "sequential" and bool(d.rdims) and s.dtype.kind == "f"
                    )  # which may be in another order
                    now.put(frame.target(d.target), _once_more(value, s.dtype) if rounded else value)
                    self.whole[k, s.name] = now.approx
                continue
            assert isinstance(d.value, Op)
            if any(varies(p, len(pure)) for p in d.target):
                self._scatter(k, d, pure + inner, now)
                continue
            self.count(math.prod(pure + inner), WITH_ERRORS)
            index = tuple(i.reshape(-1, 1) for i in np.unravel_index(np.arange(math.prod(pure)), pure)) if pure else ()
            frame = _Frame(self, k, index)
            target = tuple(np.reshape(t, -1) for t in frame.target(d.target)[0])
            old = _taken(now.approx, target)
            parts = []
            step = max(CHUNK // math.prod(inner), 1)
            for begin in range(0, math.prod(pure), step):
                part = slice(begin, min(begin + step, math.prod(pure)))
                count = part.stop - part.start
                some = _reshaped(full(old, (math.prod(pure),))[part], (count, 1))
                parts.append(
                    _reshaped(self._reduce(k, d, tuple(i[part] for i in index), some, count, s.dtype), (count,))
                )
            now.put((target, None), _joined(parts, s.dtype))
        return now.approx

    def _scan(
        self, k: int, d: Definition, before: Load, element: Expr, pure: list[int], length: int, dtype: np.dtype[Any]
    ) -> tuple[tuple[tuple[Array, ...], None], Approx]:
        """All of ``t[n] = t[n - 1] + element`` at once: where it is, and what it comes to."""
        shape = (*pure, length)
        self.count(math.prod(shape), WITH_ERRORS)
        grids = _grids([*pure, length])
        frame = _Frame(self, k, grids)
        x = full(cast(frame.value(element), dtype), shape)
        start = full(cast(_Frame(self, k, (*(g[..., 0] for g in grids[:-1]), 0)).load(before), dtype), tuple(pure))
        target = tuple(np.broadcast_to(i, shape) for i in frame.target(d.target)[0])
        return (target, None), sums_of(start, x)

    def _scatter(self, k: int, d: Definition, extents: list[int], now: Written) -> None:
        """``ufunc.at``: elements whose place is computed."""
        assert isinstance(d.value, Op)
        size = math.prod(extents)
        self.count(size, WITH_ERRORS)
        grids = [i.reshape(-1) for i in np.unravel_index(np.arange(size), extents)]
        frame = _Frame(self, k, tuple(grids))
        element = full(cast(frame.value(d.value.args[1]), now.approx.value.dtype), (size,))
        target, doubtful = frame.target(d.target)
        target = tuple(np.broadcast_to(t, (size,)) for t in target)
        now.join(d.order, target, element, doubtful, self.fast)


class _Frame(IndexEvaluator):
    """Expressions at some indices of the dimensions around them."""

    def __init__(self, run: Reference, segment: int, dims: Sequence[Any]) -> None:
        self.run, self.segment, self.dims, self.sizes = run, segment, dims, run.inputs.sizes
        self.memo: dict[Expr, Approx] = {}

    def gather(self, a: Indirect) -> Any:
        i = np.asarray(self.value(a.expr).value).astype(np.int64)
        return i if a.extent is None else np.where(i < 0, i + self.index(a.extent), i)

    def doubtful(self, polys: Sequence[Poly]) -> Array | None:
        """Where an index may be another one in hjit or in NumPy; None: nowhere."""
        found: Array | None = None
        for e in dict.fromkeys(e for p in polys for e in p.exprs):
            here = self.value(e).doubtful
            if here is not None and here.any():
                found = here if found is None else found | here
        return found

    def target(self, target: tuple[Poly, ...]) -> tuple[tuple[Array, ...], Array | None]:
        """Where a definition writes, and where that is doubtful."""
        return tuple(np.asarray(self.index(p)) for p in target), self.doubtful(target)

    def value(self, e: Expr) -> Approx:
        done = self.memo.get(e)
        if done is None:
            done = self.memo[e] = self._value(e)
        return done

    def _value(self, e: Expr) -> Approx:
        match e:
            case Const():
                return Approx(np.asarray(e.value))
            case ScalarRef():
                return Approx(np.asarray(e.dtype.type(self.run.inputs.scalars[e.name])))
            case Index():
                return decided_index(np.asarray(self.index(e.poly), np.int64), self.doubtful((e.poly,)))
            case Load():
                return self.load(e)
            case Cast():
                arg = self.value(e.arg)
                self.count(arg)
                return cast(arg, e.dtype)
            case Op():
                args = [self.value(x) for x in e.args]
                if e.name == "reordered":
                    return self.reordered(e, args[0])
                for a in args:
                    self.count(a)
                return apply(e, args, e.name in self.run.inexact, self.run.fast)
        raise AssertionError(e)

    def count(self, a: Approx) -> None:
        times = WIDEST if a.value.dtype.kind == "f" and a.value.dtype.itemsize == 8 else 1
        self.run.count(a.value.size, 1 if a.errors is None else WITH_ERRORS * times)

    def load(self, e: Load) -> Approx:
        index = tuple(np.asarray(self.index(p)) for p in e.index)
        found = self.run.load(self.segment, e.source, index)
        self.run.count(found.value.size, LOADED if found.errors is None else WITH_ERRORS)
        doubtful = self.doubtful(e.index)
        if doubtful is None:
            return found
        spread, breaks = self.spread(e.source)
        found = full(found, np.broadcast_shapes(found.value.shape, doubtful.shape))
        errors: list[Any] = [np.float64(0)] * 3 if found.errors is None else list(found.errors)
        for k in (OURS, NUMPYS):
            errors[k] = np.where(doubtful, spread, errors[k])
        errors[SAME_WAY] = np.broadcast_to(errors[SAME_WAY], doubtful.shape)
        broken = doubtful & breaks if found.breaks is None else found.breaks | (doubtful & breaks)
        return Approx(found.value, (errors[0], errors[1], errors[2]), broken if broken.any() else None)

    def spread(self, name: str) -> tuple[float, bool]:
        """How far two elements of an array may be from each other, and whether some may be infinite or no numbers."""
        stage = self.run.graphs[self.segment].by_name.get(name)
        whole = self.run.load(self.segment, name, ()) if stage is None else self.run.complete(self.segment, stage)
        v = np.asarray(whole.value, wider(whole.value.dtype))
        finite = v[np.isfinite(v)]
        error = 0.0 if whole.errors is None else float(max(np.max(x, initial=0.0) for x in whole.errors))
        spread = float(finite.max() - finite.min()) if finite.size else 0.0
        return spread + 2 * error, finite.size < v.size or whole.breaks is not None

    def reordered(self, e: Op, total: Approx) -> Approx:
        """A sum that moves along a line in NumPy: what it has lost to the largest numbers of the line stays in it."""
        largest = 0.0
        for load in e.loads:
            stage = self.run.graphs[self.segment].by_name.get(load.source)
            whole = (
                self.run.load(self.segment, load.source, ())
                if stage is None
                else self.run.complete(self.segment, stage)
            )
            v = np.abs(np.asarray(whole.value, wider(whole.value.dtype)))
            self.run.count(v.size)
            largest += float(np.max(v[np.isfinite(v)], initial=0.0))
        longest = max((n for g in self.run.graphs for s in g.stages for n in self.run.shape(s)), default=1) + 64
        longest = max(longest, *(n for a in self.run.inputs.arrays.values() for n in a.shape), 1)
        lost = np.full(total.value.shape, 2 * longest * float(np.finfo(e.dtype).eps) * largest)
        before = total.errors or (np.float64(0),) * 3
        own = ulp(total.value, np.float64(0), e.dtype) * len(e.loads)
        return Approx(
            total.value, (before[OURS] + own, before[NUMPYS] + lost, before[SAME_WAY] + own + lost), total.breaks
        )


# -- pieces


def decided_index(value: Array, doubtful: Array | None) -> Approx:
    """A computed index: a doubtful one may be any other."""
    return Approx(value) if doubtful is None else decided(value, np.asarray(doubtful), np.inf)


def _once_more(x: Approx, dtype: np.dtype[Any]) -> Approx:
    """A value that may have been rounded in another way once more."""
    old = x.errors or (np.float64(0),) * 3
    gap = ulp(x.value, old[NUMPYS], dtype)
    return Approx(x.value, (old[OURS] + gap, old[NUMPYS] + gap, old[SAME_WAY] + 2 * gap), x.breaks)


def _reshaped(x: Approx, shape: tuple[int, ...]) -> Approx:
    x = full(x, x.value.shape)
    errors = None if x.errors is None else three([e.reshape(shape) for e in x.errors])
    return Approx(x.value.reshape(shape), errors, None if x.breaks is None else x.breaks.reshape(shape))


def _taken(x: Approx, index: tuple[Any, ...]) -> Approx:
    """Elements by indices, which are in range but where nothing is read; all of an array without any."""
    if not index:
        return x
    at = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(index, x.value.shape, strict=True))
    return full(x, x.value.shape)[at]


def _joined(parts: Sequence[Approx], dtype: np.dtype[Any]) -> Approx:
    """Parts of one axis."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Approx(np.zeros(0, dtype))
    parts = [full(p, p.value.shape) for p in parts]
    value = np.concatenate([p.value for p in parts])
    errors = breaks = None
    if any(p.errors is not None for p in parts):
        errors = three(
            [
                np.concatenate([np.zeros(p.value.shape) if p.errors is None else p.errors[k] for p in parts])
                for k in range(3)
            ]
        )
    if any(p.breaks is not None for p in parts):
        breaks = np.concatenate([np.zeros(p.value.shape, bool) if p.breaks is None else p.breaks for p in parts])
    return Approx(value, errors, breaks)


def _grids(extents: list[int]) -> list[Any]:
    return list(np.ogrid[tuple(slice(0, n) for n in extents)]) if extents else []


def _probed(call: Callable[..., Called], needs: Sequence[Approx], results: Sequence[Array]) -> list[Columns | None]:
    """How far the results of an extern function may be, as trying shows: with its arguments moved by their errors, up and down at random."""
    random = np.random.default_rng(0)
    spreads = [np.zeros(r.shape) for r in results]
    for _ in range(PROBES):
        moved = []
        for x in needs:
            error = (
                0.0
                if x.errors is None
                else np.minimum(np.maximum(x.errors[OURS], x.errors[NUMPYS]), np.finfo(np.float64).max)
            )
            with np.errstate(all="ignore"):
                moved.append((x.value + random.choice((-1.0, 1.0), x.value.shape) * error).astype(x.value.dtype))
        arrays = call(*moved).arrays
        for k in range(len(results)):
            r = np.asarray(arrays[k]) if len(arrays) == len(results) else None
            if r is None or r.shape != results[k].shape:  # it may raise, or return something else
                spreads[k][...] = np.inf
                continue
            with np.errstate(all="ignore"):
                apart = np.abs(np.asarray(r, np.float64) - np.asarray(results[k], np.float64))
            spreads[k] = np.fmax(
                spreads[k], np.where(np.isnan(apart) & ~(np.isnan(r) & np.isnan(results[k])), np.inf, apart)
            )
    found: list[Columns | None] = []
    for r, spread in zip(results, spreads, strict=True):
        if r.dtype.kind == "f":
            size = np.abs(np.where(np.isfinite(r), r, 0)).max(initial=0.0)
            error = PROBED * np.maximum(spread, spread.mean() if spread.size else 0.0) + 64 * float(
                np.finfo(r.dtype).eps
            ) * float(size)
            found.append((error, error, error))
        else:
            error = np.where(spread > 0, np.inf, 0.0)
            found.append((error, error, np.zeros(r.shape)))
    return found


__all__ = ["Inputs", "Reference", "TooMuch"]
