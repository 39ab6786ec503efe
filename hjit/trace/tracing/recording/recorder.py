"""The Recorder: all state of one trace.

It holds the inputs, the stages made so far, the values of the run-time sizes, the tape of host scalars, and
the graph breaks (decisions, extern calls) that cut the trace into segments; the packages `state` and `loops` define its
parts. One recorder is current per thread.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import CodeType
from typing import Any, Protocol

import numpy as np

from hjit.errors import InherentError, LongLoop, Origin, TraceError
from hjit.process import deadline
from hjit.process.restoring import surely
from hjit.trace.ir.analysis.ranges import Range, Ranges
from hjit.trace.ir.expressions import Expr, Load, ScalarRef
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, identity
from hjit.trace.ir.poly import Poly, poly
from hjit.trace.ir.programs.steps import Program
from hjit.trace.tracing.clones import Clones
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import line_in, site, site_of, traced_frame
from hjit.trace.tracing.memos import Memos
from hjit.trace.tracing.recording.events import (
    CheckedIndices,
    Effect,
    ExpectedOutcome,
    FilledArguments,
    GraphBreak,
    Source,
)
from hjit.trace.tracing.recording.loops.rerolled import RerolledLoops
from hjit.trace.tracing.recording.loops.unrolled import UnrolledLoops
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.results import ExternResult
from hjit.trace.tracing.recording.state.attempt import Attempt
from hjit.trace.tracing.recording.state.caller import CallerObjects, CapturedValues
from hjit.trace.tracing.recording.state.extern_state import ExternState
from hjit.trace.tracing.recording.state.findings import Findings
from hjit.trace.tracing.recording.state.known_values import KnownValues, Speculated
from hjit.trace.tracing.recording.state.scalars import ScalarParameters
from hjit.trace.tracing.recording.state.sizes import TracedSizes
from hjit.trace.tracing.recording.state.watched import Watched
from hjit.trace.tracing.recording.strides import constant_strides, packed
from hjit.trace.tracing.recording.uninitialised import fill_values
from hjit.trace.tracing.scalars.host import HostScalar, ScalarTape

MAX_STAGES = 20_000  # of a trace, some seconds of tracing: more come from a loop over pixels
STAGES_A_CHECK = 8  # of the deadline, which asks the system for the time
MAX_CONSTANT = 1024  # elements of an array that is part of the kernel's key; larger ones are inputs

RunLoops = Callable[[Sequence[np.ndarray[Any, Any]]], bool]
CompileLoops = Callable[[Program, Mapping[str, int]], RunLoops]  # given the sizes

_state = threading.local()


class OutOfBounds(Exception):
    """NumPy would raise an exception, for a value or for a warning that is an error: the plain function must run."""


def current() -> Recorder:
    """The recorder of the trace that this thread runs.

    Raises:
        TraceError: no trace is running: a tracer escaped from its function.
    """
    rec: Recorder | None = getattr(_state, "recorder", None)
    if rec is None:
        raise _elsewhere()
    return rec


running: set[Recorder] = set()  # the traces of all threads


def _elsewhere() -> TraceError:
    """The error for a traced array that is used where no trace runs: in another thread, or later."""
    frame: Any = sys._getframe(2)
    others = list(running)
    found = others[0] if len(others) == 1 else None
    while frame is not None and type(frame.f_globals) is dict:
        frame = frame.f_back
    if frame is not None:
        found = next((rec for rec in others if any(o is frame.f_globals for o in rec.clones.overlays.values())), None)
    if found is None:
        return TraceError(
            "tracer",
            "an array of a finished trace is used",
            "do not keep arrays of the function in globals or attributes",
        )
    reason = "it works on arrays of a function that is traced in another thread"
    advice = "let the threads call decorated functions, or compute with whole arrays: compiled code runs in parallel"
    error = TraceError(f"thread {threading.current_thread().name}", reason, advice, site()[0] or found.origin)
    found.refusals.append(error)  # the thread's exception may go unnoticed
    return error


@provides
def running_trace() -> Recorder | None:
    """The recorder of the trace that this thread runs, or None."""
    found: Recorder | None = getattr(_state, "recorder", None)
    return found


def tracing() -> bool:
    """Is this thread running a trace?"""
    return running_trace() is not None


def rerolled_loops() -> list[Any]:
    """The re-rolled loops that this thread traces."""
    rec = getattr(_state, "recorder", None)
    return [] if rec is None else rec.loops


def supported_dtype(dtype: np.dtype[Any]) -> bool:
    """bool, integers and floats of up to 64 bits, in native byte order."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


