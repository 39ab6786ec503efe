"""From a new key of arguments to a `Variant`. `build` and `compiled` read as the list of steps:

trace         run the Python function on tracers                 `hjit.trace.capture`
look up       kernels stored for an identical trace              `hjit.call.stored.kernels`
canonicalise  named rewrites of the Graph of each segment        `hjit.call.segments`, `hjit.trace.passes`
autotune      if ``tune="autotune"``, and not done before        `hjit.call.tuning.kernels`, `hjit.tuning.autotune`
look up       a schedule stored on disk                          `hjit.tuning.decide`, `hjit.tuning.plans`
search        if there is none                                   `hjit.tuning.autoschedule`
lower, emit   or load the kernel, from disk or this process      `hjit.kernels.runtime.bind`
tune          time the candidates, keep the fastest              `hjit.tuning.candidates`
bind          kernels, graph breaks and results to a `Variant`   this module
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hjit.call.arguments import is_device_array, leaf_names
from hjit.call.guards import Guards, guards_of, look_up
from hjit.call.interpreted import Interpretation, InterpretedStages
from hjit.call.results import Results, allocations, is_tree
from hjit.call.scratch_allocation import scratch_allocations
from hjit.call.stored import verdicts
from hjit.call.stored.kernels import StoredKernels, entry_of
from hjit.call.variant import (
    GONE,
    CompiledSegment,
    CompiledSegments,
    Mispredict,
    OneKernel,
    OutOfBounds,
    Variant,
    WithProducts,
)
from hjit.errors import BudgetError, CompileError, HjitError, MemoryShortage, Origin, TraceError, raise_if_signalled
from hjit.kernels.runtime import kernel
from hjit.kernels.runtime.machine_code import is_busy
from hjit.options import Options
from hjit.process import deadline
from hjit.process.deep_stack import with_deep_stack
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.trace import PyTree, Trace, python_function, trace
from hjit.trace.ir.programs.steps import Program
from hjit.trace.tracing.recording.events import ExpectedOutcome
from hjit.trace.tracing.recording.recorder import CompileLoops, Recorder, RunLoops, TracingOptions
from hjit.trace.tracing.recording.state.known_values import Speculated
from hjit.trace.tracing.recording.strides import packed
from hjit.trace.tracing.scalars.host import is_run_time

if TYPE_CHECKING:
    from hjit.kernels.runtime.kernel import Bound
    from hjit.tuning.autotune import Tuned
    from hjit.tuning.choice import Arguments, Candidate, Choice, Scheduler, Segments

log = logging.getLogger("hjit")
T = TypeVar("T")
Array = np.ndarray[Any, Any]


class TracingFailed(Exception):
    """Tracing raised `error`: one that the function itself raises, or a fault of hjit. The function has had no effects
    yet."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class Built:
    """The result of `build`.

    Attributes:
        variant: serves calls with the key.
        results: of the extern calls that tracing made, by the number of the graph break: the first run need not make
            them again.
        compiled, loaded: how many kernels are new, and how many came from the disk cache.
        verified: the stored verdict of an earlier process that compared results with NumPy's, or None.
        tuned: the result of tuning, or None.
    """

    variant: Variant
    results: dict[int, tuple[Any, ...]]
    compiled: int
    loaded: int
    verified: verdicts.Kept | None = None
    tuned: Tuned | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A function to be traced and compiled for some arguments.

    Attributes:
        structure: of the arguments, as a `PyTree` over the numbers of `leaves`.
        leaves: the arguments, flattened.
        scheduler: the user's schedule, or None.
        interprets: may conditions be evaluated by NumPy while the function is traced? If not, by kernels.
        expected: outcomes of conditions that are assumed instead of evaluated.
        fill: the numbers that uninitialised elements are traced with, see `TracingOptions`.
        speculated, speculate: likewise.
    """

    function: Callable[..., Any]
    structure: PyTree
    leaves: list[Any]
    options: Options
    scheduler: Scheduler | None = None
    interprets: bool = True
    expected: Sequence[ExpectedOutcome | None] = ()
    fill: int = 0
    speculated: Sequence[Speculated] = ()
    speculate: bool = True


def build(
    request: Request, name: str, tune: Callable[[Trace, list[Any], Options], Tuned | None] | None = None
) -> Built:
    """Trace and compile a function: all that a first call does before it runs.

    Args:
        name: of the function, for messages.
        tune: tunes the kernels of the trace, so that compiling then finds their plans; None: no tuning.

    Raises:
        BudgetError: it takes longer than the budget.
        TraceError: the function cannot be traced.
        CompileError: a fault of hjit.
        OutOfBounds: an index is out of bounds; NumPy raises the exception for it.
        TracingFailed: tracing raised another exception, perhaps one that the function itself raises.
    """
    code = python_function(request.function).__code__
    options, leaves = request.options, request.leaves
    start, before = time.perf_counter(), kernel.made()
    with (
        few_collections(),
        _llvm_that_ends(name),
        deadline.budget(options.budget, name, Origin(code.co_filename, code.co_firstlineno, code.co_name)),
    ):
        traced = traced_call(request)
        if options.target != "cuda":
            _no_device_arrays(traced, leaves)
        results = results_of_externs(traced)  # before binding, which drops the arrays of the call
        deadline.blame(traced.recorder.busiest())
        done = None if tune is None else tune(traced, leaves, options)
        variant = _reported(name, compiled, traced, request.structure, leaves, options, request.scheduler)
    verified = verdicts.load(variant, options) if options.verify == "first" else None
    made, loaded = (now - then for now, then in zip(kernel.made(), before, strict=True))
    log.debug("%s: built in %.4f s, %d kernels compiled", name, time.perf_counter() - start, made)
    return Built(variant, results, made, loaded, verified, done)


@contextlib.contextmanager
def _llvm_that_ends(name: str) -> Iterator[None]:
    """A block that compiles. If LLVM hangs in it, the `BudgetError` says so: nothing else can be compiled then.

    Raises:
        BudgetError: raised by the block.
    """
    was_busy = is_busy()
    try:
        yield
    except BudgetError as error:
        if not is_busy():
            raise
        reason, advice = _NEVER_BEGUN if was_busy else _GIVEN_UP
        raise BudgetError(name, reason, advice, error.origin) from None


_ALL_BUSY = (
    "LLVM cannot be interrupted and does one thing at a time. So this function, and every function that this process "
    "has not compiled yet, runs as plain NumPy until LLVM ends, which may be never; what is compiled goes on"
)
_GIVEN_UP = (
    f"LLVM did not end compiling it in the time allowed, and was given up. {_ALL_BUSY}",
    "start the process anew to compile the others, with @hjit.pipeline(disable=True) or another formulation of this "
    "function, such as whole arrays in place of loops; and report the function, please: LLVM should end",
)
_NEVER_BEGUN = (
    f"it is not compiled, as LLVM is still compiling another function, which was given up. {_ALL_BUSY}",
    "start the process anew, without compiling the function that an earlier warning names",
)


# -- trace


def traced_call(request: Request) -> Trace:
    """The trace of a call.

    Raises:
        TraceError: the function cannot be traced.
        OutOfBounds: an index is out of bounds.
        TracingFailed: tracing raised something else.
    """
    options, scheduler, leaves = request.options, request.scheduler, request.leaves
    by_numpy = InterpretedStages() if request.interprets else None

    def evaluated(rec: Recorder, wanted: tuple[str, ...]) -> list[Any]:
        return list(on_deep_stack(evaluate, rec, wanted, leaves, options, by_numpy))

    def is_quick(rec: Recorder, wanted: tuple[str, ...]) -> bool:
        found = None if by_numpy is None else by_numpy.estimate(rec.graph(wanted), rec.sizes, options.fast_math)
        return found is not None and found.is_quicker_than_compiling

    seen = leaves
    if options.target == "cuda":
        from hjit.call.other_arrays.on_device import stand_in

        seen = [stand_in(x) for x in leaves]
    by_blas = functools.partial(_product_by_blas, options, scheduler)
    try:
        names = leaf_names(request.function, request.structure, len(leaves))
        is_bounded = options.on_unsupported == "break" and scheduler is None  # what is refused then runs in parts
        settings = TracingOptions(
            evaluated,
            by_blas,
            fill=request.fill,
            expected=request.expected,
            run_loops=_running_loops(options),
            speculated=request.speculated,
            speculate=request.speculate,
            is_quick=is_quick,
        )
        traced: Trace = on_deep_stack(
            trace, request.function, request.structure, seen, names, settings, leaves, is_bounded
        )
    except (HjitError, MemoryError, OutOfBounds):
        raise
    except Exception as error:
        raise_if_signalled(error)
        raise TracingFailed(error) from None
    traced.recorder.externs.roll_back()  # random numbers are drawn when the variant runs
    breaks = traced.recorder.breaks
    if any(e.impure for e in breaks) and any(e.call is None for e in breaks):
        raise TraceError(
            "numpy.random",
            "random numbers together with a decision on values",
            "draw the random numbers outside the function",
        )
    return traced


def _running_loops(options: Options) -> CompileLoops | None:
    """Compiles loop programs (`hjit.trace.ir.programs`): loops that a Graph cannot express; None on a GPU."""

    def run_loops(program: Program, sizes: Mapping[str, int]) -> RunLoops:
        from hjit.kernels.runtime.programs.running import run_loops

        return run_loops(options, program, sizes)

    return None if options.target == "cuda" else run_loops


def _no_device_arrays(traced: Trace, leaves: Sequence[Any]) -> None:
    """Check that a function compiled for the CPU captures no arrays on a GPU.

    Raises:
        TraceError: it does.
    """
    for path, (kind, _) in traced.recorder.captured.guards:
        if kind == "array" and is_device_array(look_up(path, leaves)):
            raise TraceError(str(path), "an array on the GPU", 'use target="cuda", or an array on the host')


def _product_by_blas(options: Options, scheduler: Scheduler | None, stage: str) -> bool | str:
    """May BLAS compute the matrix product of this name? "auto": if it is faster.

    With a schedule of the user's, BLAS computes the products that the schedule does not mention.
    """
    if scheduler is None or options.blas is False:
        return options.blas
    has: Any = getattr(scheduler, "has", None)
    return has is not None and not has(stage)


def results_of_externs(traced: Trace) -> dict[int, tuple[Any, ...]]:
    """The results of the extern calls that tracing made, by the number of the graph break; impure calls left out."""
    rec = traced.recorder
    calls = ((k, e) for k, e in enumerate(rec.breaks) if e.call is not None and not e.impure)
    return {k: tuple(rec.inputs[n].array for n in e.gives) for k, e in calls}


def _reported(name: str, f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``, with its exceptions turned into those of hjit."""
    try:
        return on_deep_stack(f, *args)
    except HjitError:
        raise
    except MemoryError as error:  # hjit has too little; NumPy may have enough
        raise_if_signalled(error)
        raise MemoryShortage(f"{name}: too little memory to compile it: {error}") from error
    except RecursionError:
        why = "its operations follow from one another hundreds deep: a loop whose iterations were traced one by one"
        raise TraceError(name, why, "write the loop as `for i in range(...)`, or compute with whole arrays") from None
    except Exception as error:
        raise_if_signalled(error)
        raise CompileError(f"{name}: {type(error).__name__} while compiling: {error}. Please report this.") from error


