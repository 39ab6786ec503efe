"""`trace`: runs a function on tracers and returns what it computes, writes and returns."""

from __future__ import annotations

import functools
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.errors import InherentError, LongLoop, Origin, TraceError, raise_if_signalled
from hjit.process import deadline
from hjit.trace.capture.attempts import Attempts
from hjit.trace.capture.captured import AccessPath, captured_object, whole_array
from hjit.trace.capture.classes import guard_class_attributes
from hjit.trace.capture.made_classes import class_of, forget_classes
from hjit.trace.capture.overlay import clone, load_table, replacement, wrap_callable
from hjit.trace.capture.side_effects.audit_hook import install_audit_hook
from hjit.trace.capture.side_effects.finalisation import Finalisation, finalised
from hjit.trace.capture.side_effects.library_warnings import NotedWarnings
from hjit.trace.capture.side_effects.settings import settings_kept
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Dim, FloorDiv, Mod, Poly, Sym, deep_atoms, poly
from hjit.trace.splitting.decorated import python_original
from hjit.trace.splitting.locations import RETURNED
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import COPY_IT, TracedBuffer
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, any_source
from hjit.trace.tracing.arrays.grown import GrownList, Item
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.number_dicts import NumberDict
from hjit.trace.tracing.arrays.number_lists import NumberList
from hjit.trace.tracing.arrays.scalar_class import ClassCalled, MethodConverts, plain_class
from hjit.trace.tracing.arrays.stacks import NumberStack
from hjit.trace.tracing.arrays.tracer import Tracer, is_tracer
from hjit.trace.tracing.complex_memory import complex_of
from hjit.trace.tracing.dispatch import is_dispatched, source_of
from hjit.trace.tracing.objects import MakeObject, fields_of
from hjit.trace.tracing.recording.checks import finish_checks
from hjit.trace.tracing.recording.loops.iterations import (
    MAX_OPERATIONS,
    MAX_SPECULATED_OPERATIONS,
    MAX_UNROLLED,
    Iterations,
)
from hjit.trace.tracing.recording.loops.unrolled import ManyParts
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder, TracingOptions
from hjit.trace.tracing.scalars.host import HostScalar, is_host, is_run_time, static_value
from hjit.trace.tracing.scalars.induction import CannotReroll
from hjit.trace.tracing.scalars.size import Size


@dataclass(frozen=True, slots=True)
class Result:
    """One leaf of what the function returns.

    Attributes:
        kind: "array" (name: stage), "view" (name: stage or argument; shape, index, another dtype), "argument" (name),
            "compacted" (name: stage of rows, value: a `Compacted`), "list" (name: likewise of its first numbers, value:
            a `ListOfItems`), "host" (value: entry of the tape), "constant" (value: an array, copied at each call) or
            "static" (value).
        weak: is the scalar a Python float?
        order: for an array that is not in C order, the stage's axis of each of its axes.
        is_complex: does the stage, or the argument, hold the parts of a complex array?
        read_only: is the array read-only?
        is_computed: is it a view of a stage, rather than of an argument?
        is_view: is it a view of all of the argument, rather than the argument itself?
    """

    kind: str
    name: str = ""
    value: Any = None
    shape: tuple[Poly, ...] = ()
    index: tuple[Poly, ...] = ()
    is_scalar: bool = False
    weak: bool = False
    order: tuple[int, ...] = ()
    dtype: Any = None
    read_only: bool = False
    is_complex: bool = False
    is_computed: bool = False
    is_view: bool = False

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that it is made from; the name of a view may also be that of an argument."""
        if self.kind == "compacted":
            return self.name, self.value.lengths
        if self.kind == "list":
            return tuple(n for c in self.value.columns for n in (c.rows, c.lengths))
        return (self.name,) if self.kind in ("array", "view") else ()

    @property
    def is_plain(self) -> bool:
        """Is the computed array itself what the function returns?"""
        return not (self.is_scalar or self.order or self.is_complex or self.read_only)

    def returned(self, array: np.ndarray[Any, Any]) -> Any:
        """What the function returns for a computed array: the array, a transpose, a NumPy scalar or a Python float."""
        found = self._seen(complex_of(array), self.order[:-1]) if self.is_complex else self._seen(array, self.order)
        if self.read_only and not self.is_scalar:
            found.flags.writeable = False
        return found

    def _seen(self, array: np.ndarray[Any, Any], order: tuple[int, ...]) -> Any:
        if self.is_scalar:
            return array.item() if self.weak else array[()]
        if order:
            array = array.transpose(order)
        return owner(array) if order or self.is_complex else array

    def of_argument(self, array: Any) -> Any:
        """What the function returns for an argument."""
        return array[...] if self.is_view else array

    def arranged(self, array: np.ndarray[Any, Any]) -> Any:
        """An array in the layout of the stage, rearranged to that of the result; complex results keep their parts."""
        if self.is_complex:
            return array.transpose(self.order) if self.order else array
        return self._seen(array, self.order)

    def as_stage(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The inverse of `arranged`."""
        return array.transpose(np.argsort(self.order)) if self.order else array


