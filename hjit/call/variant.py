"""`Variant`: a finished trace, compiled: kernels, the graph breaks between them, and how results are returned.

A graph break cuts the trace where the function decides on a computed value or calls an extern function. Each segment
between two breaks is one kernel. Arrays that a later segment reads stay in memory; they are not computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hjit.call.guards import Guards, GuardValues
from hjit.call.results import MISS, PLAIN, Allocation, Results, complex_argument
from hjit.kernels.runtime.kernel import Bound
from hjit.trace.capture.trace import PyTree, Result, Trace
from hjit.trace.ir.analysis.tolerances import Tolerance
from hjit.trace.ir.graph import Graph
from hjit.trace.tracing.complex_memory import parts_of
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder
from hjit.trace.tracing.recording.strides import packed
from hjit.trace.tracing.scalars.host import same
from hjit.verify.tolerances import tolerances

if TYPE_CHECKING:
    from hjit.call.scratch_allocation import ScratchAllocation
    from hjit.kernels.runtime.scheduled import Scheduled

Array = np.ndarray[Any, Any]
GONE = object()  # an argument that a variant must not keep alive


class Mispredict(Exception):
    """A decision, or the outcome of an extern call, is not what it was when this variant was traced."""

    def __init__(self, number: int, value: Any) -> None:
        self.number, self.value = number, value


@dataclass(frozen=True, slots=True)
class CompiledSegment:
    """One segment: a kernel (None if it computes nothing), and the graph break that ends it (None at the last one).

    Attributes:
        origin: returns the canonical Graph and the schedule of the kernel. They are worked out when first asked for if
            the kernel came from disk, since calls need neither.
        unread: which of the graph break's arrays (positions in `GraphBreak.needs`) are temporaries that nothing reads
            afterwards, so that an extern call may overwrite them.
    """

    origin: Callable[[], tuple[Graph, Scheduled | None]]
    bound: Bound | None
    graph_break: GraphBreak | None
    unread: frozenset[int] = frozenset()

    @property
    def graph(self) -> Graph:
        """The canonical Graph."""
        return self.origin()[0]

    @property
    def scheduled(self) -> Scheduled | None:
        """The Graph with its schedule, of which the kernel was made."""
        return self.origin()[1]


@dataclass(frozen=True, slots=True)
class CompiledSegments:
    """The segments of a trace, and what runs them in order.

    Attributes:
        packed: inputs that are read through a copy in C order.
        slots: for each scalar parameter of the kernels, its entry on the tape.
        allocations: for results that are not laid out in memory as their stages are.
    """

    segments: list[CompiledSegment]
    packed: frozenset[str]
    slots: Mapping[str, int]
    allocations: Mapping[str, Allocation | ScratchAllocation] = field(default_factory=dict)

    def run(
        self,
        state: dict[str, Array],
        values: Sequence[Any],
        destinations: Mapping[str, Array],
        known: Mapping[int, tuple[Any, ...]],
        drawn: list[Callable[[], None]],
        streamed: bool,
    ) -> None:
        """Run all kernels and graph breaks.

        Args:
            state: arrays by name; computed ones are added.
            values: the values of the tape.
            destinations: the caller's arrays for results, by stage.
            known: results of extern calls that are not made again, by the number of the graph break.
            drawn: is appended functions that restore the random-number streams that were drawn from.
            streamed: see `RunOptions`.

        Raises:
            Mispredict: a decision came out differently.
            OutOfBounds: an index is out of bounds.
        """
        for number, segment in enumerate(self.segments):
            if segment.bound is not None:
                self.run_kernel(segment.bound, state, values, destinations, streamed)
            graph_break = segment.graph_break
            if graph_break is None:
                continue
            if graph_break.call is None:
                value = self.on_host(state, graph_break.needs)[0].reshape(())[()]
                if not same(value, graph_break.value):
                    raise Mispredict(number, value)
                continue
            results = known.get(number)
            if graph_break.product is not None and (results is None or graph_break.gives[0] in destinations):
                results = (
                    self.multiply(
                        graph_break.product,
                        [state[n] for n in graph_break.needs],
                        destinations.get(graph_break.gives[0]),
                    ),
                )
            elif results is None:
                if graph_break.checkpoint is not None:
                    drawn.append(graph_break.checkpoint())
                outcome, made = self.call_extern(number, graph_break, state)
                if not same(outcome, graph_break.value):
                    raise Mispredict(number, outcome)
                results = tuple(made)
            state.update(zip(graph_break.gives, results, strict=True))

    def describe_break(self, number: int) -> str:
        """A line of text: how the graph break of this number is computed."""
        graph_break = self.segments[number].graph_break
        assert graph_break is not None
        if graph_break.call is None:
            return graph_break.operation
        if graph_break.program is not None:
            return "loops, compiled as they are"
        if graph_break.product is None:
            return f"{graph_break.operation} {self.describe_call(number)}"
        first, second = graph_break.product.first, graph_break.product.second
        return f"{graph_break.gives[0]} = {first.source} @ {second.source} by {self.blas}"

    @property
    def blas(self) -> str:
        """The name of the library that multiplies matrices."""
        return "BLAS"

    def describe_call(self, number: int) -> str:
        """How the extern call of this number is made."""
        return "as it is"

    def call_extern(self, number: int, graph_break: GraphBreak, state: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        """The outcome and the arrays of an extern call."""
        assert graph_break.call is not None
        arrays = self.on_host(state, graph_break.needs)
        keywords = {"unread": self.segments[number].unread} if graph_break.may_write else {}
        outcome, results, _ = graph_break.call(*arrays, **keywords)
        return outcome, results

    def on_host(self, state: Mapping[str, Any], names: Sequence[str]) -> list[Array]:
        """These arrays in host memory."""
        return [state[n] for n in names]

    def multiply(self, product: Product, arrays: Sequence[Any], destination: Any) -> Any:
        """A matrix product by BLAS, written to `destination` if that is not None."""
        return product.compute(arrays, destination)

    def memory(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array for a stage."""
        return self.allocations[name].allocate() if name in self.allocations else np.empty(shape, dtype)

    def run_kernel(
        self,
        bound: Bound,
        state: dict[str, Array],
        values: Sequence[Any],
        destinations: Mapping[str, Array],
        streamed: bool,
    ) -> None:
        made = [
            destinations[n] if n in destinations else self.memory(n, shape, dtype) for n, shape, dtype in bound.outputs
        ]
        inputs, scalars = self.arguments(bound, state, values)
        is_callers = any(n in destinations for n, _, _ in bound.outputs)
        if not bound.run(inputs, made, scalars, is_callers, streamed):
            raise OutOfBounds
        for (name, _, _), array in zip(bound.outputs, made, strict=True):
            state[name] = array

    def arguments(self, bound: Bound, state: Mapping[str, Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arrays and the scalars that a kernel takes."""
        inputs = [packed(state[n]) if n in self.packed else state[n] for n in bound.inputs]
        return inputs, [values[self.slots[n]] for n, _ in bound.scalars]


@dataclass(frozen=True, slots=True)
class OneKernel:
    """The hot path of a variant that is one kernel: its arguments are arrays and numbers, its results new arrays.

    Attributes:
        tape: of the recorder; None if it is constant: no number is computed from the arguments.
        values: of a constant tape.
        leaves: for each input of the kernel the leaf of the arguments; -1 if it is in `constants`, by position.
        scalars: the entries of the tape that the kernel takes.
        outputs: their shapes and dtypes.
        may_refuse: is the last output a flag that says whether NumPy would raise an exception?
        result: the structure that is returned; see `Results.tree`.
        allocations: for outputs that are not laid out as their stages, by position.
        holds: do the guards hold? See `Guards.test`.
    """

    bound: Bound
    tape: Any
    values: Sequence[Any]
    leaves: tuple[int, ...]
    constants: Mapping[int, Array]
    scalars: tuple[int, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    may_refuse: bool
    result: Any
    allocations: Mapping[int, Allocation | ScratchAllocation]
    holds: Callable[[Sequence[Any]], bool] | None

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result; MISS if a guard does not hold, PLAIN if NumPy would raise an exception."""
        if self.holds is not None and not self.holds(leaves):
            return MISS
        values: Sequence[Any] | None = self.values
        if self.tape is not None:
            values = self.tape.replay(leaves)
            if values is None:
                return MISS
        fixed = self.constants
        arrays = (
            [fixed[k] if n < 0 else leaves[n] for k, n in enumerate(self.leaves)]
            if fixed
            else [leaves[n] for n in self.leaves]
        )
        outputs = [np.empty(shape, dtype) for shape, dtype in self.outputs] if not self.allocations else self.memory()
        if not self.bound.run(arrays, outputs, [values[k] for k in self.scalars] if values else ()):
            return PLAIN
        if self.may_refuse and outputs.pop():
            return PLAIN
        tree = self.result
        if type(tree) is Result:
            return outputs[0] if tree.is_plain else tree.returned(outputs[0])
        parts = iter(outputs)
        return tree.build(lambda r: r.returned(next(parts)))

    def memory(self) -> list[Array]:
        """Uninitialised arrays for the outputs."""
        allocations = self.allocations
        return [allocations[k].allocate() if k in allocations else np.empty(*x) for k, x in enumerate(self.outputs)]


@dataclass(frozen=True, slots=True)
class WithProducts:
    """The hot path of a variant whose graph breaks are all matrix products by BLAS; see `OneKernel`."""

    body: CompiledSegments
    tape: Any
    constants: Mapping[str, Array]
    arguments: Mapping[str, int]
    results: Results
    holds: Callable[[Sequence[Any]], bool] | None

    def run(self, leaves: Sequence[Any]) -> Any:
        """As `OneKernel.run`."""
        if self.holds is not None and not self.holds(leaves):
            return MISS
        values: Sequence[Any] | None = () if self.tape is None else self.tape.replay(leaves)
        if values is None:
            return MISS
        state = {**self.constants, **{n: leaves[k] for n, k in self.arguments.items()}}
        try:
            self.body.run(state, values, {}, {}, [], False)
        except OutOfBounds:
            return PLAIN
        return self.results.finish(values, state)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run differs from that of an ordinary call.

    Attributes:
        known: results of extern calls that tracing already made, by the number of the break: they are not made again.
        effects: issue warnings and log records, and let random-number streams advance? If not, these are restored.
        streamed: use streaming stores for the caller's arrays, if the kernel has code for it?
        draws: is filled with the arrays of random numbers, by input.
    """

    known: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    effects: bool = True
    streamed: bool = False
    draws: dict[str, Array] | None = None


AS_CALLED = RunOptions()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Variant:
    """A trace compiled for some sizes; it serves calls with the same key whose guards and decisions hold.

    Attributes:
        body: its segments.
        fast_math: see `hjit.options`; it decides how far results may be from NumPy's.
        constants: arrays that the function itself made while it was traced, by input.
        fast: the hot path, if it has one.
        example: the arguments of the call that it was compiled for: their structure, and the leaves with arrays
            without contents, and `GONE` in place of objects other than numbers and strings.
        verified_stores: the kinds of stores (True: streaming) whose results have been compared with NumPy's.
    """

    trace: Trace
    body: CompiledSegments
    results: Results
    guards: Guards
    constants: Mapping[str, Array]
    fast_math: bool
    fast: OneKernel | WithProducts | None = None
    example: tuple[PyTree, list[Any]] = (PyTree(tuple, ()), [])
    verified_stores: set[bool] = field(default_factory=set)

    @property
    def on_device(self) -> bool:
        """Do its kernels run on a GPU?"""
        return False

    @property
    def rec(self) -> Recorder:
        """The recorder of the trace."""
        return self.trace.recorder

    @property
    def segments(self) -> list[CompiledSegment]:
        """Its segments."""
        return self.body.segments

    @property
    def graphs(self) -> list[Graph]:
        """The canonical Graphs of the segments."""
        return [s.graph for s in self.segments]

    @property
    def breaks(self) -> list[GraphBreak | None]:
        """What ends each segment."""
        return [s.graph_break for s in self.segments]

    @property
    def bounds(self) -> list[Bound]:
        """The kernels, in order."""
        return [s.bound for s in self.segments if s.bound is not None]

    @property
    def impure(self) -> bool:
        """Does it call something, such as a random generator, whose result differs from call to call?"""
        return any(e.impure for e in self.rec.breaks)

    @property
    def speculates(self) -> bool:
        """Does it assume outcomes, so that another one, with decisions, may serve the calls that it refuses?"""
        return self.rec.findings.speculates

    @property
    def decides(self) -> bool:
        """Was it traced for calls that one refused which speculates?"""
        return not self.rec.options.speculate

    @property
    def makes_calls(self) -> bool:
        """Does it call functions that take as long for NumPy?"""
        return any(e.call is not None and e.product is None and e.program is None for e in self.rec.breaks)

    @property
    def has_products(self) -> bool:
        """Does BLAS compute matrix products?"""
        return any(e.product is not None for e in self.rec.breaks)

    @property
    def may_stream(self) -> bool:
        """Do kernels have code with streaming stores, for results in the caller's arrays?"""
        return any(b.may_stream for b in self.bounds)

    @property
    def signature(self) -> tuple[Any, ...]:
        """What one comparison with NumPy covers: the kernels, and how results are made of their outputs."""
        products = tuple(e.product.form for e in self.breaks if e is not None and e.product is not None)
        return tuple(b.kernel.name for b in self.bounds), products, *self.results.signature

    def branches_from(self, missed: Variant, miss: Mispredict) -> bool:
        """Does it share the decisions of the variant `missed`, up to the one that was mispredicted, and take that one
        as it came out now?"""
        at = miss.number
        own, others = self.rec.breaks, missed.rec.breaks
        if len(own) <= at or not same(own[at].value, miss.value):
            return False
        return all(same(a.value, b.value) for a, b in zip(own[:at], others[:at], strict=True))

    @property
    def reference_graphs(self) -> list[Graph]:
        """The canonical Graphs by which results are verified: operations in NumPy's own order."""
        return self.graphs

    def tolerances(self) -> dict[str, Tolerance]:
        """How far each stage may be from NumPy's."""
        return tolerances(self.reference_graphs, self.breaks, self.fast_math, reorders_scatters=self.on_device)

    def run(
        self,
        leaves: Sequence[Any],
        guarded: GuardValues,
        targets: Sequence[Any] = (),
        arguments: Any = None,
        options: RunOptions = AS_CALLED,
    ) -> Any:
        """Run all segments.

        Args:
            guarded: the result of `Guards.values`.
            targets: the caller's arrays for results, used where they fit.
            arguments: see `Results.put_together`.

        Raises:
            Mispredict: a decision came out differently.
            OutOfBounds: the plain function is to run; no array of the caller has been written.
        """
        values, captured = guarded
        if any(e.blocked is not None and e.blocked() for e in self.rec.effects):
            raise OutOfBounds
        state = self.arrays(leaves, captured)
        destinations = self.results.destinations(targets, self._shapes(), state) if targets else {}
        drawn: list[Callable[[], None]] = []
        try:
            self.body.run(state, values, destinations, options.known, drawn, options.streamed)
            if any(state[n].any() for n in self.rec.checks):
                raise OutOfBounds
        except (Mispredict, OutOfBounds):
            _call_all(reversed(drawn))
            raise
        if options.effects:
            for effect in self.rec.effects:
                effect.give(self.body.on_host(state, effect.needs), values)
        else:
            _call_all(reversed(drawn))
        if options.draws is not None:
            options.draws.update({n: state[n] for e in self.breaks if e is not None and e.impure for n in e.gives})
        return self.finished(state, leaves, guarded, arguments)

    def arrays(self, leaves: Sequence[Any], captured: Mapping[str, Array]) -> dict[str, Any]:
        """The inputs by name."""
        found = {**self.constants, **captured, **{n: leaves[k] for n, k in self.guards.arguments.items()}}
        for n in self.guards.complex_inputs:
            if n in found:
                found[complex_argument(n)], found[n] = found[n], self.parts(found[n])
        return found

    def parts(self, array: Any) -> Any:
        """The parts of a complex argument, in its memory."""
        return parts_of(array)

    def finished(self, state: Mapping[str, Any], leaves: Sequence[Any], guarded: GuardValues, arguments: Any) -> Any:
        """Write the arguments that the function changes; return its result. See `Results.finish`."""
        return self.results.finish(guarded[0], state, leaves, arguments)

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shapes and dtypes of the stages that kernels and products compute."""
        shapes = {n: (shape, dtype) for b in self.bounds for n, shape, dtype in b.outputs}
        products = ((e.gives[0], e.product) for e in self.breaks if e is not None and e.product is not None)
        return shapes | {n: (p.shape, p.dtype) for n, p in products}


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for f in functions:
        f()


__all__ = [
    "AS_CALLED",
    "GONE",
    "CompiledSegment",
    "CompiledSegments",
    "Mispredict",
    "OneKernel",
    "OutOfBounds",
    "RunOptions",
    "Variant",
    "WithProducts",
]