def evaluate(
    rec: Recorder, names: tuple[str, ...], leaves: list[Any], options: Options, by_numpy: InterpretedStages | None
) -> list[Any]:
    """Compute stages of an unfinished trace on the arrays of the call.

    Args:
        by_numpy: interprets small Graphs in NumPy; None: kernels compute all.
    """
    arrays = {n: s.array for n, s in rec.inputs.items()}
    host: Callable[[Any], Array] = np.asarray
    if options.target == "cuda":
        from hjit.call.other_arrays.on_device import arrays_of, on_host

        arrays, host = arrays_of(rec, leaves), on_host
    found = {n: host(arrays[n]) for n in names if n in rec.inputs}
    wanted = tuple(dict.fromkeys(n for n in names if n not in found))
    if wanted:
        values, slots = rec.tape.replay(leaves), rec.scalars.slots()
        assert values is not None, "the arguments are those that are being traced"
        scalars = {name: values[slot.k] for name, (slot, _) in slots.items()}
        try:
            estimate = None
            if by_numpy is not None and host is np.asarray:
                estimate = by_numpy.estimate(rec.graph(wanted), rec.sizes, options.fast_math)
            begun = {} if by_numpy is None or estimate is None else by_numpy.realised_of(estimate.graph)
            outputs = _outputs(rec, wanted, arrays | begun, scalars, options, estimate, tuple(begun))
        except IndexError:
            rec.findings.out_of_bounds = True
            raise
        found.update((n, host(x)) for n, x in outputs.items())
        if by_numpy is not None and host is np.asarray:
            by_numpy.realise({n: (rec.stages[n], found[n]) for n in outputs if n in rec.stages})
    return [found[n] for n in names]


