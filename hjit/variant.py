"""A finished trace made runnable: segments of kernels, decisions between them, opaque calls, and the result.

A trace is cut where it decides on a computed value or calls an opaque function. Each segment is one kernel; what a
later segment needs of an earlier one is carried over in memory rather than computed again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hjit.errors import ScheduleError
from hjit.kernels.runtime.kernel import Bound
from hjit.options import Options, Scheduler
from hjit.outcome import MISS, PLAIN
from hjit.process import deadline
from hjit.trace.capture.captured import container_shape
from hjit.trace.capture.trace import Result, Trace, Tree
from hjit.trace.ir.graph import Graph, Input
from hjit.trace.ir.poly import ONE, SMALL, Dim, Poly, sizes_value
from hjit.trace.ops.layout import c_strides
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites
from hjit.trace.tracing.host import same
from hjit.trace.tracing.recorder import GraphBreak, OutOfBounds, Recorder, packed
from hjit.verify.tolerances import EXACT, Tolerance, tolerances

if TYPE_CHECKING:
    from hjit.tuning.plans import Plan, Searched  # a process that searches nothing never loads it

Array = np.ndarray[Any, Any]
Held = tuple[list[Any], dict[str, Array]]  # values of the tape, captured arrays by input


class Mispredict(Exception):
    """A decision came out otherwise than when this variant was traced."""

    def __init__(self, number: int, value: Any) -> None:
        self.number, self.value = number, value


@dataclass(slots=True)
class Step:
    """One segment: a kernel, then the event that ends it (None at the end of the function)."""

    bound: Bound | None
    event: GraphBreak | None


def contiguous_layout(shape: tuple[Poly, ...]) -> tuple[int | None, ...]:
    """`recorder.layout` of an array in C order."""
    found: list[int | None] = []
    step = ONE
    for n in reversed(shape):
        found.insert(0, 0 if n == ONE else step.const if step.is_const and step.const <= SMALL else None)
        step = step * n
    return tuple(found)


def segments(rec: Recorder, goals: Sequence[tuple[str, ...]], said: Rewrites) -> list[Graph]:
    """One canonical Graph for each goal; stages that a later one needs are outputs of the first that computes them."""
    whole = rec.graph(())
    reads = {s.name: tuple(s.sources - {s.name}) for s in whole.stages}
    carried: dict[str, Input] = {}
    found: list[Graph] = []
    for number, goal in enumerate(goals):
        wanted = tuple(n for n in goal if n in reads and n not in carried)
        graph = _without(whole, carried, wanted)
        made = canonicalise(graph, said)
        if number + 1 < len(goals):
            later = _ancestors([n for g in goals[number + 1 :] for n in g], reads, carried)
            keep = tuple(s.name for s in made.stages if s.name in later and s.name not in wanted)
            if keep:
                made = canonicalise(replace(graph, outputs=wanted + keep), said)
            for s in whole.stages:
                if s.name in wanted + keep:
                    carried[s.name] = Input(s.name, s.dtype, s.shape, contiguous_layout(s.shape))
        found.append(made)
    return found


def _ancestors(names: list[str], reads: dict[str, tuple[str, ...]], stop: dict[str, Input]) -> set[str]:
    found: set[str] = set()
    while names:
        n = names.pop()
        if n not in found and n in reads and n not in stop:
            found.add(n)
            names += reads[n]
    return found


def _without(whole: Graph, carried: dict[str, Input], outputs: tuple[str, ...]) -> Graph:
    stages = tuple(s for s in whole.stages if s.name not in carried)
    return replace(whole, inputs=whole.inputs + tuple(carried.values()), stages=stages, outputs=outputs)


def _searched(graph: Graph, sizes: Mapping[str, int], options: Options) -> Plan:
    """The plan that a search makes; only then is loaded what searches."""
    from hjit.tuning import autoschedule

    with deadline.paused():  # it has limits of its own
        return autoschedule.searched(graph, sizes, options)


@dataclass(frozen=True, slots=True)
class _Way:
    """Kernels by one of several schedules; None is the default one. `measured`: see `hjit.tuning.plans.Plan`."""

    kernels: list[Bound | None]
    schedule: Searched | None
    graphs: list[Graph]
    measured: tuple[float, float] | None = None


class Variant:
    """A trace bound to sizes: what a call with the same arguments' key runs.

    Attributes:
        written: names of the inputs that the function changes.
        impure: does it call something whose result is new at every call?
        has_products: are there products of matrices that BLAS computes?
        flat: may `run_flat` run it? Arrays and numbers as arguments; one kernel whose results are new arrays, or products between kernels.
        vouched: ways of storing results (past the caches: True) whose results have been compared with NumPy's.
    """

    def __init__(self, trace: Trace, structure: Any, options: Options, leaves: Sequence[Any]) -> None:
        """`leaves`: the arguments at hand."""
        rec = trace.recorder
        self._leaves_now = leaves
        self.vouched: set[bool] = set()
        self.trace, self.rec, self.options = trace, rec, options
        self.results = trace.results
        self.writes = trace.writes
        self.written = frozenset(name for name, _ in trace.writes)
        self.impure = any(e.impure for e in rec.breaks)
        self.has_products = any(e.product is not None for e in rec.breaks)
        self.captures = rec.captures
        self.slots = {name: slot.k for name, (slot, _) in rec.scalar_slots().items()}
        self.constants = {n: s.array for n, s in rec.inputs.items() if s.where[0] == "constant"}
        self.arguments: dict[str, int] = {n: s.where[1] for n, s in rec.inputs.items() if s.where[0] == "arg"}
        self._packed = frozenset(n for n, s in rec.inputs.items() if s.packed)
        self._overlapping = any(n in self._packed or _overlaps_itself(rec.inputs[n].array) for n in self.written)
        self.goals = trace.goals
        self._segments: dict[frozenset[str], list[Graph]] = {}
        self._hurried = False  # was there no time for all ways of computing it?
        self._schedule()
        options = self.options
        known = getattr(options.schedule, "check_names", None)
        if (
            known is not None and not rec.breaks
        ):  # another path through the function may have the stages that this one lacks
            known(self.graphs)
        events: list[GraphBreak | None] = [*rec.breaks, None]
        self.steps = [Step(b, e) for b, e in zip(self._kernels(), events, strict=True)]
        self._segments.clear()
        self.flat = self._is_flat(structure)
        if self.flat:
            self._prepare_flat()
        self._forget_call()

    def _graphs(self, said: Rewrites) -> list[Graph]:
        """The Graphs with some rewrites; those that a searched schedule has are asked for more than once, and made once."""
        if not isinstance(said.inlined_after, frozenset) or said != Rewrites(inlined_after=said.inlined_after):
            return segments(self.rec, self.goals, said)
        found = self._segments.get(said.inlined_after)
        if found is None:
            found = self._segments[said.inlined_after] = segments(self.rec, self.goals, said)
        return found

    def _schedule(self) -> None:
        """Search a schedule, where none is given; and the Graphs as the schedule wants them."""
        if self.options.schedule is None and self.options.tune:
            from hjit.tuning.plans import scheduled

            self.options = replace(
                self.options, schedule=scheduled(self._graphs, self.rec.sizes, self.options, _searched)
            )
        self.graphs = self._graphs(NO_REWRITES if self.options.schedule is None else self.options.schedule.rewrites())

    def _kernels(self) -> list[Bound | None]:
        """The kernels; where a schedule was searched, by the fastest of what was found, or by the default schedule."""
        if not self.options.tune or self.options.schedule is None:
            return self._made(self.options.schedule)
        from hjit.tuning import plans

        found = self.options.schedule
        if not isinstance(found, plans.Searched):
            return self._made(found)
        ways = self._ways(found)
        best = self._fastest(ways, found) if found.new or not ways else ways[0]
        self.graphs, self.options = best.graphs, replace(self.options, schedule=best.schedule)
        if self._hurried:  # not all were compared: another process may
            return best.kernels
        plans.keep(replace(best.schedule or plans.Searched({}), new=found.new), self.options, best.measured)
        return best.kernels

    def _made(self, schedule: Scheduler | None) -> list[Bound | None]:
        """The kernels of the Graphs as they are."""
        options, strides = replace(self.options, schedule=schedule), self._strides()
        return [Bound(g, options, self.rec.sizes, strides) if g.outputs else None for g in self.graphs]

    def _by_default(self) -> _Way:
        """The kernels by the default schedule."""
        self.graphs = self._graphs(NO_REWRITES)
        return _Way(self._made(None), None, self.graphs)

    def _ways(self, found: Searched) -> list[_Way]:
        """The kernels by each schedule that was found, the best first, as far as there is time to compile them."""
        from hjit.tuning.plans import BUILT_SECONDS

        end = time.perf_counter() + BUILT_SECONDS[str(self.options.tune)]
        ways = [self._way(found) if found.trees else self._by_default()]
        for schedule in found.others:
            if time.perf_counter() > end:
                break
            with self._if_there_is_time(ways):
                ways.append(self._way(schedule))
        return [x for x in ways if x is not None and x.schedule is not None]

    @contextlib.contextmanager
    def _if_there_is_time(self, ways: Sequence[_Way | None]) -> Iterator[None]:
        """Make another way; one that there is no time for is left out where there are others."""
        try:
            yield
        except deadline.OverBudget:
            if not any(ways):
                raise
            self._hurried = True

    def _way(self, schedule: Searched) -> _Way | None:
        """The kernels by a searched schedule; None where it cannot be lowered."""
        from hjit.tuning import plans

        self.graphs = self._graphs(schedule.rewrites())
        try:
            kernels, schedule = plans.built(self._made, schedule)
        except ScheduleError as error:
            plans.refused(error)
            return None
        return _Way(kernels, schedule, self.graphs)

    def _fastest(self, ways: Sequence[_Way], found: Searched) -> _Way:
        """The fastest of some ways and the default schedule; where arrays of a later kernel are not there yet, the search is believed."""
        from hjit.tuning.autoschedule import fastest

        values = self.rec.tape.replay(self._leaves_now) if self.rec.tape.ops else []
        if found.trees and ways and (values is None or len(ways[0].kernels) > 1):
            return ways[0]
        default: _Way | None = None
        with self._if_there_is_time(ways):
            default = self._by_default()
        if default is None:
            return ways[0]
        if not ways:
            return default
        kernels = [x for way in (*ways, default) for x in way.kernels if x is not None]
        if values is None or len(kernels) != len(ways) + 1:
            return default
        arrays = {n: s.array for n, s in self.rec.inputs.items()}
        with deadline.paused():
            best, seconds = fastest(kernels, arrays, {n: values[k] for n, k in self.slots.items()})
        return replace((*ways, default)[best], measured=(seconds[best], seconds[-1]) if seconds else None)

    def _strides(self) -> dict[str, tuple[int, ...]]:
        """Strides of all inputs of the segments, in elements."""
        found = {n: element_strides(s.array) for n, s in self.rec.inputs.items()}
        for g in self.graphs:
            for i in g.inputs:
                if i.name not in found:
                    found[i.name] = c_strides([sizes_value(p, self.rec.sizes) for p in i.shape], 1)
        return found

    def _is_flat(self, structure: Any) -> bool:
        args, kwargs = structure.items
        if (
            any(e.product is None for e in self.rec.breaks)
            or self.rec.effects
            or self.captures
            or self.writes
            or self._packed
        ):
            return False
        if any(isinstance(x, Tree) for x in (*args.items, *kwargs.items)):
            return False
        if self.has_products:
            return not self.rec.checks
        names = [*(r.name for r in self.results), *self.rec.checks]
        return (
            bool(self.results)
            and all(r.kind == "array" for r in self.results)
            and tuple(names) == self.graphs[0].outputs
        )

    def _prepare_flat(self) -> None:
        bound = self.steps[0].bound
        self._tape = self.rec.tape if self.rec.tape.ops else None
        if self.has_products:
            return
        assert bound is not None
        self._bound = bound
        self._leaves = tuple(self.arguments.get(n, -1) for n in bound.inputs)
        self._fixed = {k: self.constants[n] for k, n in enumerate(bound.inputs) if n in self.constants}
        self._shapes = tuple((shape, dtype) for _, shape, dtype in bound.outputs)
        self._scalars = tuple(self.slots[n] for n, _ in bound.scalars)
        self._may_refuse = bool(self.rec.checks)

    def _forget_call(self) -> None:
        """A variant must not keep the arrays of the call that made it alive."""
        for s in self.rec.inputs.values():
            if s.where[0] != "constant":
                s.array = _like(s.array)
        self._leaves_now = ()
        self.rec.captured.clear()
        self.rec.forget()

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a comparison with NumPy vouches for: the kernels, and what is made of their results."""
        results = tuple((r.kind, r.name, r.shape, r.index, r.is_scalar, r.weak, r.order) for r in self.results)
        products = tuple(
            s.event.product.form for s in self.steps if s.event is not None and s.event.product is not None
        )
        return tuple(b.kernel.name for b in self.bounds), products, results, tuple(self.writes)

    @property
    def may_stream(self) -> bool:
        """Is there code that writes results past the caches, for arrays of the caller?"""
        return any(b.may_stream for b in self.bounds)

    @property
    def bounds(self) -> list[Bound]:
        """The kernels, in order."""
        return [s.bound for s in self.steps if s.bound is not None]

    def tolerances(self) -> tuple[Any, dict[str, Tolerance]]:
        """How the results may differ from NumPy's, put together as they are, and how the changed arguments may, by name."""
        found, written = self._tolerances()
        return self._built(lambda r: written.get(r.name) or found.get(r.name, EXACT)), written

    def arranged(self, make: Callable[[Tolerance, str, Callable[[Array], Any]], Any]) -> tuple[Any, dict[str, Any]]:
        """As `tolerances`, what `make` makes of each of them, the stage, and how the result, or changed argument, is a part of the stage."""
        found, written = self._tolerances()
        stages = dict(self.writes)

        def leaf(r: Result) -> Any:
            def arrange(a: Array) -> Any:
                return self._view(a, r) if r.kind == "view" else r.given(a) if r.kind == "array" else a

            return make(written.get(r.name) or found.get(r.name, EXACT), stages.get(r.name, r.name), arrange)

        return self._built(leaf), {name: make(t, stages[name], lambda a: a) for name, t in written.items()}

    def _tolerances(self) -> tuple[dict[str, Tolerance], dict[str, Tolerance]]:
        """Of the stages, and of the changed arguments."""
        found = tolerances(self.graphs, [s.event for s in self.steps], self.options.fast_math)
        return found, {name: found.get(stage, EXACT) for name, stage in self.writes}

    def _built(self, leaf: Callable[[Result], Any]) -> Any:
        """Something for each result, put together as the results are."""
        tree = self.trace.result
        return tree.build(leaf) if isinstance(tree, Tree) else leaf(tree)

    # -- may it run?
    def guards(self, leaves: Sequence[Any]) -> Held | None:
        """Values of the tape and the captured arrays, or None where a guard does not hold."""
        values = self.rec.tape.replay(leaves) if self.rec.tape.ops else []
        if values is None:
            return None
        arrays: dict[str, Array] = {}
        for path, (kind, expected) in self.captures:
            try:
                value = _look_up(path, leaves)
            except Exception:  # it is gone, or a foreign descriptor does not give it
                return None
            if kind == "array":
                if not self._accepts(expected, value) or arrays.setdefault(expected, value) is not value:
                    return None
            elif not _holds(kind, expected, value):
                return None
        return values, arrays

    def _accepts(self, name: str, value: Any) -> bool:
        """Is a captured array like the one that was traced?"""
        if not isinstance(value, np.ndarray) or type(value) not in (np.ndarray, np.memmap):
            return False
        return _alike(packed(value) if name in self._packed else value, self.rec.inputs[name].array)

    def may_write(self, leaves: Sequence[Any], captured: dict[str, Array]) -> bool:
        """Are the arrays that the function changes writeable, and apart from all others?"""
        if not self.written:
            return True
        if self._overlapping:
            return False
        arrays = {n: leaves[k] for n, k in self.arguments.items()} | captured
        for name in self.written:
            a = arrays[name]
            if not a.flags.writeable or any(n != name and _overlap(a, b) for n, b in arrays.items()):
                return False
        return True

    # -- running
    def run_flat(self, leaves: Sequence[Any]) -> Any:
        """The hot path of a `flat` variant; MISS where a guard of a value does not hold, PLAIN where NumPy is to say that it refuses something."""
        values: Sequence[Any] | None = ()
        if self._tape is not None:
            values = self._tape.replay(leaves)
            if values is None:
                return MISS
        if self.has_products:
            return self._run_products(leaves, values)
        fixed = self._fixed
        arrays = (
            [fixed[k] if n < 0 else leaves[n] for k, n in enumerate(self._leaves)]
            if fixed
            else [leaves[n] for n in self._leaves]
        )
        outputs = [np.empty(shape, dtype) for shape, dtype in self._shapes]
        if not self._bound.run(arrays, outputs, [values[k] for k in self._scalars] if values else ()):
            return PLAIN
        if self._may_refuse and outputs.pop():
            return PLAIN
        tree = self.trace.result
        if type(tree) is Result:
            return tree.given(outputs[0]) if tree.is_scalar or tree.order else outputs[0]
        parts = iter(outputs)
        return tree.build(lambda r: r.given(next(parts)))

    def _run_products(self, leaves: Sequence[Any], values: Sequence[Any]) -> Any:
        """`run_flat` of kernels with products between them."""
        state = {**self.constants, **{n: leaves[k] for n, k in self.arguments.items()}}
        try:
            self._run_steps(state, values, {}, {}, [], False)
        except OutOfBounds:
            return PLAIN
        return self._finish(values, state)

    def run(
        self,
        leaves: Sequence[Any],
        held: Held,
        targets: Sequence[Any] = (),
        events: Mapping[int, tuple[Any, ...]] | None = None,
        effects: bool = True,
        streamed: bool = False,
        draws: dict[str, Array] | None = None,
    ) -> Any:
        """Run all steps.

        Args:
            held: what `guards` gave.
            targets: arrays for the results, used where they fit.
            events: arrays of opaque calls that the trace itself made, used instead of calling again.
            effects: give warnings and log records, and leave streams of random numbers where they are then?
            streamed: are targets written past the caches, where there is code that does?
            draws: takes the arrays of random numbers, by input.

        Raises:
            Mispredict: a decision came out otherwise.
            OutOfBounds: NumPy is to run; nothing was written.
        """
        values, captured = held
        if any(e.blocked is not None and e.blocked() for e in self.rec.effects):
            raise OutOfBounds
        state = {**self.constants, **captured, **{n: leaves[k] for n, k in self.arguments.items()}}
        places = self._places(targets, state) if targets else {}
        drawn: list[Callable[[], None]] = []
        try:
            self._run_steps(state, values, places, events or {}, drawn, streamed)
            if any(state[n].any() for n in self.rec.checks):
                raise OutOfBounds
        except (Mispredict, OutOfBounds):
            _call_all(reversed(drawn))
            raise
        if effects:
            for effect in self.rec.effects:
                effect.give([state[n] for n in effect.needs], values)
        else:
            _call_all(reversed(drawn))
        if draws is not None:
            draws.update(
                {n: state[n] for s in self.steps if s.event is not None and s.event.impure for n in s.event.gives}
            )
        return self._finish(values, state)

    def _run_steps(
        self,
        state: dict[str, Array],
        values: Sequence[Any],
        places: Mapping[str, Array],
        events: Mapping[int, tuple[Any, ...]],
        drawn: list[Callable[[], None]],
        streamed: bool,
    ) -> None:
        """Kernels and events, in order; `drawn`: what puts the random-number streams back that were drawn from."""
        for number, step in enumerate(self.steps):
            if step.bound is not None:
                self._run_kernel(step.bound, state, values, places, streamed)
            event = step.event
            if event is None:
                continue
            if event.call is None:
                value = state[event.needs[0]].reshape(())[()]
                if not same(value, event.value):
                    raise Mispredict(number, value)
                continue
            results = events.get(number)
            if event.product is not None and (results is None or event.gives[0] in places):
                results = (event.product.compute([state[n] for n in event.needs], places.get(event.gives[0])),)
            elif results is None:
                if event.mark is not None:
                    drawn.append(event.mark())
                outcome, results, _ = event.call(*(state[n] for n in event.needs))
                if not same(outcome, event.value):
                    raise Mispredict(number, outcome)
            state.update(zip(event.gives, results, strict=True))

    def _places(self, targets: Sequence[Any], state: Mapping[str, Array]) -> dict[str, Array]:
        """The results that can be computed straight into arrays of the caller."""
        shapes = {n: (shape, dtype) for b in self.bounds for n, shape, dtype in b.outputs}
        shapes |= {
            s.event.gives[0]: (s.event.product.shape, s.event.product.dtype)
            for s in self.steps
            if s.event and s.event.product
        }
        found: dict[str, Array] = {}
        for r, t in zip(self.results, targets, strict=False):
            if r.kind != "array" or r.is_scalar or type(t) is not np.ndarray or t.ndim != len(r.order or t.shape):
                continue
            place = r.taken(t)
            if not place.flags.carray or shapes.get(r.name) != (place.shape, place.dtype):
                continue
            others = [x for x in targets if x is not t and isinstance(x, np.ndarray)]
            if not any(_overlap(t, x) for x in (*state.values(), *others)):
                found[r.name] = place
        return found

    def _run_kernel(
        self, bound: Bound, state: dict[str, Array], values: Sequence[Any], places: Mapping[str, Array], streamed: bool
    ) -> None:
        made = [places[n] if n in places else np.empty(shape, dtype) for n, shape, dtype in bound.outputs]
        inputs = [packed(state[n]) if n in self._packed else state[n] for n in bound.inputs]
        given = any(n in places for n, _, _ in bound.outputs)
        if not bound.run(inputs, made, [values[self.slots[n]] for n, _ in bound.scalars], given, streamed):
            raise OutOfBounds
        for (name, _, _), array in zip(bound.outputs, made, strict=True):
            state[name] = array

    def _finish(self, values: Sequence[Any], state: dict[str, Array]) -> Any:
        for argument, stage in self.writes:
            np.copyto(state[argument], state[stage])

        def leaf(r: Result) -> Any:
            match r.kind:
                case "array":
                    return r.given(state[r.name])
                case "constant":
                    return r.given(r.value.copy("K"))
                case "argument":
                    return state[r.name]
                case "view":
                    return self._view(state[r.name], r)
                case "host":
                    return values[r.value]
                case _:
                    return r.value

        tree = self.trace.result
        return tree.build(leaf) if isinstance(tree, Tree) else leaf(tree)

    def _view(self, base: Array, r: Result) -> Array:
        """The NumPy view that an index map describes."""
        base = base if r.dtype is None else base.view(r.dtype)
        sizes = self.rec.sizes
        shape = tuple(sizes_value(p, sizes) for p in r.shape)
        if base.size == 0 or 0 in shape:
            return np.empty(shape, base.dtype)

        def at(k: int) -> list[int]:
            """The index where dimension `k` is 1 and the others are 0."""
            return [p.evaluate(lambda a: int(a.k == k) if isinstance(a, Dim) else sizes[a.name]) for p in r.index]

        start = at(-1)
        steps = [
            sum((i - o) * stride for i, o, stride in zip(at(k), start, base.strides, strict=True))
            for k in range(len(shape))
        ]
        corner = [slice(o, o + 1) for o in start]
        return np.lib.stride_tricks.as_strided(
            base[(*corner, ...)], shape, steps, writeable=base.flags.writeable and not r.read_only
        )


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for f in functions:
        f()


