"""Compiled functions of other packages: extern calls that may write to their arguments.

Such a function is called on copies. What it has changed there becomes a new version of the traced array. Which arrays
that are is part of the call's outcome: where a later call changes others too, the function is traced again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hjit.errors import TraceError
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import has_tracer
from hjit.trace.tracing.arrays.writing import write
from hjit.trace.tracing.dispatch import functions
from hjit.trace.tracing.externs.calls import Extern, concrete, extern_result, owned
from hjit.trace.tracing.frames import site
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.recording.results import ExternResult, call_extern
from hjit.trace.tracing.recording.state.watched import CONTAINERS, contents, same_items
from hjit.trace.tracing.scalars.host import static_captured
from hjit.trace.tracing.writeable import is_writeable

Array = np.ndarray[Any, Any]


class Foreign:
    """A compiled function as traced code sees it: an extern stage where it is given a tracer.

    Cython's fused functions are indexed by types.

    Attributes:
        writes: the numbers of the arrays, in the order of the arguments, that some call has written to.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = ".".join(
            filter(None, (getattr(function, "__module__", None), getattr(function, "__name__", repr(function))))
        )
        self.writes: set[int] = set()
        functools.update_wrapper(self, function, updated=())

    def __getitem__(self, types: Any) -> Foreign:
        return foreign(self.function[types])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = static_captured(args), static_captured(kwargs)
        if not has_tracer(args) and not has_tracer(kwargs):
            return concrete(self.function, args, kwargs)
        traced = functions().get(self.function)
        return traced(*args, **kwargs) if traced else self.extern(args, kwargs)

    def extern(self, args: Any, kwargs: Any, name: str = "") -> Any:
        """The call as a stage, whose outputs are the results and the contents of the arrays that it wrote to.

        Args:
            name: of the function, as users know it.
        """
        return _Writing(self, args, kwargs, name or self.name).result()


@functools.lru_cache(maxsize=1024)
def foreign(function: Any) -> Foreign:
    """One for each function, so that it keeps what it learns about it."""
    return Foreign(function)