def _outputs(
    rec: Recorder,
    names: tuple[str, ...],
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    options: Options,
    by_numpy: Interpretation | None,
    begun: tuple[str, ...],
) -> dict[str, Any]:
    """Compute stages of an unfinished trace the quickest way: by NumPy, by a stored kernel, or by a new one, which may
    return further stages.

    Args:
        begun: stages that `arrays` has already.

    Raises:
        IndexError: an index is out of bounds.
    """
    if by_numpy is not None and by_numpy.is_little:
        found = by_numpy.outputs(arrays, scalars)
        if found is not None:
            return dict(zip(names, found, strict=True))
    wanted = names
    if by_numpy is not None:
        names = (*names, *by_numpy.memo.shared(by_numpy.graph))
    stored = entry_of(rec, (names, begun), options, "decision")
    kernels = None if stored is None else stored.load()
    # The process that stored the assumed outcomes evaluated those conditions in NumPy, had little left to compute here,
    # and stored no kernel. Now all of it is to be computed: still by NumPy, if that is quicker than compiling
    if kernels is None and rec.known.assumed and by_numpy is not None and by_numpy.is_quicker_than_compiling:
        found = by_numpy.outputs(arrays, scalars)
        if found is not None:
            return dict(zip(wanted, found, strict=True))
    return _by_kernel(rec, names, arrays, scalars, options, begun, stored, kernels)


