"""What a trace notes besides its stages: where its inputs are, graph breaks, conditions, effects, indices to check."""

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
    """What cuts the trace: a decision on a computed scalar, or an extern call.

    Attributes:
        needs: what is realised before it.
        value: of a decision, compared at later calls; of an extern call its outcome, compared as well.
        call: of an extern call; takes the realised arrays of `needs`.
        gives: the inputs that the arrays of the outcome are.
        operation: what it is, for reports.
        checkpoint: of a call that draws random numbers; gives what puts their stream back to where it is.
        product: of a call that is a product of matrices.
        program: of a call that is loops that no stage says.
        rule: of an extern call, how errors of its arguments become errors of its results: "monotone", where these grow
            with each argument, "arrangement", where it orders elements; "": that is tried out.
        arguments: of an extern call that another library may make; None: none may.
        is_reordered: does one, whose roundings are not NumPy's?
        may_write: may an extern call write to its arrays? It copies them, but for those that `call` is told nobody else
            reads (`unread`: their numbers among `needs`).
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
    """How a condition in some line came out before, and may come out again.

    Attributes:
        condition: its expression as text, or the beginning of it.
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
    """A stage that holds indices into an axis of some length. One of the `scatters` that runs checks all of them."""

    stage: str
    length: Poly
    scatters: set[str] = field(default_factory=set)
