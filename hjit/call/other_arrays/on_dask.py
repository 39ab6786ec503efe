"""Calls with arrays of Dask: lazy arrays as results, whose chunks compiled kernels compute.

The function is traced for the shape of the whole image, on arrays without memory. What it decides on (``if img.max() >
1``) is computed at the call, as Dask itself does with conditions. What cannot be traced runs as the plain function
does on arrays of Dask.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from hjit.call.arguments import is_dask_array, leaf_names, leaves_of
from hjit.chunks.extern_calls import ExternCall, Slot, as_complex, as_parts, described, extern_arrays, known_result
from hjit.chunks.native import task
from hjit.chunks.tasks import Tasks
from hjit.errors import TraceError
from hjit.options import Options
from hjit.process.deep_stack import with_deep_stack
from hjit.trace.capture.captured import without_memory
from hjit.trace.capture.trace import PyTree, Result, Trace, trace
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import Graph, Input, Stage
from hjit.trace.ir.poly import poly, sizes_value
from hjit.trace.tracing.recording.events import FilledArguments
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.recorder import MAX_CONSTANT, Recorder, TracingOptions
from hjit.trace.tracing.recording.results import ExternResult
from hjit.tuning.choice import Scheduler

MAX_EAGER_ELEMENTS = 1 << 16  # elements that a function may decide on, or hand to an extern call
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How calls run: what is to be known of a pipeline.

    Attributes:
        pipeline: for tasks that run the whole function.
        warn: gives a warning, if the pipeline has given none.
    """

    pipeline: Any
    name: str
    function: Any
    options: Options
    scheduler: Scheduler | None
    warn: Callable[[str], None]


@dataclass(slots=True)
class DaskCall:
    """One call, traced.

    Attributes:
        tasks: what computes its results; None where a single task runs the function on whole arrays, `why`.
        externs: what is said of functions that run as they are, in tasks of their own.
    """

    settings: CallSettings
    structure: PyTree
    leaves: list[Any]
    traced: Trace
    tasks: Tasks | None
    why: str = ""
    externs: tuple[str, ...] = ()

    def results(self) -> Any:
        """What the function returns, lazily; arguments that it writes are changed."""
        rec = self.traced.recorder
        found = self._whole() if self.tasks is None else self.tasks.outputs()
        values: Sequence[Any] = rec.tape.replay(self.leaves) or ()
        for name, stage in self.traced.writes:
            self._argument(name)[...] = found[stage]
        numbers = itertools.count()

        def leaf(r: Result) -> Any:
            number = next(numbers)
            match r.kind:
                case "array":
                    return _returned(found[r.name], r)
                case "view":
                    return _returned(found[_view(number)], r)
                case "argument":
                    return self._argument(r.name)
                case "constant":
                    return r.returned(r.value.copy("K"))
                case "host":
                    return values[r.value]
                case _:
                    return r.value

        result = self.traced.result
        return result.build(leaf) if isinstance(result, PyTree) else leaf(result)

    def _argument(self, name: str) -> Any:
        return self.leaves[self.traced.recorder.inputs[name].where[1]]

    def _whole(self) -> dict[str, Any]:
        """The arrays of a task that runs the function on whole arrays."""
        sizes = self.traced.recorder.sizes
        positions = [k for k, x in enumerate(self.leaves) if is_dask_array(x)]
        arrays = [self.leaves[k].rechunk(-1) for k in positions]
        others = [None if is_dask_array(x) else x for x in self.leaves]
        call = WholeCall(self.settings.pipeline, self.structure, others, positions)
        name = self.settings.name
        key = f"{name}-whole-{tokenize([a.name for a in arrays], name, others, self.structure)}"
        blocks = [(a.name, *(0,) * a.ndim) for a in arrays]
        layer: dict[Any, Any] = {key: task(key, run_whole, (call,), blocks)}
        graph = HighLevelGraph.from_collections(key, layer, arrays)
        stages = {s.name: s for s in _with_views(self.traced).stages}
        found = {}
        for k, (number, r) in enumerate(self._arrays()):
            stage = stages[_view(number) if r.kind == "view" else r.name]
            shape = tuple(sizes_value(p, sizes) for p in stage.shape)
            if r.order:
                shape = tuple(shape[axis] for axis in r.order)
            own = f"{key}-{k}"
            at = (own, *(0,) * len(shape))
            layers: dict[str, Any] = {**graph.layers, own: {at: task(at, pick, (number,), (key,))}}
            dependencies = {**graph.dependencies, own: {key}}
            a = da.Array(HighLevelGraph(layers, dependencies), own, tuple((n,) for n in shape), dtype=stage.dtype)
            found[stage.name] = a.transpose(np.argsort(r.order)) if r.order else a
        return found

    def _arrays(self) -> list[tuple[int, Result]]:
        """The results that are computed, with their numbers."""
        return [(k, r) for k, r in enumerate(self.traced.results) if r.kind in ("array", "view")]