def _by_kernel(
    rec: Recorder,
    names: tuple[str, ...],
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    options: Options,
    begun: tuple[str, ...],
    stored: StoredKernels | None,
    kernels: tuple[Bound | None, ...] | None,
) -> dict[str, Any]:
    """Compute stages of an unfinished trace by a kernel.

    Args:
        begun: stages that `arrays` has already.
        stored: its entry in the disk cache.
        kernels: the kernel loaded from there; None if there is none.

    Raises:
        IndexError: an index is out of bounds.
    """
    if kernels is None:
        from hjit.call.compiling import evaluating

        kernels = (evaluating(rec, names, options, begun),)
        if stored is not None:
            stored.store(kernels)
    (bound,) = kernels
    assert bound is not None
    outputs: list[Any] = bound.new_outputs()
    with deadline.paused():
        is_inside = bound.run([arrays[n] for n in bound.inputs], outputs, [scalars[n] for n, _ in bound.scalars])
    if not is_inside:
        raise IndexError("index out of bounds")
    return dict(zip(names, outputs, strict=True))


# -- look up kernels of an identical trace; else canonicalise, look up, search, lower, emit, tune; bind


def compiled(
    traced: Trace, structure: PyTree, leaves: Sequence[Any], options: Options, scheduler: Scheduler | None
) -> Variant:
    """The variant of a trace: its kernels from disk, or compiled by the schedule that is decided on."""
    stored = entry_of(traced.recorder, traced.goals, options) if scheduler is None else None
    kernels = None if stored is None else stored.load()
    if kernels is None:
        from hjit.call.compiling import (
            candidate_of,
        )  # imported late: a process that finds its kernels needs no compiler

        arguments = functools.partial(all_arrays, traced, leaves, options)
        candidate, decision = candidate_of(traced, arguments, options, scheduler)
        if stored is not None:
            stored.store(candidate.kernels, decision.plans, decision.absent)
        kernels, origins = candidate.kernels, origins_of(candidate.segments, candidate.choice)
    else:
        origins = _origins_on_demand(traced, options, len(kernels))
    return _bind(traced, structure, leaves, compiled_segments(traced, origins, kernels), options)


