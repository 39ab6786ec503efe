"""Recording extern calls and BLAS products: called during tracing, and again at every call of a variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hjit.errors import TraceError
from hjit.process import deadline
from hjit.trace.ir.graph import Input
from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.recording.events import FilledArguments, GraphBreak, Source
from hjit.trace.tracing.recording.loops.iterations import MAX_CALLS
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.recording.results import ExternResult
from hjit.trace.tracing.recording.strides import constant_strides


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A call of a function that is not traced.

    Attributes:
        operation, call, needs, checkpoint, rule, arguments: see `GraphBreak`.
        function: the function that `call` calls, with `arguments`.
    """

    operation: str
    call: Callable[..., ExternResult]
    needs: tuple[str, ...]
    checkpoint: Callable[[], Callable[[], None]] | None = None
    rule: str = ""
    arguments: FilledArguments | None = None
    function: Any = None


def record_extern_call(rec: Recorder, extern: ExternCall) -> GraphBreak:
    """Call an extern function on realised arrays, now and at every call; its arrays are inputs.

    Raises:
        Exception: what the function raises; later calls find out whether it does so again.
    """
    rec.break_in_loop(f"calls of {extern.operation}", MAX_CALLS, is_call=True)
    if rec.known.assumed:  # the condition may guard the arguments of the call, so it must not be assumed
        raise rec.error(extern.operation, "a condition before the call is assumed, and not computed")
    outcome, results, error = _postponed(rec, extern) or _called(rec, extern)
    if isinstance(error, TraceError):
        rec.refusals.append(error)
        raise error
    number = len(rec.breaks)
    sources = tuple(rec.input("extern", r, ("event", number, k)) for k, r in enumerate(results))
    made = GraphBreak(
        extern.needs,
        outcome,
        extern.call,
        tuple(s.input.name for s in sources),
        extern.operation,
        extern.checkpoint,
        rule=extern.rule,
        arguments=extern.arguments,
        origin=rec.line(),
    )
    rec.breaks.append(made)
    if error is not None:
        raise error
    return made


def _postponed(rec: Recorder, extern: ExternCall) -> ExternResult | None:
    """What stands for the results of a call that is not to be made now; None: it is."""
    postpone = rec.options.postpone
    if postpone is None or extern.arguments is None:
        return None
    return postpone.extern(rec, extern.operation, extern.function, extern.needs, extern.arguments)


def _called(rec: Recorder, extern: ExternCall) -> ExternResult:
    arrays = rec.options.evaluate(rec, extern.needs) if extern.needs else []
    if extern.checkpoint is not None:
        rec.externs.undo.append(extern.checkpoint())
    rec.externs.is_running = True  # which warns at every call
    try:
        with deadline.paused():
            return extern.call(*arrays)
    finally:
        rec.externs.is_running = False


def record_product(rec: Recorder, name: str, product: Product, shape: Iterable[int | Poly]) -> None:
    """A product by BLAS, now and at every call; its result is an input of the given name."""
    postpone = rec.options.postpone
    if postpone is not None:
        result = postpone.product(rec, product)
    else:
        result = product.compute(rec.options.evaluate(rec, product.needs))
    source = Input(name, product.dtype, rec.polys(shape), constant_strides(result))
    rec.inputs[name] = Source(source, result, ("event", len(rec.breaks), 0))
    rec.breaks.append(GraphBreak(product.needs, (), product.as_extern_result, (name,), "numpy.matmul", product=product))