class Postponing(Protocol):
    """Makes placeholders for the results of calls that are not made while tracing (for Dask, tasks make them)."""

    def extern(
        self, rec: Recorder, operation: str, function: Any, needs: tuple[str, ...], arguments: FilledArguments
    ) -> ExternResult | None:
        """The placeholder for an extern call with its function, arguments and arrays `needs`; None: call it now."""

    def product(self, rec: Recorder, product: Product) -> np.ndarray[Any, Any]:
        """The placeholder for a matrix product."""


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """The caller's choices about a trace.

    Attributes:
        evaluate: computes stages on the arrays of the call, for decisions and extern calls.
        blas: given the name of a product: may BLAS compute it (True, False, or "auto", by its sizes)? None: never.
        fill: the numbers that uninitialised elements are traced with, see `fill_values`.
        postpone: makes stand-ins for extern calls and products that are not made while tracing, or None.
        expected: outcomes of the decisions of an earlier trace, in order; None for a decision on a number.
        run_loops: compiles a loop program for some sizes to a function of the inputs and the arrays that it changes,
            which returns False if NumPy must run; None: loop programs are not supported.
        speculated: outcomes in loops that an earlier trace speculated on, in order, with their lines.
        is_quick: are stages evaluated in less time than compiling them takes?
        speculate: may outcomes that nearly always come be assumed, and checked at each call (`speculate`)?
    """

    evaluate: Callable[[Recorder, tuple[str, ...]], list[np.ndarray[Any, Any]]]
    blas: Callable[[str], bool | str] | None = None
    fill: int = 0
    postpone: Postponing | None = None
    expected: Sequence[ExpectedOutcome | None] = ()
    run_loops: CompileLoops | None = None
    speculated: Sequence[Speculated] = ()
    is_quick: Callable[[Recorder, tuple[str, ...]], bool] = lambda rec, wanted: False
    speculate: bool = True