def all_arrays(traced: Trace, leaves: Sequence[Any], options: Options, candidate: Candidate) -> Arguments | None:
    """The arrays on which candidates are timed: those of the call, and those that kernels compute for later ones.

    None if a guard does not hold, or if extern calls have effects: the segments are run once more for this.
    """
    from hjit.call.compiling import arguments_of
    from hjit.tuning.choice import Arguments

    if len(candidate.kernels) == 1:
        return arguments_of(traced, leaves)
    origins = origins_of(candidate.segments, candidate.choice)
    variant = variant_of(traced, compiled_segments(traced, origins, candidate.kernels), options)
    guarded = variant.guards.values(leaves)
    if guarded is None or variant.impure:
        return None
    values, captured = guarded
    state = variant.arrays(leaves, captured)
    try:
        variant.body.run(state, values, {}, results_of_externs(traced), [], False)
    except (Mispredict, OutOfBounds):
        return None
    state |= {n: packed(state[n]) for n in variant.body.packed if n in state}
    return Arguments(state, {name: values[slot] for name, slot in variant.body.slots.items()})


def compiled_segments(
    traced: Trace, origins: Sequence[Callable[[], Any]], kernels: Sequence[Bound | None]
) -> list[CompiledSegment]:
    """The segments of a trace: kernels, and the graph breaks between them."""
    breaks = [*traced.recorder.breaks, None]
    return [CompiledSegment(*x) for x in zip(origins, kernels, breaks, unread_after(traced, kernels), strict=True)]


def unread_after(traced: Trace, kernels: Sequence[Bound | None]) -> list[frozenset[int]]:
    """`CompiledSegment.unread` of each segment."""
    computed = {name for bound in kernels if bound is not None for name, _, _ in bound.outputs}
    computed |= {n for b in traced.recorder.breaks if b.program is not None for n in b.gives}
    read = {n for r in traced.results for n in (r.name, *r.stages)} | set(traced.goals[-1])
    found: list[frozenset[int]] = [frozenset()]
    for bound, graph_break in zip(reversed(kernels[1:]), reversed(traced.recorder.breaks), strict=True):
        read |= set(() if bound is None else bound.inputs)
        found.insert(0, frozenset(k for k, n in enumerate(graph_break.needs) if n in computed and n not in read))
        read |= set(graph_break.needs)
    return found


def origins_of(segments: Segments, choice: Choice) -> list[Callable[[], Any]]:
    """`CompiledSegment.origin` of each segment."""
    return [functools.partial(tuple, (x.graph, choice.of(x) if x.graph.outputs else None)) for x in segments]


def _origins_on_demand(traced: Trace, options: Options, count: int) -> list[Callable[[], Any]]:
    """`CompiledSegment.origin` of each segment, worked out when the first of them is asked for."""

    @functools.cache
    def made() -> list[Any]:
        from hjit.call.compiling import decided_for

        segments_of, decision = on_deep_stack(decided_for, traced, options, None)
        return [f() for f in origins_of(segments_of(decision.best.rewrites), decision.best)]

    return [lambda number=k: made()[number] for k in range(count)]  # type: ignore[misc]


def _bind(
    traced: Trace, structure: PyTree, leaves: Sequence[Any], segments: list[CompiledSegment], options: Options
) -> Variant:
    """The variant of compiled segments, with a hot path if it can have one. It keeps no array of the call alive."""
    traced.recorder.tape.settle()
    on_device = options.target == "cuda"
    if on_device:
        from hjit.call.other_arrays.on_device import DeviceSegments, OnDevice, hot_path

        variant: Variant = variant_of(traced, segments, options, OnDevice, DeviceSegments)
    else:
        variant = variant_of(traced, segments, options)
    if _is_simple(traced, variant.guards, structure):
        variant.fast = _with_products(variant) if variant.has_products else _one_kernel(variant)
        if on_device and variant.fast is not None:
            variant.fast = hot_path(variant.fast, leaves)
    variant.example = structure, [*map(_without_contents, leaves)]
    _forget_call(traced)
    return variant