class _Writing(Extern):
    """A call on copies of the arrays.

    Attributes:
        writes: the arrays whose contents are outputs, whether this call changes them or not.
        written: those whose contents were outputs when it was traced.
    """

    may_write = True

    def __init__(self, function: Foreign, args: Any, kwargs: Any, name: str) -> None:
        super().__init__(name, function.function, args, kwargs)
        self.learnt, self.origin = function.writes, site()[0]
        self.written: frozenset[int] = frozenset()
        given = self.arguments.originals
        self.writes = frozenset(
            k for k, t in enumerate(given) if k in function.writes and t.writeable and not self._is_shared(k)
        )

    def result(self) -> Any:
        breaks = current().breaks
        before = len(breaks)
        try:
            return super().result()
        except Exception:  # which the traced function may handle, and it may have written before
            if len(breaks) > before and breaks[before].value[0][0] == "raised":
                self._write_back(breaks[before].value, breaks[before].gives)
            raise

    def known(self, arrays: Sequence[Array]) -> Any:
        copies = self._copies(arrays)
        real, given = self.ready(copies)
        try:
            result = self._checked(real)
        except TraceError as refusal:
            current().refusals.append(refusal)
            raise
        finally:
            for k, (a, b) in enumerate(zip(arrays, copies, strict=True)):
                if not _same_bits(a, b):
                    self._write(k, b)
        return owned(result, given, self.arguments.originals)

    def call(self, arrays: Sequence[Array], unread: frozenset[int]) -> ExternResult:
        unread = frozenset(k for k in unread if is_writeable(arrays[k]) and self.arguments.originals[k].writeable)
        copies = self._copies(arrays, unread)
        real, given = self.ready(copies)
        found = call_extern(functools.partial(self._checked, real), given, False)
        if any(np.may_share_memory(a, b) for a in found.arrays for b in copies):
            reason, advice = (
                "it returns a part of an array that it is given",
                "take that part by slices, reshape and view",
            )
            refusal = TraceError(self.name, reason, advice, self.origin)
            return ExternResult(("raised", TraceError, refusal.args), (), refusal)
        pairs = enumerate(zip(arrays, copies, strict=True))
        changed = {k for k, (a, b) in pairs if k not in unread and not _same_bits(a, b)}
        self.learnt |= changed
        written = tuple(sorted(self.writes | changed | (unread & self.written)))
        return ExternResult((found.outcome, written), (*found.arrays, *(copies[k] for k in written)), found.error)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's result; lists and the like, of which it is given copies, have to stay as they are.

        Raises:
            TraceError: they do not.
        """
        before = [(x, contents(x)) for x in _containers((args, kwargs))]
        try:
            return super().run(args, kwargs)
        finally:
            for x, items in before:
                if not same_items(contents(x), items):
                    reason = f"it changes a {type(x).__name__} that it is given"
                    raise TraceError(self.name, reason, "call it outside the function", self.origin)

    def _copies(self, arrays: Sequence[Array], unread: frozenset[int] = frozenset()) -> list[Array]:
        copies = [x if k in unread else x.copy("K") for k, x in enumerate(arrays)]
        for copy, x, t in zip(copies, arrays, self.arguments.originals, strict=True):
            copy.flags.writeable = is_writeable(x) and t.writeable
        return copies

    def rebuild(self, outcome: Any, gives: Sequence[str]) -> Any:
        self.written = frozenset(outcome[1])
        self._write_back(outcome, gives)
        return super().rebuild(outcome[0], gives)

    def _write_back(self, outcome: Any, gives: Sequence[str]) -> None:
        """Make what was written the contents of the traced arrays."""
        _, written = outcome
        for k, name in zip(written, gives[len(gives) - len(written) :], strict=True):
            self._write(k, extern_result(name, "array"))

    def _write(self, k: int, contents: Any) -> None:
        x = self.arguments.originals[k]
        if self._is_shared(k):
            raise current().error(
                self.name, "it writes to memory that two of its arguments share", "give it a copy of the other one"
            )
        target = x.parts if type(x) is ComplexTracer else x
        order = self.arguments.orders[k]  # of its axes in memory, as the contents have them
        contents = contents.reshape(tuple(target.shape[axis] for axis in order))
        write(target, contents.transpose(sorted(range(len(order)), key=order.__getitem__)))

    def _is_shared(self, k: int) -> bool:
        """Does another argument show the same memory?"""
        x, others = self.arguments.originals[k], self.arguments.originals
        return any(other.buffer.root is x.buffer.root for other in others if other is not x)

    def _checked(self, real: Any) -> Any:
        """The function's result; an array that the trace does not know has to stay as it is.

        Raises:
            TraceError: it does not.
        """
        untraced = [(x, x.copy()) for x in _arrays(self.frozen)]
        try:
            return real()
        finally:
            for x, before in untraced:
                if not _same_bits(x, before):
                    x[...] = before
                    raise TraceError(
                        self.name,
                        "it writes to an array that is not traced",
                        "make that array in the function",
                        self.origin,
                    )


def _arrays(x: Any) -> Iterator[Array]:
    """The real arrays among arguments."""
    if isinstance(x, np.ndarray):
        yield x
    elif type(x) in (list, tuple, dict):
        for y in x.values() if type(x) is dict else x:
            yield from _arrays(y)


def _containers(x: Any) -> Iterator[Any]:
    """The lists and the like among arguments, and in tuples and one another."""
    if issubclass(type(x), CONTAINERS):
        yield x
    if type(x) in (list, tuple, dict):
        for y in x.values() if type(x) is dict else x:
            yield from _containers(y)


def _same_bits(a: Array, b: Array) -> bool:
    if a.dtype.hasobject or a.dtype.itemsize not in (1, 2, 4, 8):
        return a.tobytes() == b.tobytes()
    word = f"u{a.dtype.itemsize}"
    return np.array_equal(a.view(word), b.view(word))