@dataclass(eq=False)
class Recorder(TracedSizes):
    """State of one trace.

    Attributes:
        options: the caller's choices.
        attempt: how loops and scalar types are treated in this attempt at tracing.
        inputs, stages: what is recorded, by name.
        tape: of host scalars.
        scalars: those that are parameters of kernels.
        breaks: graph breaks, in order.
        effects: warnings and log records, to be issued at each call.
        checks: stages that say whether NumPy would raise an exception.
        indices: integer arrays that are used as indices and may be out of bounds.
        caller: the caller's arrays and containers.
        captured: captured values and their guards.
        watched: objects that outlive the call and must not be changed by it.
        codes: of the functions that were traced.
        clones: traced versions of functions and globals.
        loops: the re-rolled loops (iterations traced as one) that are being traced, innermost last.
        rerolled: what re-rolled loops record besides stages.
        unrolled: the loops that are traced iteration by iteration.
        changes: for each write the buffer, its version before, and its contents if they were known.
        known: values of stages that were computed while tracing.
        externs: the state of the interpreter around extern calls.
        findings: what the trace has met that decides about a next attempt.
        refusals: errors for what could not be traced.
        memos: memoised properties of objects.
    """

    options: TracingOptions
    function: str = "function"
    origin: Origin | None = None
    attempt: Attempt = field(default_factory=Attempt)
    # -- what is recorded: later calls need it
    inputs: dict[str, Source] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    tape: ScalarTape = field(default_factory=ScalarTape)
    scalars: ScalarParameters = field(default_factory=ScalarParameters)
    breaks: list[GraphBreak] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    indices: dict[Any, CheckedIndices] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    # -- the function and what it can reach
    caller: CallerObjects = field(default_factory=CallerObjects)
    captured: CapturedValues = field(default_factory=CapturedValues)
    watched: Watched = field(default_factory=Watched)
    codes: dict[CodeType, None] = field(default_factory=dict)
    clones: Clones = field(default_factory=Clones)
    # -- its loops
    loops: list[Any] = field(default_factory=list)
    rerolled: RerolledLoops = field(default_factory=RerolledLoops)
    unrolled: UnrolledLoops = field(default_factory=UnrolledLoops)
    changes: list[tuple[Any, str, np.ndarray[Any, Any] | None]] = field(default_factory=list)
    # -- the course of the trace
    known: KnownValues = field(default_factory=KnownValues)
    externs: ExternState = field(default_factory=ExternState)
    findings: Findings = field(default_factory=Findings)
    refusals: list[TraceError] = field(default_factory=list)
    memos: Memos = field(default_factory=Memos)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """The block that is traced. Where it fails, what it has changed is as before."""
        outer = getattr(_state, "recorder", None)
        try:
            try:
                running.add(self)
                _state.recorder = self
                yield
            finally:
                _state.recorder = outer
                running.discard(self)
        except BaseException:  # else nothing that is watched has changed, and another thread may change it by now
            surely(self._roll_back)
            raise

    def _roll_back(self) -> None:
        self.externs.roll_back()
        self.watched.restore()

    def forget(self) -> None:
        """Drop what is needed only while tracing."""
        self.options = replace(self.options, evaluate=_finished)
        self.externs.undo.clear()
        self.watched = Watched()
        self.caller.forget_objects()
        self.indices.clear()
        self.scalars.hosts.clear()
        self.tape.recorded.clear()
        self.clones = Clones()
        self.rerolled = RerolledLoops()
        self.memos = Memos()
        self.known.forget_values()
        self.refusals.clear()
        self.forget_shapes()
        self.unrolled.forget_frames()

    def check_watched(self) -> None:
        """Raise if the function changed a variable, class, list or dict that outlives it: compiled calls would not."""
        for name in [name for o in self.clones.overlays.values() for name in o.assigned()]:
            reason = "the function assigns to a global variable"
            raise self.error(f"global {name}", reason, "return the value instead", InherentError)
        for operation, reason in self.watched.changes():
            raise self.error(operation, reason, "return the value instead", InherentError)

    def uninitialised(self, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Any:
        """The values of uninitialised elements: one for all of them, or an array."""
        self.findings.reads_uninitialised = True
        return fill_values(shape, dtype, self.options.fill)[()]

    # -- names
    def unique(self, name: str) -> str:
        """`name`, with a number appended if it is taken."""
        n = self._names.get(name, 0) + 1
        self._names[name] = n
        if n == 1:
            return name
        return self.unique(f"{name}_{n}")

    def reserve(self, default: str) -> str:
        """A name for a stage that loads itself: the user's variable, or `default`."""
        variable = site()[1]
        return self.unique(default if variable == "t" else variable)

    # -- inputs
    def input(self, name: str, array: np.ndarray[Any, Any], where: tuple[Any, ...]) -> Source:
        """Register an input array, whose contents differ from call to call."""
        if not supported_dtype(array.dtype):
            raise self.error(
                f"array of dtype {array.dtype}",
                "hjit handles bool, integers and floats up to 64 bits",
                "convert it first",
            )
        name = self.unique(name)
        shape = [self.symbol(f"{name}.{k}", n) for k, n in enumerate(array.shape)]
        whole = packed(array)
        made = Input(name, array.dtype, self.polys(shape), constant_strides(whole))
        source = Source(made, whole, where, whole is not array)
        self.inputs[name] = source
        return source

    def constant(self, array: np.ndarray[Any, Any], of_sizes: bool = False) -> Source:
        """Register an array that the function itself made; if `of_sizes`, its contents are no part of the kernel."""
        array = np.asarray(array, order="C")
        if not supported_dtype(array.dtype):
            raise self.error(f"array of dtype {array.dtype}", "hjit handles bool, integers and floats up to 64 bits")
        data = None if of_sizes or array.size > MAX_CONSTANT else array.tobytes()
        name = self.unique("const")
        shape = tuple(map(poly, array.shape)) if data is not None else self.polys(array.shape)
        source = Source(Input(name, array.dtype, shape, constant_strides(array), data), array, ("constant",))
        self.inputs[name] = source
        return source

    def scalar(self, host: HostScalar, dtype: Any) -> ScalarRef:
        """A host scalar as a kernel parameter of `dtype`."""
        return self.scalars.parameter(host, dtype)

    # -- stages
    def stage(
        self,
        value: Expr | None,
        shape: Iterable[int | Poly],
        dtype: Any,
        updates: tuple[Definition, ...] = (),
        name: str = "",
        reserved: str = "",
    ) -> Stage:
        """Add a stage, named after the user's variable, or with a `reserved` name."""
        if len(self.stages) >= MAX_STAGES:
            raise self.error(
                "loop",
                f"the trace has passed {MAX_STAGES} operations: a Python loop over pixels or rows",
                "vectorise the loop",
            )
        frame, called = traced_frame()
        iterations = self.unrolled.iterations
        if iterations is not None and iterations.are_too_many(frame, called):
            raise self._long_loop(f"{iterations.operations} operations")
        origin, variable = site_of(frame)
        if len(self.stages) % STAGES_A_CHECK == 0:
            deadline.check("tracing", origin)
        stage = Stage(
            reserved or self.unique(name or variable), np.dtype(dtype), self.polys(shape), value, updates, origin
        )
        self.stages[stage.name] = stage
        return stage

    def range_of(self, e: Expr) -> Range | None:
        """The range of an integer expression; None for floats.

        In a re-rolled loop arrays change: there loads are as wide as their dtype.
        """
        return (Ranges() if self.loops else self._ranges).of(e)

    @cached_property
    def _ranges(self) -> Ranges:
        return Ranges(self.stages, self._contents, self._number)

    def is_given(self, stage: str) -> bool:
        """Does an array depend on inputs or extern calls, rather than on constants alone?"""
        names, seen = [stage], set[str]()
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.inputs and self.inputs[name].where != ("constant",):
                return True
            if name in self.stages:
                names += self.stages[name].sources
        return False

    def is_fixed(self, scalar: str) -> bool:
        """Is a scalar the same for all calls that this trace serves?"""
        return self.tape.is_fixed(self.scalars.hosts[scalar].k)

    def _number(self, name: str) -> int | None:
        """The value of an integer scalar that is fixed; else None."""
        value = self.scalars.hosts[name].value
        return int(value) if isinstance(value, (int, np.integer)) and self.is_fixed(name) else None

    def _contents(self, name: str) -> np.ndarray[Any, Any] | None:
        """The contents of an array that the function itself made; else None."""
        source = self.inputs.get(name)
        return source.array if source is not None and source.where == ("constant",) else None

    # -- ends
    def graph(self, outputs: tuple[str, ...]) -> Graph:
        """The Graph of everything recorded, with the given stages or inputs as outputs."""
        return Graph(
            tuple(s.input for s in self.inputs.values()),
            self.scalars.declared(),
            tuple(self.stages.values()),
            outputs,
        )

    def busiest(self) -> Origin | None:
        """The source line with the most operations."""
        lines = Counter(s.origin for s in self.stages.values())
        return lines.most_common(1)[0][0] if lines else None

    def break_in_loop(self, what: str, most: int, is_call: bool = False) -> None:
        """Note a graph break, of an extern call or a decision; raise where iterations of a loop repeat it `most` times.

        Raises:
            LongLoop: they do.
        """
        iterations = self.unrolled.iterations
        if iterations is not None and iterations.repeat_breaks(len(self.stages), most, is_call, *traced_frame()):
            raise self._long_loop(what)

    def _long_loop(self, what: str) -> TraceError:
        return self.long_loop(f"its iterations make {what}", "write it as operations on whole arrays")

    def long_loop(self, reason: str, advice: str, kind: type[TraceError] = LongLoop) -> TraceError:
        """The error of a loop whose iterations fill the trace."""
        self.unrolled.too_long = self.unrolled.outermost()
        return self.error("loop", reason, advice, kind)

    # -- what NumPy refuses
    def check(self, bad: Any) -> None:
        """If `bad`, a 0-d array, is true at a call, the plain function runs instead, and NumPy raises the exception."""
        self.checks.append(bad.buffer.source())

    def speculate(self, bad: Any) -> None:
        """As `check`, where NumPy raises nothing: such calls are traced again, with decisions."""
        self.findings.speculates = True
        self.check(bad)

    # -- loops as programs
    @property
    def records_program(self) -> bool:
        """Are iterations being traced that become a loop program?"""
        return bool(self.loops) and bool(self.loops[0].is_program)

    def known_array(self, array: np.ndarray[Any, Any], of_sizes: bool) -> str:
        """The stage of an array with known contents; equal arrays share an input on all paths."""
        key = array.dtype.str, array.shape, array.tobytes()
        known = self.rerolled.numbers
        if key not in known:
            known[key] = self.constant(array, of_sizes).input.name
        load = Load(known[key], identity(array.ndim), array.dtype)
        return self.stage(load, array.shape, array.dtype, name="known").name

    def line(self) -> Origin | None:
        """The line of the user's file that is being traced."""
        inner = site()[0] or self.origin
        line = line_in(self.origin.filename) if self.origin else None
        return inner if line is None or inner is None or line.filename == inner.filename else line

    def error(self, operation: str, reason: str, advice: str = "", kind: type[TraceError] = TraceError) -> TraceError:
        """A `TraceError` for the present line of the user's code.

        If traced code handles it, it is raised again at the end, since NumPy would not have raised it.
        """
        inner, line = site()[0] or self.origin, self.line()
        if line != inner:  # a library's line says little without the user's
            reason = f"{reason} (at {inner})"
        self.refusals.append(kind(operation, reason, advice, line))
        return self.refusals[-1]


def _finished(rec: Recorder, names: tuple[str, ...]) -> list[np.ndarray[Any, Any]]:
    raise AssertionError("the trace is finished")
