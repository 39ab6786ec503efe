"""Making a `Description` from a trace and its kernel; and what in a trace needs Python at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.errors import Origin
from hjit.export.description import CannotExport, Description, Output, Parameter, Scratch, View
from hjit.export.numbers import kind_of, numbers_of
from hjit.export.sizes import PolymorphicTrace, is_constant
from hjit.kernels.runtime.lowered import Lowered
from hjit.kernels.runtime.scratch import live_ranges_of
from hjit.sched.language.memory import LINE
from hjit.trace.capture.trace import PyTree, Result, Trace
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import Graph, identity
from hjit.trace.ir.poly import ONE, Dim, Poly, Sym, extremum, poly
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.scalars.host import is_run_time


def check(trace: Trace) -> None:
    """Does a trace need no Python when it runs?

    Raises:
        CannotExport: it does.
    """
    rec = trace.recorder
    for e in rec.breaks:
        if e.call is None and is_constant(rec, e.needs):
            continue
        if e.impure:
            raise CannotExport(
                f"{e.operation}: random numbers are drawn by NumPy", "pass them as an argument", e.origin
            )
        if e.call is None:
            raise CannotExport(
                "a Python decision on a computed value (if, while, float() or int() of an array's elements)",
                "write it as np.where, or compute the value before the call and pass it",
                e.origin,
            )
        raise CannotExport(
            f"{e.operation} is called as it is, by Python",
            "export what comes before and after it as two functions",
            e.origin,
        )
    for effect in rec.effects:
        raise CannotExport("a warning or a log record is given", "give it where the function is called", effect.origin)
    for name, source in rec.inputs.items():
        if source.is_complex:
            raise CannotExport(f"{name} is complex", "pass its real and imaginary parts as two arrays", rec.origin)
        if source.packed:
            raise CannotExport(
                f"{name} is a field of a structured array", "pass a copy of it, an array of its own", rec.origin
            )
    for r in trace.results:
        _check_result(r, rec.origin)


def _check_result(r: Result, origin: Origin | None) -> None:
    if r.is_complex:
        raise CannotExport("a result is complex", "return its real and imaginary parts", origin)
    if r.kind in ("compacted", "list"):
        raise CannotExport("the length of a result depends on the image's values", "return the mask, too", origin)
    if r.kind == "host" or (r.kind == "static" and r.value is not None):
        raise CannotExport("a result is a number that is computed of no array", "leave it out", origin)


def described(
    name: str,
    entry: str,
    polymorphic: PolymorphicTrace,
    graph: Graph,
    low: Lowered,
    leaves: Sequence[Any],
    names: Sequence[str],
) -> Description:
    """A function whose only kernel is `low`.

    Args:
        leaves: the arguments.
        names: theirs.

    Raises:
        HjitError: a number is worked out that only Python can.
    """
    trace, rec, over = polymorphic.trace, polymorphic.trace.recorder, polymorphic.of_arguments
    writes = dict(trace.writes)
    leaf_of = {n: s.where[1] for n, s in rec.inputs.items() if s.where[0] == "arg"}
    written = {leaf_of[n] for n in writes if n in leaf_of}
    if len(written) < len(writes):
        raise CannotExport("an array is changed that is no argument", "pass it as an argument", rec.origin)
    inputs: list[tuple[str, int]] = []
    data: list[np.ndarray[Any, Any]] = []
    for i in graph.inputs:
        if i.data is None and i.name in leaf_of:
            inputs.append(("leaf", leaf_of[i.name]))
        elif i.data is None:
            inputs.append(("data", len(data)))
            data.append(_in_c_order(i.name, rec.inputs[i.name].array))
    position = {i.name: k for k, i in enumerate(i for i in graph.inputs if i.data is None)}
    slots = {n: slot.k for n, (slot, _) in rec.scalars.slots().items()}
    views: list[View] = []
    result = _result_of(polymorphic, graph, leaf_of, views)
    return Description(
        name,
        entry,
        str(rec.origin or ""),
        _parameters(polymorphic, leaves, names, leaf_of, written),
        None,
        result,
        polymorphic.names,
        polymorphic.size_guards,
        tuple(inputs),
        tuple(data),
        tuple(_outputs(polymorphic, graph, leaf_of)),
        tuple(_scratch(graph, low, over)),
        tuple([*low.params.scratch].index(n) for n in low.params.tasks),
        tuple((position[n], axis) for n, axis in low.params.strides),
        tuple(over(poly(Sym(n))) for n in low.params.symbols),
        len(low.params.keep),
        tuple((s.dtype.str, slots[s.name]) for s in graph.scalars),
        numbers_of(rec.tape, leaves, [slots[s.name] for s in graph.scalars], over, polymorphic.is_fixed),
        tuple(_lengths(graph, over)),
        {graph.outputs.index(r.name): r.weak for r in trace.results if r.kind == "array" and r.is_scalar},
        tuple(views),
    )


def _parameters(
    polymorphic: PolymorphicTrace,
    leaves: Sequence[Any],
    names: Sequence[str],
    leaf_of: Mapping[str, int],
    written: set[int],
) -> tuple[Parameter, ...]:
    rec = polymorphic.trace.recorder
    arrays = {k: rec.inputs[n].input for n, k in leaf_of.items()}
    found = []
    for k, (x, name) in enumerate(zip(leaves, _distinct(names), strict=True)):
        if k in arrays:
            i = arrays[k]
            found.append(Parameter(name, "array", i.dtype.str, i.shape, i.layout, k in written))
        elif is_run_time(x):
            found.append(Parameter(name, "number", kind_of(x)))
        else:
            found.append(Parameter(name, "static", value=x))
    return tuple(found)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of parameters; the elements of a list are numbered."""
    return [n if names.count(n) == 1 else f"{n}{list(names[:k]).count(n)}" for k, n in enumerate(names)]


