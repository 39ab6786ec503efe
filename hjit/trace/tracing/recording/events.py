"""What a trace records besides stages: sources of inputs, graph breaks, conditions, effects, indices to check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.errors import Origin
from hjit.trace.ir.graph import Input
from hjit.trace.ir.poly import Poly
from hjit.trace.ir.programs.steps import Program
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.results import ExternResult


@dataclass(slots=True)
class Source:
    """An input array of the trace: the array itself, and where later calls find theirs.

    `where` is ("arg", leaf), ("captured", path), ("constant",) or ("event", number, leaf). A `packed` array is read
    through a copy in C order; of a complex one `array` is its parts, see `hjit.trace.tracing.arrays.complex_tracer`.
    """

    input: Input
    array: np.ndarray[Any, Any]
    where: tuple[Any, ...]
    packed: bool = False
    is_complex: bool = False


# The arguments of an extern call, positional and named, from what gives the array in a place: by its number among
# `GraphBreak.needs`, its shape in the order of its memory, and whether its last axis is the parts of complex numbers
FilledArguments = Callable[[Callable[[int, tuple[int, ...], bool], Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(slots=True)
class GraphBreak:
    """A point at which the trace is cut: a decision on a computed scalar, or an extern call.

    Attributes:
        needs: stages and inputs that must be computed before it.
        value: the value of a decision, or the outcome of an extern call; later calls compare theirs with it.
        call: makes an extern call on the arrays of `needs`; None for a decision.
        gives: the input names of the resulting arrays in later segments.
        operation: a name for reports.
        checkpoint: for a call that draws random numbers: returns a function that restores the stream.
        product: set if the call is a matrix product.
        program: set if the call runs a loop program.
        rule: how errors of the arguments of an extern call propagate: "monotone" if it is monotone in each argument,
            "arrangement" if it only reorders elements; "" if that must be found by experiment.
        arguments: for an extern call that a GPU library may make instead; else None.
        is_reordered: does such a library make it, with other roundings than NumPy's?
        may_write: may an extern call write to its arrays? Then they are copied, except those that nothing reads
            afterwards (positions in `needs`, passed to `call` as `unread`).
        origin: the user's line.
    """

    needs: tuple[str, ...]
    value: Any = None
    call: Callable[..., ExternResult] | None = None
    gives: tuple[str, ...] = ()
    operation: str = ""
    checkpoint: Callable[[], Callable[[], None]] | None = None
    product: Product | None = None
    program: Program | None = None
    rule: str = ""
    arguments: FilledArguments | None = None
    is_reordered: bool = False
    may_write: bool = False
    origin: Origin | None = None

    @property
    def impure(self) -> bool:
        """Is its result new at every call?"""
        return self.checkpoint is not None


@dataclass(frozen=True, slots=True)
class ExpectedOutcome:
    """The outcome of a condition in an earlier process.

    Attributes:
        condition: its expression as text, shortened.
    """

    file: str
    line: int
    condition: str
    value: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """A warning or a log record, given by each call that ends without an exception.

    Attributes:
        give: takes the realised arrays of `needs`, and the values of the tape.
        blocked: is the plain function to run now instead?
        origin: the user's line.
    """

    needs: tuple[str, ...]
    give: Callable[..., None]
    blocked: Callable[[], bool] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class CheckedIndices:
    """A stage of indices into an axis of some length. If one of the `scatters` runs, it checks all of them."""

    stage: str
    length: Poly
    scatters: set[str] = field(default_factory=set)