def owner(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that owns the memory of a view if the view shows all of it unchanged; else the view."""
    if type(x) is not np.ndarray:  # of a device
        return x
    base = x.base
    if type(base) is not np.ndarray or not base.flags.owndata or base.dtype != x.dtype:
        return x
    return base if base.shape == x.shape and base.strides == x.strides else x


@dataclass(frozen=True, slots=True)
class ListOfItems:
    """A list that a loop has filled.

    Attributes:
        item: an `hjit.trace.tracing.arrays.grown.Item`.
        columns: a `Compacted` for each number of an item; or one with a last axis for all of them.
    """

    item: Item
    columns: tuple[Any, ...]

    def made(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        """The list whose numbers are in an array for each of the columns."""
        if len(arrays) < len(self.item.dtypes):
            arrays = list(np.moveaxis(arrays[0], -1, 0))
        return self.item.made(arrays)


@dataclass(frozen=True, slots=True)
class PyTree:
    """A tuple, list, dict or named tuple of leaves or trees.

    Attributes:
        caller_path: where the caller holds this very object: a path of keys into (args, kwargs), or an `AccessPath`;
            None if the function made it.
    """

    make: Any
    items: tuple[Any, ...]
    keys: tuple[Any, ...] | None = None
    caller_path: Any = None

    def build(self, leaf: Callable[[Any], Any]) -> Any:
        """The same structure over ``leaf(item)``."""
        return self.of([x.build(leaf) if type(x) is PyTree else leaf(x) for x in self.items])

    def of(self, items: list[Any]) -> Any:
        """The same structure of these items."""
        if self.keys is not None:
            return self.make(zip(self.keys, items, strict=True))
        return self.make(*items) if hasattr(self.make, "_fields") else self.make(items)


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished trace: the recorder with all stages, and the structure of the result."""

    recorder: Recorder
    result: Any
    writes: tuple[tuple[str, str], ...]

    @property
    def results(self) -> list[Result]:
        """The leaves of the result, in order."""
        found: list[Result] = []
        if isinstance(self.result, PyTree):
            self.result.build(found.append)
        else:
            found.append(self.result)
        return found

    @property
    def goals(self) -> list[tuple[str, ...]]:
        """The stages that each segment must compute."""
        rec = self.recorder
        names = [stage for _, stage in self.writes]
        names += [n for r in self.results for n in r.stages]
        names += [*rec.checks, *(n for e in rec.effects for n in e.needs)]
        return [*(e.needs for e in rec.breaks), tuple(dict.fromkeys(n for n in names if n in rec.stages))]


def flatten(x: Any, leaves: list[Any]) -> Any:
    """The structure of arguments, with leaves replaced by their numbers; the leaves are appended to `leaves`."""
    t = type(x)
    if t in (list, tuple) or (isinstance(x, tuple) and hasattr(t, "_fields")):
        return PyTree(t, tuple(flatten(y, leaves) for y in x))
    if t in (dict, OrderedDict):
        return PyTree(t, tuple(flatten(y, leaves) for y in x.values()), tuple(x))
    leaves.append(x)
    return len(leaves) - 1


def flatten_arguments(args: Any, kwargs: Any) -> tuple[PyTree, list[Any]]:
    """The structure of a call's arguments, and their leaves."""
    leaves: list[Any] = []
    return PyTree(tuple, (flatten(args, leaves), flatten(kwargs, leaves))), leaves


def python_function(function: Any) -> types.FunctionType:
    """The Python function that a function, a bound method, or a partial of one, calls.

    Of a function of NumPy's that is none, it has the name only.

    Raises:
        TraceError: there is none.
    """
    found = function
    while isinstance(found, (functools.partial, types.MethodType)):
        found = found.func if isinstance(found, functools.partial) else found.__func__
        found = python_original(found)
    if isinstance(found, np.ufunc) or is_dispatched(found):
        found = _of_numpy(found)
    if not isinstance(found, types.FunctionType):
        raise TraceError(repr(function), "not a Python function", "decorate a function written in Python")
    return found


@functools.lru_cache(maxsize=256)
def _of_numpy(function: Any) -> types.FunctionType:
    source = source_of(function)
    if isinstance(source, types.FunctionType):
        return source

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert isinstance(call, types.FunctionType)
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return call


def trace(
    function: Callable[..., Any],
    structure: PyTree,
    leaves: list[Any],
    names: list[str],
    options: TracingOptions,
    originals: Sequence[Any] | None = None,
    is_bounded: bool = False,
) -> Trace:
    """Run `function` on tracers that stand for `leaves`.

    Args:
        function: written in Python, or a partial of one that is.
        structure: a `PyTree` of (args, kwargs) whose leaves are numbers into `leaves`.
        names: a name for each leaf, for printing.
        originals: the arguments that `leaves` stand for, where they are not these: which of them are the same object.
        is_bounded: may loops that are traced iteration by iteration not fill the trace?

    Raises:
        TraceError: a statement cannot be traced; `LongLoop`: a loop fills the trace.
        OutOfBounds: NumPy refuses an index.
        Exception: what the function itself raises.
    """
    load_table()
    install_audit_hook()
    given = function, structure, leaves, names, options, originals
    if is_bounded or options.run_loops is None:
        return _attempted(*given, is_bounded=is_bounded, speculates=is_bounded and options.speculate)
    try:  # long loops as programs, rather than iteration by iteration
        return _attempted(*given, is_bounded=True)
    except LongLoop:
        return _attempted(*given, is_bounded=False)


def _attempted(
    function: Callable[..., Any],
    structure: PyTree,
    leaves: list[Any],
    names: list[str],
    options: TracingOptions,
    originals: Sequence[Any] | None,
    *,
    is_bounded: bool,
    speculates: bool = False,
) -> Trace:
    """As `trace`; `speculates`: see `Attempts`."""
    attempts = Attempts(options.run_loops is not None, speculates)
    attempts.update(speculates=frozenset(place for place, _ in options.speculated))
    code = python_function(function).__code__
    origin = Origin(code.co_filename, code.co_firstlineno, code.co_name)
    while True:
        attempt = attempts.next
        most = MAX_UNROLLED if attempt.unrolled - attempt.rolled else MAX_OPERATIONS
        most = min(most, MAX_SPECULATED_OPERATIONS) if attempt.speculates else most
        rec = Recorder(options, code.co_name, origin, attempt)
        if is_bounded:  # the recorder alone has it, as it holds frames that are to end with the trace
            rec.unrolled.iterations = Iterations(code, most)
        try:
            with rec.recording(), finalised() as finalisation:
                known = leaves if originals is None else originals
                return _traced(rec, finalisation, function, structure, leaves, known, names)
        except CannotReroll as refusal:
            attempts.refused(rec, refusal)
        except ManyParts as found:
            attempts.update(rolled=attempt.rolled | found.sites)
        except ClassCalled:
            attempts.update(classes=True)
        except MethodConverts:
            attempts.update(traces_methods=True)
        except LongLoop as error:
            attempts.long(rec, error)
        except Exception as error:
            raise_if_signalled(error)
            attempts.failed(rec, error)
        finally:
            forget_classes(rec)


def _traced(
    rec: Recorder,
    finalisation: Finalisation,
    function: Callable[..., Any],
    structure: PyTree,
    leaves: Sequence[Any],
    originals: Sequence[Any],
    names: Sequence[str],
) -> Trace:
    """One run of the function, with the recorder active.

    Raises:
        CannotReroll: with one of its loops taken iteration by iteration it may succeed.
    """

    def seen(leaf: int) -> Any:
        return _stand_in(rec, leaf, leaves[leaf], originals[leaf], names[leaf])

    for leaf, x in enumerate(leaves):
        if isinstance(x, np.ndarray):  # before functions, which may have captured one of them
            seen(leaf)
    args, kwargs = structure.build(seen)
    _watch(rec, (args, kwargs))
    run = replacement(function)
    if run is None:
        run = clone(function) if isinstance(function, types.FunctionType) else wrap_callable(function)
    with settings_kept(rec), NotedWarnings(runs_again=True):
        returned = run(*args, **kwargs)
        rec.unrolled.forget_frames()  # generators that they hold are closed where the function ends
    finalisation.check()
    if rec.loops or rec.rerolled.refused:  # the code has handled the exception that left it
        raise CannotReroll(rec.rerolled.refused or rec.loops[-1].site, "an exception")
    if rec.findings.calls_scalar_types:  # likewise
        raise ClassCalled
    if rec.findings.out_of_bounds:
        raise OutOfBounds
    if rec.refusals:
        raise rec.refusals[0]
    deadline.check("tracing")  # the code may have handled what ended it
    rec.check_watched()
    guard_class_attributes(rec)
    shared = _shared_buffers(returned)
    result = _result(returned, rec, shared, {})
    traced = Trace(rec, result, tuple(rec.caller.written.items()))
    finish_checks(rec, [n for names in traced.goals for n in names])
    return traced


def _stand_in(rec: Recorder, leaf: int, x: Any, original: Any, name: str) -> Any:
    """The stand-in of an argument; the same object has the same one."""
    if not isinstance(x, np.ndarray) and is_run_time(x):
        return HostScalar.leaf(rec.tape, leaf, x)
    if id(original) not in rec.caller.stand_ins:
        rec.caller.stand_ins[id(original)] = original, _first_stand_in(leaf, x, name)
    seen = rec.caller.stand_ins[id(original)][1]
    if isinstance(x, np.ndarray):
        rec.caller.leaves[leaf] = seen.buffer.argument
    return seen


def _first_stand_in(leaf: int, x: Any, name: str) -> Any:
    if isinstance(x, np.ndarray):
        return any_source(whole_array(x, name), name, ("arg", leaf))
    seen = wrap_callable(x) if callable(x) and not isinstance(x, type) else x
    return captured_object(x, AccessPath(None, leaf, "leaf")) if seen is x else seen


def _watch(rec: Recorder, x: Any, path: tuple[Any, ...] = ()) -> None:
    """Look after the lists and dicts in the arguments `x`, which the function may not change, and note where they are.

    By their types: what stands for an object says that it is one.
    """
    for key, y in x.items() if isinstance(x, dict) else enumerate(x):
        rec.watched.add(y, "argument")
        if issubclass(type(y), (list, tuple, dict)):
            if path:
                rec.caller.containers[id(y)] = y, (*path, key)
            _watch(rec, y, (*path, key))


def _shared_buffers(x: Any) -> Counter[TracedBuffer]:
    """How many times each buffer is returned; the same array twice counts once."""
    counts: Counter[TracedBuffer] = Counter()
    seen: set[int] = set()

    def visit(x: Any) -> None:
        if id(x) in seen:
            return
        seen.add(id(x))
        if is_tracer(x) or type(x) is ComplexTracer:
            counts[x.buffer.root] += 1
        elif isinstance(x, (list, tuple)):
            for y in x:
                visit(y)
        elif type(x) in (dict, OrderedDict):
            for y in x.values():
                visit(y)
        else:
            for y in (_fields_of(x) or {}).values():
                visit(y)

    visit(x)
    return counts


def _fields_of(x: Any) -> dict[str, Any] | None:
    """The fields of an object that the function makes; None: it is none, or may be one that was there before.

    What was there before holds nothing that is traced.
    """
    found = fields_of(x)
    return found if found is not None and _holds_traced(list(found.values()), set()) else None


def _holds_traced(x: Any, seen: set[int]) -> bool:
    if id(x) in seen:
        return False
    seen.add(id(x))
    if is_tracer(x) or is_host(x) or type(x) in (ComplexTracer, MaskedRead):
        return True
    if type(x) in (list, tuple, dict, OrderedDict) or hasattr(type(x), "_fields"):
        return any(_holds_traced(y, seen) for y in (x.values() if isinstance(x, dict) else x))
    fields = fields_of(x)
    return fields is not None and any(_holds_traced(y, seen) for y in fields.values())


_ITSELF = object()  # the result that an object is, while its fields are looked at
_Made = dict[int, tuple[Any, Any]]  # by the identity of what is returned: itself, and its `Result` or `PyTree`


def _result(x: Any, rec: Recorder, shared: Counter[TracedBuffer], made: _Made) -> Any:
    """The returned value, as a `Result` or a `PyTree`; identical objects have identical results."""
    if id(x) not in made:
        made[id(x)] = x, _new_result(x, rec, shared, made)
    found = made[id(x)][1]
    if found is _ITSELF:
        raise rec.error("return", f"a {type(x).__name__} that holds itself", "return arrays and numbers")
    return found


def _new_result(x: Any, rec: Recorder, shared: Counter[TracedBuffer], made: _Made) -> Any:
    x = plain_class(x)
    t = type(x)
    if is_tracer(x):
        return _array_result(x, rec, shared)
    if t is ComplexTracer:
        return _complex_result(x, rec, shared)
    if t is MaskedRead:
        found = forward.compacted(x)
        if found is None:
            raise rec.error("return", "an array read under a boolean mask: its length depends on the image's values")
        return Result("compacted", found.rows, value=found)
    if t is NumberDict and x.entry is None:
        return PyTree(x.made_as, (), None if x.made_as.cls is set else ())
    if t in (NumberList, NumberStack, NumberDict):
        return _result(x.result(), rec, shared, made)
    if t is GrownList:
        columns = tuple(forward.compacted(read) for read in x.reads())
        if None in columns:
            raise x.refusal("return")
        return Result("list", columns[0].rows, value=ListOfItems(x.item, columns))
    if is_host(x):
        return Result("host", value=x.k)
    if id(x) in rec.watched.containers and t is not np.ndarray and rec.caller.path_of(x) is None:
        raise rec.error(
            RETURNED, f"it is the {t.__name__} itself, which outlives the call", "return a copy", InherentError
        )
    if t in (list, tuple) or (isinstance(x, tuple) and hasattr(t, "_fields")):
        return PyTree(t, tuple(_result(y, rec, shared, made) for y in x), caller_path=rec.caller.path_of(x))
    if t is set and len(x) < 2:  # the order of others is that in which they were inserted
        return PyTree(set, tuple(_result(y, rec, shared, made) for y in x))
    if t in (dict, OrderedDict):
        items = tuple(_result(y, rec, shared, made) for y in x.values())
        return PyTree(t, items, tuple(x), rec.caller.path_of(x))
    fields = None if rec.findings.reads_uninitialised else _fields_of(x)
    if fields is not None:
        made[id(x)] = x, _ITSELF
        return PyTree(
            MakeObject.of(class_of(t)), tuple(_result(y, rec, shared, made) for y in fields.values()), tuple(fields)
        )
    if t is Size:
        x = int(x)
    elif t is np.ndarray and not x.dtype.hasobject:  # objects may be traced arrays
        return Result("constant", value=x)
    elif t is slice:  # its parts may be sizes, or numbers of the caller
        if any(is_tracer(v) for v in (x.start, x.stop, x.step)):
            raise rec.error("return", "a slice of computed numbers", "return the numbers")
        x = slice(*(int(v) if type(v) is Size else static_value(v) for v in (x.start, x.stop, x.step)))
    elif not isinstance(x, (bool, int, float, complex, str, bytes, type(None), slice, np.generic, np.dtype, type)):
        raise rec.error("return", f"a {t.__name__}", "return arrays, numbers, or tuples, lists and dicts of them")
    return Result("static", value=x)


def _array_result(x: Tracer, rec: Recorder, shared: Counter[TracedBuffer]) -> Result:
    buffer, root = x.buffer, x.buffer.root
    viewed = None if root.viewed is None or x.is_scalar else root.viewed[0]
    if viewed is not None and (viewed.argument or shared[viewed]):
        raise rec.error("return", "a view at a computed place, which shares memory with its array", COPY_IT)
    other = None if root is buffer else x.dtype
    if root.argument and not x.is_scalar:
        if x.is_whole and root is buffer and not x.read_only:
            return Result("argument", buffer.argument, is_view=not any(x is y for y in rec.caller.tracers))
        if _is_strided(x):
            return Result(
                "view", root.argument, shape=rec.polys(x.shape), index=x.index, dtype=other, read_only=x.read_only
            )
    if x.known is not None and shared[root] == 1:
        return Result(
            "constant", value=x.known.copy("K"), is_scalar=x.is_scalar, weak=x.weak, read_only=not x.writeable
        )
    if shared[root] > 1 and _is_strided(x) and not x.is_scalar:
        if root.source() not in rec.stages:
            root.version = _copied(rec, root)
        computed = Result("view", root.source(), shape=rec.polys(x.shape), index=x.index, is_computed=True)
        return replace(computed, dtype=other, read_only=x.read_only)
    is_fixed = not x.writeable and not x.is_scalar
    is_new = buffer.source() in rec.stages or any(
        e.product is not None and buffer.source() in e.gives for e in rec.breaks
    )
    if x.is_whole and is_new:
        return Result("array", buffer.source(), is_scalar=x.is_scalar, weak=x.weak, read_only=is_fixed)
    axes = x.axes
    if axes is not None and is_new and not x.is_scalar:
        return Result(
            "array", buffer.source(), order=tuple(axes.index(k) for k in range(len(axes))), read_only=is_fixed
        )
    stage = rec.stage(x.at(identity(x.ndim)), x.shape, x.dtype)
    return Result("array", stage.name, is_scalar=x.is_scalar, weak=x.weak, read_only=is_fixed)


def _complex_result(x: ComplexTracer, rec: Recorder, shared: Counter[TracedBuffer]) -> Result:
    found = _array_result(x.parts, rec, shared)
    if found.order and found.order[-1] != x.ndim:  # the parts of a number do not lie side by side
        stage = rec.stage(x.parts.at(identity(x.ndim + 1)), x.parts.shape, x.parts.dtype)
        found = Result("array", stage.name)
    if found.kind == "constant":
        return replace(found, value=complex_of(found.value), is_scalar=x.is_scalar)
    return replace(found, is_complex=True, is_scalar=x.is_scalar, weak=x.weak)


def _copied(rec: Recorder, buffer: Any) -> str:
    whole = Tracer(buffer, buffer.shape, identity(len(buffer.shape)))
    return rec.stage(whole.load(), buffer.shape, buffer.dtype).name


def _is_strided(x: Tracer) -> bool:
    """Can NumPy's strides express the view? Views with quotients are of reshaped arrays, checked to be in order.

    A quotient of sizes alone, such as the length that ``reshape(5, -1)`` finds, is a number as sizes are.
    """
    atoms = (a for p in x.index for a in deep_atoms(p))
    moving = (sum(poly(a).has(Dim) for a in m) for p in x.index for m in p.terms)
    return all(isinstance(a, (Sym, Dim, FloorDiv, Mod)) for a in atoms) and all(n <= 1 for n in moving)