@dataclass(frozen=True)
class WholeCall:
    """A call on whole arrays: a pipeline, and its arguments but for those of `positions`."""

    pipeline: Any
    structure: PyTree
    leaves: list[Any]
    positions: list[int]


def run_whole(call: WholeCall, *arrays: Array) -> list[Any]:
    """The results of a function, as a list."""
    leaves = list(call.leaves)
    for k, a in zip(call.positions, arrays, strict=True):
        leaves[k] = np.asarray(a)
    args, kwargs = call.structure.build(leaves.__getitem__)
    return leaves_of(call.pipeline(*args, **kwargs))


def pick(k: int, results: list[Any]) -> Array:
    """One of several results, a complex one as its parts."""
    return as_parts(np.asarray(results[k]))


def _returned(array: Any, r: Result) -> Any:
    """The computed array as what the function returns: itself, transposed, or the complex one that has these parts."""
    array = array.transpose(r.order) if r.order else array
    if not r.is_complex:
        return array
    dtype = np.result_type(array.dtype, np.complex64)
    return array.rechunk({array.ndim - 1: -1}).map_blocks(as_complex, dtype=dtype, drop_axis=array.ndim - 1)


def traced_call(settings: CallSettings, structure: PyTree, leaves: list[Any]) -> DaskCall:
    """A call with arrays of Dask, of which nothing is computed yet but what the function decides on.

    Raises:
        TraceError: it cannot be traced.
        Exception: what the function itself raises.
    """
    seen = [_stand_in(x) if is_dask_array(x) else x for x in leaves]
    arrays = CallArrays(settings, leaves)
    names = leaf_names(settings.function, structure, len(leaves))
    options = TracingOptions(arrays.computed, blas=lambda name: "auto", postpone=arrays, speculate=False)
    traced: Trace = with_deep_stack(lambda: trace(settings.function, structure, seen, names, options, leaves))
    rec = traced.recorder
    rec.externs.roll_back()
    if any(e.impure for e in rec.breaks):
        raise TraceError("numpy.random", "random numbers would be the same for all chunks", "draw them with Dask")
    for name, _ in traced.writes:
        where = rec.inputs[name].where
        if where[0] != "arg" or not is_dask_array(leaves[where[1]]):
            raise TraceError(name, "an array that is not Dask's is changed", "return the new array instead")
    why = ""
    if rec.checks:
        why = "NumPy refuses some values, which is only known of all of them"
    elif rec.effects:
        why = "it gives warnings, or writes a log"
    if why and not traced.writes and arrays.are_all_postponed(rec):
        return DaskCall(settings, structure, leaves, traced, None, why)
    if why:
        raise TraceError(settings.name, why, "call it on whole arrays")
    graph = _with_views(traced)
    return DaskCall(settings, structure, leaves, traced, arrays.tasks(rec, graph), externs=arrays.lines(rec))


def explained(settings: CallSettings, structure: PyTree, leaves: list[Any]) -> str:
    """How a call would run."""
    try:
        call = traced_call(settings, structure, leaves)
    except Exception as error:
        return f"{settings.name} runs as the plain function does on arrays of Dask: {error}"
    if call.tasks is None:
        return f"{settings.name} runs on whole arrays, in one task of Dask: {call.why}"
    lines = (*call.externs, *call.tasks.lines())
    return "\n".join([f"{settings.name} runs in tasks of Dask:", *(f"  {line}" for line in lines)])