def _look_up(path: Any, leaves: Sequence[Any]) -> Any:
    """A captured value, now: from where it was found, or from an argument of this call."""
    if path.kind == "leaf":
        return leaves[path.name]
    base = _look_up(path.base, leaves) if type(path.base) is type(path) else path.base
    if path.kind == "item":
        return base[path.name]
    return base.cell_contents if path.kind == "cell" else getattr(base, path.name)


def _holds(kind: str, expected: Any, value: Any) -> bool:
    """Is a captured value what it was?"""
    if kind == "shape":
        return bool(container_shape(value) == expected)
    if kind == "method":
        return getattr(value, "__func__", None) is expected
    if kind == "identity":
        return value is expected or _same_method(value, expected)
    return same(value, expected)


def _same_method(a: Any, b: Any) -> bool:
    """Bound methods are made anew at each look-up."""
    return hasattr(a, "__func__") and hasattr(b, "__func__") and a.__func__ is b.__func__ and a.__self__ is b.__self__


def _overlap(a: Array, b: Array) -> bool:
    """Do two arrays share an element? Yes where it is hard to say."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=1000))
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(a: Array) -> bool:
    """May two elements of an array be the same memory?"""
    if not a.size:
        return False
    reach = a.itemsize
    for s, n in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
        if s < reach:
            return True
        reach += s * (n - 1)
    return False


def _alike(a: Array, b: Array) -> bool:
    """Do two arrays look the same to a kernel?"""
    return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides


def _like(a: Array) -> Array:
    """An array of the same dtype, shape and strides without memory of its own."""
    probe = np.zeros(1, a.dtype)
    shaped = np.lib.stride_tricks.as_strided(probe, a.shape, a.strides)
    shaped.flags.writeable = False
    return shaped


def element_strides(a: Array) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // a.itemsize for s in a.strides)


__all__ = ["Held", "Mispredict", "OutOfBounds", "Variant", "element_strides", "segments"]
