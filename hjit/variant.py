"""A finished trace made runnable: segments of kernels, decisions between them, opaque calls, and the result.

A trace is cut where it decides on a computed value or calls an opaque function. Each segment is one kernel; what a
later segment needs of an earlier one is carried over in memory rather than computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.kernel import Bound
from hjit.options import Options
from hjit.trace.canonical import canonicalise
from hjit.trace.graph import Graph, Input
from hjit.trace.host import same
from hjit.trace.overlay import container_shape
from hjit.trace.poly import ONE, SMALL, Dim, Poly, sizes_value
from hjit.trace.recorder import Event, Recorder, layout
from hjit.trace.trace import Result, Trace, Tree

Array = np.ndarray[Any, Any]

# Ufuncs whose compiled result may differ from NumPy's in the last bits
INEXACT = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh power cbrt""".split()
)


class Mispredict(Exception):
    """A decision came out otherwise than when this variant was traced."""

    def __init__(self, number: int, value: Any, state: dict[str, Array]) -> None:
        self.number, self.value, self.state = number, value, state


class OutOfBounds(Exception):
    """An index was out of bounds: NumPy is to say so itself."""


@dataclass(slots=True)
class Step:
    """One segment: a kernel, then the event that ends it (None at the end of the function)."""

    bound: Bound | None
    event: Event | None


def contiguous_layout(shape: tuple[Poly, ...]) -> tuple[int | None, ...]:
    """`recorder.layout` of an array in C order."""
    found: list[int | None] = []
    step = ONE
    for n in reversed(shape):
        found.insert(0, 0 if n == ONE else step.const if step.is_const and step.const <= SMALL else None)
        step = step * n
    return tuple(found)


def segments(rec: Recorder, goals: Sequence[tuple[str, ...]]) -> list[Graph]:
    """One canonical Graph for each goal; stages that a later one needs are outputs of the first that computes them."""
    whole = rec.graph(())
    reads = {s.name: tuple({x.source for x in s.reads()} - {s.name}) for s in whole.stages}
    carried: dict[str, Input] = {}
    found: list[Graph] = []
    for number, goal in enumerate(goals):
        wanted = tuple(n for n in goal if n in reads and n not in carried)
        graph = _without(whole, carried, wanted)
        made = canonicalise(graph)
        if number + 1 < len(goals):
            later = _ancestors([n for g in goals[number + 1 :] for n in g], reads, carried)
            keep = tuple(s.name for s in made.stages if s.name in later and s.name not in wanted)
            if keep:
                made = canonicalise(replace(graph, outputs=wanted + keep))
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


def result_leaves(result: Any) -> list[Result]:
    """The leaves of a result tree, in order."""
    found: list[Result] = []
    if isinstance(result, Tree):
        result.build(found.append)
    else:
        found.append(result)
    return found