def _with_known(rec: Recorder, graph: Graph) -> Graph:
    """The Graph with the small arrays that the function has made of sizes, which are those of one image: what chunks
    read at their elements is known then."""

    def known(x: Input) -> Input:
        source = rec.inputs[x.name]
        if x.data is not None or source.where != ("constant",) or source.array.size > MAX_CONSTANT:
            return x
        return replace(x, shape=tuple(map(poly, source.array.shape)), data=source.array.tobytes())

    return replace(graph, inputs=tuple(map(known, graph.inputs)))


def _view(number: int) -> str:
    """The stage that a result is computed as which is a view for NumPy."""
    return f"result-{number}"


def _with_views(traced: Trace) -> Graph:
    """The Graph of what is written and returned; views as stages of their own.

    Raises:
        TraceError: a view of another dtype.
    """
    rec = traced.recorder
    written = dict(traced.writes)
    graph = rec.graph(traced.goals[-1])
    views = []
    outputs = [stage for _, stage in traced.writes]
    for number, r in enumerate(traced.results):
        if r.kind == "array":
            outputs.append(r.name)
        elif r.kind == "view":
            if r.dtype is not None:
                raise TraceError("view", "bytes as another dtype", "return a copy of it")
            source = written.get(r.name, r.name)
            dtype = graph.dtypes[source]
            views.append(Stage(_view(number), dtype, r.shape, Load(source, r.index, dtype)))
            outputs.append(_view(number))
    return Graph(graph.inputs, graph.scalars, (*graph.stages, *views), tuple(dict.fromkeys(outputs)))


