"""Extern calls: functions that are not traced, but called with real arrays at the same point of every call."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.graph import identity
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, any_known
from hjit.trace.tracing.arrays.scalar_class import plain_class
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    call,
    from_known,
    is_tracer,
    made_of_sizes,
    python_float,
    python_int,
)
from hjit.trace.tracing.complex_memory import complex_of, supported_complex
from hjit.trace.tracing.externs.callbacks import check_callbacks
from hjit.trace.tracing.externs.opaque import Opaque, refusal
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.events import FilledArguments
from hjit.trace.tracing.recording.extern_calls import ExternCall, record_extern_call
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.recording.results import ExternResult, Unknown, as_part_of, call_extern, rebuild
from hjit.trace.tracing.scalars.host import TapeEntry, is_host, known_number, static_captured
from hjit.trace.tracing.scalars.size import Size
from hjit.trace.tracing.writeable import is_writeable


def concrete(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a real function with real arguments; an array that it returns is one of the trace's own."""
    check_callbacks(f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', '?')}", args, kwargs)
    if not made_of_sizes((args, (*kwargs.values(),))):
        return owned(_once(function, args, kwargs))
    return _of_sizes(owned(_once(function, known_number(args), {k: known_number(x) for k, x in kwargs.items()})))


def _once(function: Any, args: Any, kwargs: Any) -> Any:
    """A call that is made while the function is traced, and not again: its warnings are given at every call."""
    with forward.NotedWarnings():
        return function(*args, **kwargs)


def _of_sizes(result: Any) -> Any:
    """A result that follows from sizes: its arrays, and scalars of NumPy, are no part of the kernel."""
    if type(result) in (list, tuple):
        return type(result)(map(_of_sizes, result))
    if isinstance(result, np.generic) and supported_dtype(result.dtype):
        result = from_known(result, is_scalar=True)
    if is_tracer(result):
        result.buffer.of_sizes = True
    return result


def owned(result: Any, given: Sequence[Any] = (), originals: Sequence[Tracer] = ()) -> Any:
    """A result with known arrays of the trace in place of arrays of kernels' dtypes, `originals` for those `given`."""
    found = as_part_of(result, given)
    if found is not None:
        return rebuild(found, originals, _no_array)
    if type(result) is np.ndarray and (supported_dtype(result.dtype) or supported_complex(result.dtype)):
        known = any_known(result)
        known.buffer.writeable = is_writeable(result)
        return known
    if type(result) in (list, tuple):
        return type(result)(owned(x, given, originals) for x in result)
    if isinstance(result, tuple) and hasattr(type(result), "_fields"):
        return type(result)(*(owned(x, given, originals) for x in result))
    return result


def _no_array(kind: str, number: int) -> Any:
    raise AssertionError("the outcome has no new arrays")


def extern_call(
    name: str,
    function: Any,
    args: Any,
    kwargs: Any,
    checkpoint: Callable[[], Callable[[], None]] | None = None,
    rule: str = "",
) -> Any:
    """An extern stage: at every call its inputs are realised and the original function is called.

    Where all inputs are known, it is called now.

    A function that draws random numbers has a `checkpoint`, one whose errors are bounded a `rule`: see `GraphBreak`.
    """
    return Extern(name, function, args, kwargs, checkpoint, rule).result()


class Extern:
    """A call of an extern function: its arguments with places for the arrays."""

    may_write = False  # to its arguments

    def __init__(
        self,
        name: str,
        function: Any,
        args: Any,
        kwargs: Any,
        checkpoint: Callable[[], Callable[[], None]] | None = None,
        rule: str = "",
    ) -> None:
        check_callbacks(name, args, kwargs)
        self.name, self.function, self.checkpoint, self.rule = name, function, checkpoint, rule
        self.arguments = Arguments()
        self.frozen = self.arguments.freeze((tuple(args), dict(kwargs)))
        self.settings = tuple(again() for again in current().externs.contexts)
        self.caller = _calling_from(forward.traced_line())

    def result(self) -> Any:
        """What the call gives to the traced function."""
        contents = [t.known for t in self.arguments.tracers]
        if self.checkpoint is None and all(k is not None for k in contents):
            return self.known([k.copy() for k in contents if k is not None])
        needs, places = self.arguments.needs()

        def call(*arrays: np.ndarray[Any, Any], unread: Collection[int] = ()) -> ExternResult:
            alone = frozenset(n for n, k in enumerate(places) if k in unread and places.count(k) == 1)
            return self.call([arrays[k] for k in places], alone)

        arguments = self.filled(places)
        extern = ExternCall(self.name, call, needs, self.checkpoint, self.rule, arguments, self.function)
        done = record_extern_call(current(), extern)
        done.may_write = self.may_write
        return self.rebuild(done.value, done.gives)

    def filled(self, places: Sequence[int]) -> FilledArguments | None:
        """The arguments for a library other than NumPy; None where they are more than arrays and constants.

        Args:
            places: of each array, which of those it is that are realised for the call.
        """
        if self.may_write or self.checkpoint is not None or self.settings or self.arguments.has_numbers:
            return None
        return lambda array: self.arguments.put(self.frozen, lambda k, *about: array(places[k], *about))

    def known(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        """The result for known arrays."""
        return owned(_once(self.ready(arrays)[0], (), {}))

    def call(self, arrays: Sequence[np.ndarray[Any, Any]], unread: frozenset[int]) -> ExternResult:
        """The outcome of a call with these arrays; `unread`: those that nothing reads afterwards."""
        return call_extern(*self.ready(arrays), self.checkpoint is not None)

    def ready(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Callable[[], Any], list[Any]]:
        """The function on arguments with these arrays in them, and each array as it is given."""
        views: dict[int, Any] = {}
        args, kwargs = self.arguments.fill(self.frozen, arrays, (), views)

        def real() -> Any:
            return self.run(args, kwargs)

        return _within(self.settings, real) if self.settings else real, [views[k] for k in range(len(arrays))]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call itself, with real arguments."""
        return self.caller(self.function, args, kwargs)

    def rebuild(self, outcome: Any, gives: Sequence[str]) -> Any:
        """The result that an outcome stands for; `gives`: the inputs that its arrays are."""
        try:
            return rebuild(
                outcome,
                self.arguments.originals,
                functools.cache(lambda kind, number: extern_result(gives[number], kind)),
            )
        except Unknown as unknown:
            raise current().error(self.name, str(unknown), "call it outside the function") from None


_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__


def _calling_from(line: Any) -> Callable[..., Any]:
    """Calls a function as a line of the user's does, to which its warnings point; None: as the line that calls the
    traced function, which is this one itself, at each call."""
    if line is None:
        return lambda *given: _called_by(forward.calling_line())(*given)
    return _called_by(line)


def _called_by(line: Any) -> Callable[..., Any]:
    """Calls a function as a line does; None: it is not known."""
    if line is None:
        return types.FunctionType(_CALL, globals())
    name = line.function
    code = _CALL.replace(co_filename=line.filename, co_firstlineno=line.line, co_name=name, co_qualname=name)
    return types.FunctionType(code, line.names)


class _ObjectCall(Extern):
    """A call of an object that the user has, and may change between calls of the traced function."""

    def __init__(self, seen: Opaque, value: Any, args: Any, kwargs: Any) -> None:
        cls = type(value)
        super().__init__(f"{cls.__module__}.{cls.__qualname__}", value, args, kwargs)
        self.seen = seen

    def known(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        raise refusal(self.seen, " of what is the same at every call")


@provides
def object_call(seen: Opaque, value: Any, args: Any, kwargs: Any) -> Any:
    """A call of an object that traced code sees as `seen`: as it is, at every call."""
    return _ObjectCall(seen, value, static_captured(args), static_captured(kwargs)).result()


def extern_result(name: str, kind: str) -> Any:
    """What stands for an array that an extern call returns; `kind`: see `results.rebuild`."""
    rec = current()
    source = rec.inputs[name]
    shape = tuple(rec.size(p) for p in source.input.shape)
    strides = None if source.array.flags.c_contiguous else source.array.strides
    buffer = TracedBuffer(shape, source.input.dtype, name, strides=strides)
    t = Tracer(buffer, shape, identity(len(shape)), is_scalar=kind == "scalar")
    if kind.startswith("complex"):
        return ComplexTracer(t.copy(order="K"), is_scalar=kind != "complex")
    if kind in ("float", "int"):
        number: Tracer = python_float(t) if kind == "float" else python_int(t)
        return number
    return t.copy(order="K") if shape else t


class _Placeholder:
    """The place of an array in the arguments of an extern call."""

    __slots__ = ("is_complex", "number", "scalar", "shape", "weak")

    def __init__(
        self, number: int, shape: tuple[int, ...], scalar: bool, weak: bool = False, is_complex: bool = False
    ) -> None:
        self.number, self.shape, self.scalar, self.weak, self.is_complex = number, shape, scalar, weak, is_complex


class Arguments:
    """The arguments of a call that is made later, with real arrays in the places of tracers.

    Attributes:
        originals: the tracers, each once.
        tracers: whole arrays with their contents, of complex ones the parts; axes are in the order of `orders`.
        orders: the axes of each, from the slowest to the fastest as NumPy's array has them in memory.
    """

    def __init__(self, late: bool = False) -> None:
        """`late`: the caller's numbers are read when the call is made; else their values are guards of the trace."""
        self.late = late
        self.originals: list[Any] = []
        self.tracers: list[Tracer] = []
        self.orders: list[tuple[int, ...]] = []

    def freeze(self, x: Any) -> Any:
        """The argument with a `_Placeholder` for each tracer."""
        if is_tracer(x):
            return _Placeholder(self._number(x, x), tuple(map(int, x.shape)), x.is_scalar, x.weak)
        if type(x) is ComplexTracer:
            return _Placeholder(self._number(x, x.parts), tuple(map(int, x.parts.shape)), x.is_scalar, is_complex=True)
        if is_host(x):
            return TapeEntry(x.k) if self.late else x.make_static()
        if type(x) in (list, tuple):
            return type(x)(map(self.freeze, x))
        if type(x) is dict:
            return {k: self.freeze(v) for k, v in x.items()}
        if type(x) is Opaque:
            raise refusal(x)
        return int(x) if type(x) is Size else plain_class(x)

    def _number(self, x: Any, array: Tracer) -> int:
        """Of a tracer whose numbers are those of `array`."""
        known = next((k for k, t in enumerate(self.originals) if t is x), None)
        if known is not None:
            return known
        straight = tuple(range(array.ndim))
        keeps = array.is_whole or current().options.postpone is not None  # Dask's arrays are in no order
        order = straight if keeps else forward.copy_order(array)
        if type(x) is ComplexTracer and order[-1:] != straight[-1:]:  # parts of a number are side by side
            order = straight
        array = array if order == straight else call(np.transpose, array, order)
        self.originals.append(x)
        self.orders.append(order)
        self.tracers.append(array if array.is_whole else array.copy())
        return len(self.originals) - 1

    def needs(self) -> tuple[tuple[str, ...], list[int]]:
        """The stages and inputs that the arrays are, each once, and for each array which of them."""
        sources = [t.buffer.source() for t in self.tracers]
        needs = tuple(dict.fromkeys(sources))
        return needs, [needs.index(s) for s in sources]

    def fill(
        self, x: Any, arrays: Sequence[Any], values: Sequence[Any] = (), views: dict[int, Any] | None = None
    ) -> Any:
        """An argument of `freeze` with the arrays in their places.

        Args:
            values: of the tape.
            views: filled with the arrays as the function gets them, each one object.
        """
        views = {} if views is None else views
        if type(x) is TapeEntry:
            return values[x.k]
        if type(x) is _Placeholder:
            if x.number not in views:
                shape, axes = self._in_memory(x)
                a = arrays[x.number].reshape(shape)
                a = (complex_of(a) if x.is_complex else a).transpose(axes)
                views[x.number] = a.item() if x.weak else a[()] if x.scalar else a
            return views[x.number]
        if type(x) in (list, tuple):
            return type(x)(self.fill(y, arrays, values, views) for y in x)
        return {k: self.fill(v, arrays, values, views) for k, v in x.items()} if type(x) is dict else x

    def _in_memory(self, x: _Placeholder) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the array that is realised, of a complex one's parts, and its axes as the function has them."""
        order = self.orders[x.number]
        shape = tuple(x.shape[k] for k in order)
        own = order[:-1] if x.is_complex else order
        return shape, tuple(sorted(range(len(own)), key=own.__getitem__))

    @property
    def has_numbers(self) -> bool:
        """Is one of the arrays given as a number?"""
        return any(t.is_scalar or getattr(t, "weak", False) for t in self.originals)

    def put(self, x: Any, array: Callable[[int, tuple[int, ...], bool], Any]) -> Any:
        """An argument of `freeze` with arrays in their places, which `array` gives: see `FilledArguments`."""
        if type(x) is _Placeholder:
            shape, axes = self._in_memory(x)
            found = array(x.number, shape, x.is_complex)
            return found if axes == tuple(range(len(axes))) else found.transpose(axes)
        if type(x) in (list, tuple):
            return type(x)(self.put(y, array) for y in x)
        return {k: self.put(v, array) for k, v in x.items()} if type(x) is dict else x


@contextlib.contextmanager
def within(settings: Sequence[Callable[[], Any]]) -> Iterator[None]:
    """Inside all of these contexts, made anew."""
    with contextlib.ExitStack() as stack:
        for make in settings:
            stack.enter_context(make())
        yield


def _within(settings: Sequence[Callable[[], Any]], function: Callable[[], Any]) -> Callable[[], Any]:
    def method() -> Any:
        with within(settings):
            return function()

    return method