class Variant:
    """A trace bound to sizes: what a call with the same arguments' key runs.

    Attributes:
        written: names of the inputs that the function changes.
        impure: does it call something whose result is new at every call?
        exact: does every operation have NumPy's bits?
        simple: one kernel, and no guards, scalars or captured values.
    """

    def __init__(self, trace: Trace, options: Options) -> None:
        rec = trace.recorder
        self.trace, self.rec, self.options = trace, rec, options
        self.results = result_leaves(trace.result)
        self.writes = trace.writes
        self.written = tuple(name for name, _ in trace.writes)
        self.impure = any(e.impure for e in rec.events)
        final = dict.fromkeys(stage for _, stage in trace.writes)
        final.update(dict.fromkeys(r.name for r in self.results if r.kind in ("array", "view") and r.name in rec.stages))
        goals = [e.needs for e in rec.events] + [tuple(final)]
        self.graphs = segments(rec, goals)
        strides = {n: _element_strides(s.array) for n, s in rec.inputs.items()}
        for g in self.graphs:
            for i in g.inputs:
                if i.name not in strides:
                    strides[i.name] = _c_strides([sizes_value(p, rec.sizes) for p in i.shape])
        events: list[Event | None] = [*rec.events, None]
        self.steps = [Step(Bound(g, options, rec.sizes, strides) if g.outputs else None, e) for g, e in zip(self.graphs, events, strict=True)]
        self.exact = all(_is_exact(g) for g in self.graphs)
        self.slots = {name: slot.k for name, (slot, _) in rec.scalar_slots().items()}
        self.constants = {n: s.array for n, s in rec.inputs.items() if s.where[0] == "constant"}
        self.arguments = {n: s.where[1] for n, s in rec.inputs.items() if s.where[0] == "arg"}
        self.captures = rec.captures
        self.simple = len(self.steps) == 1 and not (self.captures or rec.tape.ops or self.writes) and self._plain_results()
        if self.simple and self.steps[0].bound is not None:
            bound = self.steps[0].bound
            self._leaves = tuple(self.arguments.get(n, -1) for n in bound.inputs)
            self._fixed = {k: self.constants[n] for k, n in enumerate(bound.inputs) if n in self.constants}
            self._bound = bound
        else:
            self.simple = False
        self._drop_trace_arrays()

    def _plain_results(self) -> bool:
        return len(self.results) >= 1 and all(r.kind == "array" for r in self.results) and [r.name for r in self.results] == list(self.graphs[0].outputs)

    def _drop_trace_arrays(self) -> None:
        """A variant must not keep the arrays of the call that made it alive."""
        for name, s in self.rec.inputs.items():
            if s.where[0] in ("arg", "captured", "event"):
                s.array = _like(s.array)
                self.rec.inputs[name] = s
        self.rec.captured.clear()

    @property
    def bounds(self) -> list[Bound]:
        """The kernels, in order."""
        return [s.bound for s in self.steps if s.bound is not None]

    # -- running
    def run_simple(self, leaves: Sequence[Any]) -> Any:
        """The hot path: one kernel, no guards.

        Raises:
            OutOfBounds: an index was out of bounds.
        """
        bound = self._bound
        fixed = self._fixed
        arrays = [fixed[k] if n < 0 else leaves[n] for k, n in enumerate(self._leaves)] if fixed else [leaves[n] for n in self._leaves]
        outputs = [np.empty(shape, dtype) for _, shape, dtype in bound.outputs]
        if not bound.run(arrays, outputs, ()):
            raise OutOfBounds
        tree = self.trace.result
        if type(tree) is Result:
            out = outputs[0]
            return out[()] if tree.is_scalar else out
        parts = iter(outputs)
        return tree.build(lambda r: next(parts)[()] if r.is_scalar else next(parts))

    def guards(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Array]] | None:
        """Values of the tape and the captured arrays, or None where a guard does not hold."""
        values: list[Any] = []
        if self.rec.tape.ops:
            replayed = self.rec.tape.replay(leaves)
            if replayed is None:
                return None
            values = replayed
        arrays: dict[str, Array] = {}
        for path, (kind, expected) in self.captures:
            if path.kind == "leaf":
                value = _from_leaf(path, leaves)
            else:
                try:
                    value = path.get() if _root_kind(path) != "leaf" else _from_leaf(path, leaves)
                except (KeyError, AttributeError, IndexError, TypeError):
                    return None
            if kind == "array":
                source = self.rec.inputs[expected]
                if type(value) is not np.ndarray or not _alike(value, source.array):
                    return None
                if expected in arrays and arrays[expected] is not value:
                    return None
                arrays[expected] = value
            elif kind == "shape":
                if container_shape(value) != expected:
                    return None
            elif kind == "identity":
                if value is not expected and not _same_method(value, expected):
                    return None
            elif not same(value, expected):
                return None
        return values, arrays

    def run(self, leaves: Sequence[Any], values: list[Any], captured: dict[str, Array], outputs: dict[str, Array] | None = None,
            start: int = 0, state: dict[str, Array] | None = None, events: dict[int, tuple[Any, ...]] | None = None) -> Any:
        """Run all steps from `start` on.

        Args:
            values: the tape.
            captured: arrays that the function captures, by input.
            outputs: arrays to compute stages into, by stage.
            state: arrays of earlier steps.
            events: results of opaque calls that the trace itself made, used instead of calling again.

        Raises:
            Mispredict: a decision came out otherwise.
            OutOfBounds: an index was out of bounds; nothing was written.
        """
        if state is None:
            state = {**self.constants, **captured, **{n: leaves[k] for n, k in self.arguments.items()}}
        for number in range(start, len(self.steps)):
            step = self.steps[number]
            if step.bound is not None:
                self._run_kernel(step.bound, state, values, outputs or {})
            event = step.event
            if event is None:
                continue
            if event.call is None:
                value = state[event.needs[0]].reshape(())[()]
                if not same(value, event.value):
                    raise Mispredict(number, value, state)
                continue
            given = None if events is None else events.get(number)
            results = event.call(*(state[n] for n in event.needs)) if given is None else given
            for name, r in zip(event.gives, results, strict=True):
                r = np.asarray(r)
                if not _alike(r, self.rec.inputs[name].array):
                    raise Mispredict(number, (r.shape, r.dtype), state)
                state[name] = r
        return self._finish(leaves, values, state)

    def _run_kernel(self, bound: Bound, state: dict[str, Array], values: list[Any], outputs: dict[str, Array]) -> None:
        made = [outputs.get(n) if n in outputs else np.empty(shape, dtype) for n, shape, dtype in bound.outputs]
        scalars = [values[self.slots[n]] for n, _ in bound.scalars]
        if not bound.run([state[n] for n in bound.inputs], made, scalars):  # type: ignore[arg-type]
            raise OutOfBounds
        for (name, _, _), array in zip(bound.outputs, made, strict=True):
            state[name] = array  # type: ignore[assignment]

    def _finish(self, leaves: Sequence[Any], values: list[Any], state: dict[str, Array]) -> Any:
        for argument, stage in self.writes:
            np.copyto(state[argument], state[stage])

        def leaf(r: Result) -> Any:
            match r.kind:
                case "array":
                    array = state[r.name]
                case "constant":
                    array = r.value.copy()
                case "argument":
                    return state[r.name]
                case "view":
                    return self._view(state[r.name], r)
                case "host":
                    return values[r.value]
                case _:
                    return r.value
            return array[()] if r.is_scalar else array

        tree = self.trace.result
        return tree.build(leaf) if isinstance(tree, Tree) else leaf(tree)

    def _view(self, base: Array, r: Result) -> Array:
        """The NumPy view that an index map describes."""
        sizes = self.rec.sizes
        shape = tuple(sizes_value(p, sizes) for p in r.shape)
        if base.size == 0 or 0 in shape:
            return np.empty(shape, base.dtype)
        corner: list[slice] = []
        steps = [0] * len(shape)
        for p, stride in zip(r.index, base.strides, strict=True):
            at = p.const
            for m, c in p.terms.items():
                if isinstance(m[0], Dim):
                    steps[m[0].k] += c * stride
                else:
                    at += sizes_value(Poly({m: c}, 0), sizes)
            corner.append(slice(at, at + 1))
        return np.lib.stride_tricks.as_strided(base[(*corner, ...)], shape, tuple(steps))