class CallArrays:
    """The arrays of one call: its arguments, and the results of functions that run as they are."""

    def __init__(self, settings: CallSettings, leaves: Sequence[Any]) -> None:
        self.settings, self.leaves = settings, leaves
        self._postponed: dict[tuple[Recorder, int], list[Any]] = {}  # by the number of the graph break
        self._said: dict[tuple[Recorder, int], str] = {}

    def arrays(self, rec: Recorder) -> Mapping[str, Any]:
        """Arrays of Dask for all inputs but small constants: arguments as they are, and others in one chunk."""
        return {name: self._array(rec, name) for name, source in rec.inputs.items() if source.input.data is None}

    def _array(self, rec: Recorder, name: str) -> Any:
        source = rec.inputs[name]
        kind, *place = source.where
        if kind == "event" and (rec, place[0]) in self._postponed:
            return self._postponed[rec, place[0]][place[1]]
        x: Any = self.leaves[place[0]] if kind == "arg" else source.array
        if not is_dask_array(x):
            return da.from_array(as_parts(np.asarray(x)), chunks=-1)
        if x.dtype.kind != "c":
            return x
        return x.map_blocks(as_parts, dtype=source.input.dtype, chunks=(*x.chunks, (2,)), new_axis=x.ndim)

    def tasks(self, rec: Recorder, graph: Graph) -> Tasks:
        """What computes a Graph."""
        settings = self.settings
        values = rec.tape.replay(self.leaves) or ()
        scalars = {name: values[slot.k] for name, (slot, _) in rec.scalars.slots().items() if slot.k < len(values)}
        graph = _with_known(rec, graph)
        known = {x.name for x in graph.inputs if x.data is not None}
        arrays = {name: x for name, x in self.arrays(rec).items() if name not in known}
        found: Tasks = with_deep_stack(
            lambda: Tasks(settings.name, graph, rec.sizes, arrays, scalars, settings.options, settings.scheduler)
        )
        return found

    def _of(self, rec: Recorder, names: Sequence[str]) -> list[Any]:
        """Inputs and stages of an unfinished trace."""
        stages = tuple(dict.fromkeys(n for n in names if n in rec.stages))
        found = self.tasks(rec, rec.graph(stages)).outputs() if stages else {}
        return [found[n] if n in rec.stages else self._array(rec, n) for n in names]

    def computed(self, rec: Recorder, wanted: tuple[str, ...]) -> list[Array]:
        """Small arrays of an unfinished trace, which the function decides on: they are computed now.

        Raises:
            TraceError: they are not small.
        """
        for n in wanted:
            shape = rec.stages[n].shape if n in rec.stages else rec.inputs[n].input.shape
            if math.prod(sizes_value(p, rec.sizes) for p in shape) > MAX_EAGER_ELEMENTS:
                raise rec.error("Dask", "whole arrays are computed for a call of what hjit does not know")
        name = self.settings.name
        self.settings.warn(
            f"{name} decides on values of Dask's arrays (if, bool, int, round, or a text of one): they are computed at "
            "the call, and what follows from them is lazy again"
        )
        return [np.asarray(x) for x in da.compute(*self._of(rec, wanted))]

    # -- functions that run as they are
    def extern(
        self, rec: Recorder, operation: str, function: Any, needs: tuple[str, ...], arguments: FilledArguments
    ) -> ExternResult | None:
        """What stands for the result of such a function, where its shape is known: tasks call it.

        None: it is to be called now.
        """
        slots: dict[tuple[int, tuple[int, ...]], Slot] = {}  # by the need and its shape in memory

        def slot(k: int, shape: tuple[int, ...], is_complex: bool) -> Slot:
            return slots.setdefault((k, shape), Slot(len(slots), shape[: len(shape) - is_complex], is_complex))

        args, kwargs = arguments(slot)
        call = ExternCall(operation, function, args, kwargs)
        arrays: dict[str, Input | Stage] = {**{n: x.input for n, x in rec.inputs.items()}, **rec.stages}
        dtypes = [arrays[needs[k]].dtype for k, _ in slots]
        known = known_result(call, list(zip(slots.values(), dtypes, strict=True)))
        if known is None:
            return None
        found = self._of(rec, [needs[k] for k, _ in slots])
        given = [a if a.shape == shape else a.reshape(shape) for a, (_, shape) in zip(found, slots, strict=True)]
        found = extern_arrays(call, known, given)
        key = rec, len(rec.breaks)
        self._postponed[key] = found
        self._said[key] = described(call, known, found[0])
        first, *others = (_without_memory(a.shape, a.dtype) for a in found)
        kind = "complex" if known.dtype.kind == "c" else "array"
        outcome: tuple[Any, ...] = (kind, 0, known.dtype, known.shape, first.strides)
        if others:
            outcome = ("items", tuple, None, outcome, ("int", 1))
        return ExternResult(outcome, (first, *others))

    def product(self, rec: Recorder, product: Product) -> Array:
        """What stands for a product of matrices of floats, which Dask and BLAS compute: pieces along what is summed up,
        put together in a tree."""
        arrays = self._of(rec, product.needs)
        found = da.matmul(product.first.of(arrays[0]), product.second.of(arrays[-1]))
        if found.shape != product.shape:
            found = found.reshape(product.shape)
        key = rec, len(rec.breaks)
        self._postponed[key] = [found]
        self._said[key] = f"a product by Dask and BLAS, in {found.npartitions} chunks"
        return _without_memory(product.shape, product.dtype)

    def are_all_postponed(self, rec: Recorder) -> bool:
        """Has nothing been computed for the trace?"""
        return all((rec, number) in self._postponed for number in range(len(rec.breaks)))

    def lines(self, rec: Recorder) -> tuple[str, ...]:
        """What is said of these functions."""
        return tuple(text for (other, _), text in self._said.items() if other is rec)


def _stand_in(x: Any) -> Array:
    """What a function is traced on: an array without memory, in C order.

    Raises:
        TraceError: it is not known how long the chunks are, or they are no arrays of NumPy.
    """
    if any(np.isnan(n) for n in x.shape):
        raise TraceError("Dask", "chunks of unknown lengths", "call its compute_chunk_sizes() before")
    if type(x._meta) is not np.ndarray:
        raise TraceError("Dask", f"chunks of {type(x._meta).__name__}", "use map_blocks")
    return _without_memory(x.shape, x.dtype)


def _without_memory(shape: tuple[int, ...], dtype: Any) -> Array:
    strides = [dtype.itemsize * n for n in itertools.accumulate((1, *shape[:0:-1]), lambda a, b: a * max(b, 1))]
    return without_memory(SimpleNamespace(shape=shape, dtype=dtype, strides=tuple(reversed(strides[: len(shape)]))))
