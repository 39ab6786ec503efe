"""A finished trace that runs: kernels, decisions between them, extern calls, and the result.

A trace is cut where it decides on a computed value or calls an extern function. Each segment is one kernel; what a
later segment needs of an earlier one is carried over in memory rather than computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hjit.call.guards import Guards, GuardValues
from hjit.call.results import MISS, PLAIN, Allocation, Results, given_name
from hjit.kernels.runtime.kernel import Bound
from hjit.trace.capture.trace import PyTree, Result, Trace
from hjit.trace.ir.graph import Graph
from hjit.trace.tracing.complex_memory import parts_of
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder
from hjit.trace.tracing.recording.strides import packed
from hjit.trace.tracing.scalars.host import same
from hjit.verify.tolerances import Tolerance, tolerances

if TYPE_CHECKING:
    from hjit.kernels.runtime.scheduled import Scheduled

Array = np.ndarray[Any, Any]
GONE = object()  # an argument that a variant must not keep alive


class Mispredict(Exception):
    """A decision came out otherwise than when this variant was traced."""

    def __init__(self, number: int, value: Any) -> None:
        self.number, self.value = number, value


@dataclass(frozen=True, slots=True)
class Step:
    """One segment: a kernel, and the graph break that ends it (None at the end of the function).

    Attributes:
        origin: gives the canonical Graph, and what the kernel was made of; where that was found on disk, only what asks
            for the Graph makes it.
        unread: of the arrays that the graph break needs, the numbers of those that kernels have computed and that
            nothing reads afterwards.
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
        """What the kernel was made of."""
        return self.origin()[1]