def _from_leaf(path: Any, leaves: Sequence[Any]) -> Any:
    """A captured value that starts at an argument of this call."""
    if path.kind == "leaf":
        return leaves[path.name]
    base = _from_leaf(path.base, leaves)
    return base[path.name] if path.kind == "item" else getattr(base, path.name)


def _root_kind(path: Any) -> str:
    while type(path.base) is type(path):
        path = path.base
    return str(path.kind)


def _same_method(a: Any, b: Any) -> bool:
    """Bound methods are made anew at each look-up."""
    return hasattr(a, "__func__") and hasattr(b, "__func__") and a.__func__ is b.__func__ and a.__self__ is b.__self__


def _alike(a: Array, b: Array) -> bool:
    """Do two arrays look the same to a kernel?"""
    return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides


def _like(a: Array) -> Array:
    """An array of the same dtype, shape and strides without memory of its own."""
    probe = np.zeros(1, a.dtype)
    shaped = np.lib.stride_tricks.as_strided(probe, a.shape, a.strides)
    shaped.flags.writeable = False
    return shaped


def _element_strides(a: Array) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def _c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    steps: list[int] = []
    step = 1
    for n in reversed(shape):
        steps.insert(0, step)
        step *= n
    return tuple(steps)


def _is_exact(g: Graph) -> bool:
    from hjit.trace.graph import Op, walk

    for s in g.stages:
        for d in s.definitions:
            if d.order in ("add", "multiply") and s.dtype.kind == "f":
                return False
            if d.order == "sequential" and d.rdims and s.dtype.kind == "f":
                return False
            if any(isinstance(e, Op) and e.name in INEXACT for e in walk(d.value)):
                return False
    return True


Evaluate = Callable[[Recorder, tuple[str, ...]], list[Array]]

__all__ = ["Mispredict", "OutOfBounds", "Variant", "layout", "result_leaves", "segments"]