def variant_of(
    traced: Trace,
    segments: list[CompiledSegment],
    options: Options,
    variant: type[Variant] = Variant,
    body: type[CompiledSegments] = CompiledSegments,
) -> Variant:
    """A variant of a trace, from its compiled segments."""
    rec, guards = traced.recorder, guards_of(traced)
    slots = {name: slot.k for name, (slot, _) in rec.scalars.slots().items()}
    shapes = {n: (shape, dtype) for s in segments if s.bound is not None for n, shape, dtype in s.bound.outputs}
    allocated: dict[str, Any] = {**allocations(traced.results, shapes), **scratch_allocations(traced.results, shapes)}
    return variant(
        traced,
        body(segments, guards.packed, slots, allocated),
        Results(traced.result, traced.results, traced.writes, rec.sizes, is_tree(traced.result)),
        guards,
        {n: s.array for n, s in rec.inputs.items() if s.where[0] == "constant"},
        options.fast_math,
    )


def _is_simple(traced: Trace, guards: Guards, structure: PyTree) -> bool:
    """May calls use a hot path: no array is captured, nothing is written, no argument is a container, and all graph
    breaks are matrix products?"""
    rec = traced.recorder
    if any(e.product is None for e in rec.breaks) or rec.effects or traced.writes or guards.packed:
        return False
    args, kwargs = structure.items
    return guards.are_tests and not any(isinstance(x, PyTree) for x in (*args.items, *kwargs.items))


def _with_products(v: Variant) -> WithProducts | None:
    """The hot path of a variant whose graph breaks are matrix products; None if indices must be checked."""
    if v.rec.checks:
        return None
    tape, guards = v.rec.tape if v.rec.tape.ops else None, v.guards
    return WithProducts(v.body, tape, v.constants, guards.arguments, v.results, guards.test())


def _one_kernel(variant: Variant) -> OneKernel | None:
    """The hot path of a variant without graph breaks; None if its results are not just the kernel's outputs."""
    rec, results = variant.rec, variant.results
    (segment,) = variant.segments
    names, bound = (*(r.name for r in results.leaves), *rec.checks), segment.bound
    if bound is None or not results.leaves or any(r.kind != "array" for r in results.leaves):
        return None
    if names != tuple(n for n, _, _ in bound.outputs) or not results.is_tree:
        return None
    return OneKernel(
        bound,
        None if rec.tape.is_settled else rec.tape,
        (rec.tape.replay(()) or ()) if rec.tape.is_settled else (),
        tuple(variant.guards.arguments.get(n, -1) for n in bound.inputs),
        {k: variant.constants[n] for k, n in enumerate(bound.inputs) if n in variant.constants},
        tuple(variant.body.slots[n] for n, _ in bound.scalars),
        tuple((shape, dtype) for _, shape, dtype in bound.outputs),
        bool(rec.checks),
        results.tree,
        {k: variant.body.allocations[n] for k, n in enumerate(names) if n in variant.body.allocations},
        variant.guards.test(),
    )


def _forget_call(traced: Trace) -> None:
    """Drop the arrays of the call, which a variant must not keep alive."""
    rec = traced.recorder
    for s in rec.inputs.values():
        if s.where[0] != "constant":
            s.array = _like(s.array)
    rec.captured.seen.clear()
    rec.forget()


def _like(a: Array) -> Array:
    """A read-only prototype of an array: same dtype, shape and strides, no memory of its own."""
    probe = np.zeros(1, a.dtype)
    shaped = np.lib.stride_tricks.as_strided(probe, a.shape, a.strides)
    shaped.flags.writeable = False
    return shaped


def _without_contents(x: Any) -> Any:
    if type(x) in (np.ndarray, np.memmap):
        return _like(x)
    return x if is_run_time(x) or isinstance(x, (bool, str, bytes, type(None))) else GONE


# -- stack depth


def on_deep_stack(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)`` with enough stack, on another thread if need be; kernels made there count for this thread."""

    def counted() -> tuple[T, int, tuple[int, int]]:
        before = kernel.made()
        result = f(*args)
        compiled, loaded = (now - then for now, then in zip(kernel.made(), before, strict=True))
        return result, threading.get_ident(), (compiled, loaded)

    result, thread, made = with_deep_stack(counted)
    if thread != threading.get_ident():
        kernel.count(*made)
    return result