@dataclass(frozen=True, slots=True)
class Steps:
    """Kernels with graph breaks between them.

    Attributes:
        packed: inputs that are read through a copy in C order.
        slots: which entry of the tape a scalar of the kernels is.
        allocations: how results are allocated that are not laid out as their stages.
    """

    steps: list[Step]
    packed: frozenset[str]
    slots: Mapping[str, int]
    allocations: Mapping[str, Allocation] = field(default_factory=dict)

    def run(
        self,
        state: dict[str, Array],
        values: Sequence[Any],
        places: Mapping[str, Array],
        known: Mapping[int, tuple[Any, ...]],
        drawn: list[Callable[[], None]],
        streamed: bool,
    ) -> None:
        """Kernels and graph breaks, in order.

        Args:
            state: arrays by name; those that are computed are added.
            places: arrays of the caller, by stage.
            drawn: takes what puts the random-number streams back that were drawn from.
        """
        for number, step in enumerate(self.steps):
            if step.bound is not None:
                self.run_kernel(step.bound, state, values, places, streamed)
            graph_break = step.graph_break
            if graph_break is None:
                continue
            if graph_break.call is None:
                value = self.on_host(state, graph_break.needs)[0].reshape(())[()]
                if not same(value, graph_break.value):
                    raise Mispredict(number, value)
                continue
            results = known.get(number)
            if graph_break.product is not None and (results is None or graph_break.gives[0] in places):
                results = (
                    self.multiply(
                        graph_break.product, [state[n] for n in graph_break.needs], places.get(graph_break.gives[0])
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
        """How the graph break of this number is computed, in words."""
        graph_break = self.steps[number].graph_break
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
        """What multiplies matrices."""
        return "BLAS"

    def describe_call(self, number: int) -> str:
        """How the extern call of this number is made."""
        return "as it is"

    def call_extern(self, number: int, graph_break: GraphBreak, state: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        """The outcome and the arrays of an extern call."""
        assert graph_break.call is not None
        arrays = self.on_host(state, graph_break.needs)
        given = {"unread": self.steps[number].unread} if graph_break.may_write else {}
        outcome, results, _ = graph_break.call(*arrays, **given)
        return outcome, results

    def on_host(self, state: Mapping[str, Any], names: Sequence[str]) -> list[Array]:
        """Arrays that the host reads."""
        return [state[n] for n in names]

    def multiply(self, product: Product, arrays: Sequence[Any], place: Any) -> Any:
        """A product of matrices by BLAS, into an array of the caller if there is one for it."""
        return product.compute(arrays, place)

    def memory(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for a stage."""
        return self.allocations[name].allocate() if name in self.allocations else np.empty(shape, dtype)

    def run_kernel(
        self, bound: Bound, state: dict[str, Array], values: Sequence[Any], places: Mapping[str, Array], streamed: bool
    ) -> None:
        made = [places[n] if n in places else self.memory(n, shape, dtype) for n, shape, dtype in bound.outputs]
        inputs = [packed(state[n]) if n in self.packed else state[n] for n in bound.inputs]
        given = any(n in places for n, _, _ in bound.outputs)
        if not bound.run(inputs, made, [values[self.slots[n]] for n, _ in bound.scalars], given, streamed):
            raise OutOfBounds
        for (name, _, _), array in zip(bound.outputs, made, strict=True):
            state[name] = array


@dataclass(frozen=True, slots=True)
class OneKernel:
    """The hot path of one kernel whose arguments are arrays and numbers, and whose results are new arrays.

    Attributes:
        tape: of the recorder; None where nothing is worked out from the arguments' numbers.
        values: of the tape, where that is None.
        leaves: which leaf each array is; -1: it is one of `constants`, by its position.
        scalars: the entries of the tape that the kernel takes.
        outputs: shapes and dtypes.
        may_refuse: is the last output whether NumPy is to say what it refuses?
        result: what is returned; see `Results.tree`.
        allocations: how outputs are allocated that are not returned as they are, by position.
        identities: see `Guards`.
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
    allocations: Mapping[int, Allocation]
    identities: Callable[[Sequence[Any]], bool] | None

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result; MISS where a guard does not hold, PLAIN where NumPy is to refuse something."""
        if self.identities is not None and not self.identities(leaves):
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
            return outputs[0] if tree.is_plain else tree.given(outputs[0])
        parts = iter(outputs)
        return tree.build(lambda r: r.given(next(parts)))

    def memory(self) -> list[Array]:
        """Memory for the outputs."""
        allocations = self.allocations
        return [allocations[k].allocate() if k in allocations else np.empty(*x) for k, x in enumerate(self.outputs)]


@dataclass(frozen=True, slots=True)
class WithProducts:
    """The hot path of kernels with products of matrices by BLAS between them; see `OneKernel`."""

    body: Steps
    tape: Any
    constants: Mapping[str, Array]
    arguments: Mapping[str, int]
    results: Results
    identities: Callable[[Sequence[Any]], bool] | None

    def run(self, leaves: Sequence[Any]) -> Any:
        """As `OneKernel.run`."""
        if self.identities is not None and not self.identities(leaves):
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
    """How a run differs from that of a plain call.

    Attributes:
        known: arrays of extern calls that the trace itself made, by the number of the break, used instead of calling
            again.
        effects: give warnings and log records, and leave streams of random numbers where they are then?
        streamed: are targets written past the caches, where there is code that does?
        draws: takes the arrays of random numbers, by input.
    """

    known: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    effects: bool = True
    streamed: bool = False
    draws: dict[str, Array] | None = None


AS_CALLED = RunOptions()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Variant:
    """A trace bound to sizes: what a call with the same arguments' key runs.

    Attributes:
        fast_math: see `hjit.options`; it decides how far results may be from NumPy's.
        constants: arrays of the trace itself, by input.
        fast: the hot path, for a variant that has one: arrays and numbers as arguments; one kernel whose results
            are new arrays, or products between kernels.
        example: how the arguments of the call were put together that it was made for, and these, without the contents
            of arrays; `GONE` in place of other objects than numbers and texts.
        verified_stores: streaming stores (True) or not: those whose results have been compared with NumPy's.
    """

    trace: Trace
    body: Steps
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
    def steps(self) -> list[Step]:
        """Its segments."""
        return self.body.steps

    @property
    def graphs(self) -> list[Graph]:
        """The canonical Graphs of the segments."""
        return [s.graph for s in self.steps]

    @property
    def breaks(self) -> list[GraphBreak | None]:
        """What ends each segment."""
        return [s.graph_break for s in self.steps]

    @property
    def bounds(self) -> list[Bound]:
        """The kernels, in order."""
        return [s.bound for s in self.steps if s.bound is not None]

    @property
    def impure(self) -> bool:
        """Does it call something whose result is new at every call?"""
        return any(e.impure for e in self.rec.breaks)

    @property
    def has_products(self) -> bool:
        """Are there products of matrices that BLAS computes?"""
        return any(e.product is not None for e in self.rec.breaks)

    @property
    def may_stream(self) -> bool:
        """Is there code that writes results past the caches, for arrays of the caller?"""
        return any(b.may_stream for b in self.bounds)

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a comparison with NumPy covers: the kernels, and what is made of their results."""
        products = tuple(e.product.form for e in self.breaks if e is not None and e.product is not None)
        return tuple(b.kernel.name for b in self.bounds), products, *self.results.signature

    def branches_from(self, missed: Variant, miss: Mispredict) -> bool:
        """Did its trace make the decisions of another variant, up to the one that it missed, and that one as now?"""
        at = miss.number
        own, others = self.rec.breaks, missed.rec.breaks
        if len(own) <= at or not same(own[at].value, miss.value):
            return False
        return all(same(a.value, b.value) for a, b in zip(own[:at], others[:at], strict=True))

    @property
    def reference_graphs(self) -> list[Graph]:
        """The canonical Graphs of the segments in NumPy's own order: what results are compared with."""
        return self.graphs

    def tolerances(self) -> dict[str, Tolerance]:
        """How the stages may differ from NumPy's."""
        return tolerances(self.reference_graphs, self.breaks, self.fast_math, reorders_scatters=self.on_device)

    def run(
        self,
        leaves: Sequence[Any],
        guarded: GuardValues,
        targets: Sequence[Any] = (),
        given: Any = None,
        options: RunOptions = AS_CALLED,
    ) -> Any:
        """Run all steps.

        Args:
            guarded: what `Guards.values` gave.
            targets: arrays for the results, used where they fit.
            given: see `Results.put_together`.

        Raises:
            Mispredict: a decision came out otherwise.
            OutOfBounds: NumPy is to run; nothing was written.
        """
        values, captured = guarded
        if any(e.blocked is not None and e.blocked() for e in self.rec.effects):
            raise OutOfBounds
        state = self.arrays(leaves, captured)
        places = self.results.places(targets, self._shapes(), state) if targets else {}
        drawn: list[Callable[[], None]] = []
        try:
            self.body.run(state, values, places, options.known, drawn, options.streamed)
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
        return self.finished(state, leaves, guarded, given)

    def arrays(self, leaves: Sequence[Any], captured: Mapping[str, Array]) -> dict[str, Any]:
        """The inputs by name."""
        found = {**self.constants, **captured, **{n: leaves[k] for n, k in self.guards.arguments.items()}}
        for n in self.guards.complex_inputs:
            if n in found:
                found[given_name(n)], found[n] = found[n], self.parts(found[n])
        return found

    def parts(self, array: Any) -> Any:
        """The parts of a complex argument, in its memory."""
        return parts_of(array)

    def finished(self, state: Mapping[str, Any], leaves: Sequence[Any], guarded: GuardValues, given: Any) -> Any:
        """Write what is to be written; what the function returns. See `Results.finish`."""
        return self.results.finish(guarded[0], state, leaves, given)

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Of the stages that kernels and products compute."""
        shapes = {n: (shape, dtype) for b in self.bounds for n, shape, dtype in b.outputs}
        products = ((e.gives[0], e.product) for e in self.breaks if e is not None and e.product is not None)
        return shapes | {n: (p.shape, p.dtype) for n, p in products}


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for f in functions:
        f()


__all__ = [
    "AS_CALLED",
    "GONE",
    "Mispredict",
    "OneKernel",
    "OutOfBounds",
    "RunOptions",
    "Step",
    "Steps",
    "Variant",
    "WithProducts",
]