def _in_c_order(name: str, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A captured array, as it is now."""
    if not a.flags.c_contiguous:
        raise CannotExport(f"the captured array {name} is not in C order", "make it so: np.ascontiguousarray")
    return a.copy()


def _result_of(polymorphic: PolymorphicTrace, graph: Graph, leaf_of: Mapping[str, int], views: list[View]) -> Any:
    """The structure of what is returned; `views` takes the views."""

    def leaf(r: Result) -> Any:
        match r.kind:
            case "array":
                return "output", graph.outputs.index(r.name)
            case "argument":
                return "argument", leaf_of[r.name]
            case "view":
                views.append(_view(r, polymorphic, graph, leaf_of))
                return "view", len(views) - 1
            case "constant":
                raise CannotExport("a result depends on no argument", "leave it out")
        return "static", r.value

    tree = polymorphic.trace.result
    return mapped(tree, leaf) if isinstance(tree, PyTree) else leaf(tree)


def _view(r: Result, polymorphic: PolymorphicTrace, graph: Graph, leaf_of: Mapping[str, int]) -> View:
    """As `Results.view` has it."""
    if r.name not in leaf_of and r.name not in graph.outputs:
        raise CannotExport(
            f"a result is a view of {r.name}, which is no argument", "copy it", polymorphic.trace.recorder.origin
        )

    def at(k: int) -> tuple[Poly, ...]:
        """The index where dimension `k` is 1 and the others are 0."""
        there = (p.substitute(lambda a: int(a.k == k) if isinstance(a, Dim) else None) for p in r.index)
        return tuple(map(polymorphic.of_arguments, there))

    start = at(-1)
    steps = tuple(tuple(p - q for p, q in zip(at(k), start, strict=True)) for k in range(len(r.shape)))
    base = ("argument", leaf_of[r.name]) if r.name in leaf_of else ("output", graph.outputs.index(r.name))
    dtype = _dtype_of(polymorphic.trace.recorder, r.name) if r.dtype is None else np.dtype(r.dtype)
    return View(base, dtype.str, tuple(map(polymorphic.of_arguments, r.shape)), start, steps, r.read_only)


def with_copies(trace: Trace, views: bool) -> Trace:
    """The trace whose results are computed where they are constants; and `views`: in C nothing shares memory."""
    rec, written = trace.recorder, dict(trace.writes)

    def copied(r: Result) -> Result:
        if r.kind == "constant" and not r.is_complex and r.value.flags.c_contiguous:
            i = rec.constant(r.value).input
            made = rec.stage(Load(i.name, identity(len(i.shape)), i.dtype), i.shape, i.dtype)
            return Result("array", made.name, is_scalar=r.is_scalar, weak=r.weak)
        source = written.get(r.name, r.name)
        if not views or r.kind != "view" or r.is_complex or (r.dtype is not None and r.dtype != _dtype_of(rec, source)):
            return r
        stage = rec.stage(Load(source, r.index, _dtype_of(rec, source)), r.shape, _dtype_of(rec, source))
        return Result("array", stage.name)

    result = mapped(trace.result, copied) if isinstance(trace.result, PyTree) else copied(trace.result)
    return replace(trace, result=result)


def _dtype_of(rec: Recorder, name: str) -> np.dtype[Any]:
    return rec.stages[name].dtype if name in rec.stages else rec.inputs[name].input.dtype


def mapped(tree: PyTree, leaf: Any) -> PyTree:
    """The same structure over ``leaf(item)``, as a `PyTree`."""
    items = tuple(mapped(x, leaf) if type(x) is PyTree else leaf(x) for x in tree.items)
    return PyTree(tree.make, items, tree.keys)


def _outputs(polymorphic: PolymorphicTrace, graph: Graph, leaf_of: Mapping[str, int]) -> Iterable[Output]:
    """The Graph's, each with what becomes of it."""
    rec, trace = polymorphic.trace.recorder, polymorphic.trace
    orders = {r.name: r.order for r in trace.results if r.kind == "array"}
    writes = {stage: leaf_of[n] for n, stage in trace.writes}
    for n in graph.outputs:
        s = graph.stage(n)
        shape = tuple(map(polymorphic.of_arguments, s.shape))
        if n in orders and n in writes:
            raise CannotExport("a result is also what an argument becomes", "return a copy of it", rec.origin)
        if n in orders:
            yield Output(s.dtype.str, shape, orders[n] or tuple(range(len(shape))), "result")
        elif n in writes:
            yield Output(s.dtype.str, shape, tuple(range(len(shape))), "written", writes[n])
        else:
            yield Output(s.dtype.str, shape, (), "check" if n in rec.checks else "base")


def _scratch(graph: Graph, low: Lowered, over: Any) -> Iterable[Scratch]:
    """As `kernel.Bound` has it."""
    program, params = low.program, low.params
    live_ranges = live_ranges_of(graph, program)
    buffers = {n: b.layout.lengths(b.lengths) for n, b in program.buffers.items()}
    for n in params.scratch:
        s = graph.stage(n)
        if n in buffers:
            lengths = [extremum("max", over(p), ONE) for p in buffers[n]]
        else:
            layout = program.layouts.get(n)
            align = (layout.align if layout is not None else ()) or [1] * len(s.shape)
            lengths = [over((p + (a - 1)) // a * a) for p, a in zip(s.shape, align, strict=True)]
        yield Scratch(s.dtype.itemsize, tuple(lengths), live_ranges.get(n), n in params.tasks)


def _lengths(graph: Graph, over: Any) -> Iterable[Poly]:
    """What `are_small` looks at, but for inputs."""
    for s in graph.stages:
        total = ONE
        for k, p in enumerate(s.shape):
            total = total * (over(p) + LINE * (k == len(s.shape) - 1))
        if not total.is_const:
            yield total
