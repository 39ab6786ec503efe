"""The way of a new key of arguments: trace, canonicalise, schedule, compile, bind.

The trace runs the function on tracers (`hjit.trace.capture`). A `Variant` makes the rest of it: it cuts the trace into segments at decisions,
canonicalises their Graphs, finds or searches schedules (`hjit.tuning.plans`), and takes kernels from the cache or compiles them
(`hjit.kernels.runtime.kernel`).
"""

from __future__ import annotations

import logging
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hjit.arguments import leaf_names
from hjit.errors import CompileError, HjitError, Origin, TraceError
from hjit.kernels.runtime import kernel
from hjit.kernels.runtime.kernel import Bound
from hjit.options import Options
from hjit.process import deadline
from hjit.process.deep_stack import with_deep_stack as with_room_for
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.trace import Trace, trace
from hjit.trace.passes.canonical import canonicalise
from hjit.variant import OutOfBounds, Variant, element_strides

log = logging.getLogger("hjit")


class Unclear(Exception):
    """Tracing raised an exception: the function's own, or a gap of hjit. No effect of the function has happened yet."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class Built:
    """What runs calls with a key.

    Attributes:
        results: of the extern calls that the trace made, which the first run need not make again, by the number of the event.
        compiled, loaded: kernels, new and from the disk cache.
    """

    variant: Variant
    results: dict[int, tuple[Any, ...]]
    compiled: int
    loaded: int


def build(function: Any, name: str, structure: Any, leaves: list[Any], options: Options) -> Built:
    """Everything that a first call does before it runs.

    Args:
        structure: how `leaves`, the arguments with containers opened, are put together.

    Raises:
        BudgetError: there is no time for that.
        TraceError: the function cannot be traced.
        CompileError: a fault of hjit.
        OutOfBounds: an index is out of bounds: NumPy is to say so itself.
        Unclear: tracing raised something, perhaps what the function itself raises.
    """
    if not isinstance(function, types.FunctionType):
        raise TraceError(repr(function), "not a Python function", "decorate a function written in Python")
    code = function.__code__
    start, before = time.perf_counter(), kernel.made()
    with (
        few_collections(),
        deadline.budget(options.budget, name, Origin(code.co_filename, code.co_firstlineno, code.co_name)),
    ):
        traced = _traced(function, structure, leaves, options)
        results = _results_of_externs(traced)  # a variant keeps no array of the call
        deadline.blame(traced.recorder.busiest())
        variant = _compiled(name, traced, structure, leaves, options)
    compiled, loaded = (now - then for now, then in zip(kernel.made(), before, strict=True))
    log.debug("%s: built in %.4f s, %d kernels compiled", name, time.perf_counter() - start, compiled)
    return Built(variant, results, compiled, loaded)


def _traced(function: types.FunctionType, structure: Any, leaves: list[Any], options: Options) -> Trace:
    def evaluated(rec: Any, wanted: tuple[str, ...]) -> list[Any]:
        return list(with_room(evaluate, rec, wanted, leaves, options))

    try:
        names = leaf_names(function, structure, len(leaves))
        traced: Trace = with_room(trace, function, structure, leaves, names, evaluated, options.product_by_blas)
    except (HjitError, MemoryError, OutOfBounds):
        raise
    except Exception as error:
        raise Unclear(error) from None
    traced.recorder.take_back()  # random numbers are drawn when the variant runs
    events = traced.recorder.breaks
    if any(e.impure for e in events) and any(e.call is None for e in events):
        raise TraceError(
            "numpy.random",
            "random numbers together with a decision on values",
            "draw the random numbers outside the function",
        )
    return traced


def _compiled(name: str, traced: Trace, structure: Any, leaves: list[Any], options: Options) -> Variant:
    try:
        variant: Variant = with_room(Variant, traced, structure, options, leaves)
        return variant
    except (HjitError, MemoryError):
        raise
    except RecursionError:
        why = "its operations follow from one another hundreds deep: a loop whose iterations were traced one by one"
        raise TraceError(name, why, "write the loop as `for i in range(...)`, or compute with whole arrays") from None
    except Exception as error:
        raise CompileError(f"{name}: {type(error).__name__} while compiling: {error}. Please report this.") from error


def _results_of_externs(traced: Trace) -> dict[int, tuple[Any, ...]]:
    rec = traced.recorder
    calls = ((k, e) for k, e in enumerate(rec.breaks) if e.call is not None and not e.impure)
    return {k: tuple(rec.inputs[n].array for n in e.gives) for k, e in calls}


def evaluate(rec: Any, names: tuple[str, ...], leaves: list[Any], options: Options) -> list[Any]:
    """Stages of an unfinished trace, computed by compiled kernels on the arrays at hand."""
    found = {n: rec.inputs[n].array for n in names if n in rec.inputs}
    wanted = tuple(dict.fromkeys(n for n in names if n not in found))
    if wanted:
        graph = canonicalise(rec.graph(wanted))
        bound = Bound(
            graph,
            replace(options, schedule=None),
            rec.sizes,
            {n: element_strides(s.array) for n, s in rec.inputs.items()},
        )
        values = rec.tape.replay(leaves)
        slots = rec.scalar_slots()
        outputs = bound.new_outputs()
        with deadline.paused():
            is_inside = bound.run(
                [rec.inputs[n].array for n in bound.inputs], outputs, [values[slots[n][0].k] for n, _ in bound.scalars]
            )
        if not is_inside:
            rec.beyond = True
            raise IndexError("index out of bounds")
        found.update(zip(wanted, outputs, strict=True))
    return [found[n] for n in names]


def with_room(f: Callable[..., Any], *args: Any) -> Any:
    """``f(*args)``, however deep the stack of the caller is; kernels that another thread makes for it count here."""

    def counted() -> tuple[Any, int, tuple[int, int]]:
        before = kernel.made()
        result = f(*args)
        compiled, loaded = (now - then for now, then in zip(kernel.made(), before, strict=True))
        return result, threading.get_ident(), (compiled, loaded)

    result, thread, made = with_room_for(counted)
    if thread != threading.get_ident():
        kernel.count(*made)
    return result
