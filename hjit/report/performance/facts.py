"""The data of `Pipeline.report`: the kernels that run, the search that chose them, the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hjit.errors import Origin
from hjit.report.performance.costs import Costs, NestFacts
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule that was compared.

    Attributes:
        predicted: seconds; None: the cost model was not asked.
        measured: seconds, when it was compared with the others.
    """

    name: str
    predicted: float | None
    measured: float
    is_chosen: bool
    tree: Root


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a stage that is not in that of the whole image.

    Attributes:
        owner: what has one for itself: a task; on a GPU a block or a thread.
        shape: in elements.
        circular: the axis along which it is a window that slides; None: there is none.
    """

    owner: str
    shape: tuple[int, ...]
    bytes: int
    circular: int | None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel.

    Attributes:
        where: in which part of the function it is; empty: the function is not taken apart.
        limit: seconds that it takes at least, by the machine's bandwidth; on a GPU also by its arithmetic.
        on_device: of a kernel on a GPU what it needs there; else empty.
        seconds: measured now; None: `why_untimed`.
        nests: in order; none where they are not timed.
        stage_seconds: the measured seconds of each stage: those of its nests, shared out by predicted cost. Empty where
            these are not known.
        read, written: bytes of its inputs and outputs, each once: the least that it moves.
        costs: None: `why_no_costs`.
        candidates: none: `why_no_candidates`.
        lines: seconds by line of source, measured as far as `stage_seconds` are, else predicted.
    """

    where: str
    graph: Graph
    tree: Root
    sizes: Mapping[str, int]
    buffers: Mapping[str, Buffer]
    read: int
    written: int
    limit: float
    on_device: str
    seconds: float | None
    nests: tuple[NestFacts, ...]
    stage_seconds: Mapping[str, float]
    why_untimed: str
    costs: Costs | None
    why_no_costs: str
    candidates: tuple[Candidate, ...]
    why_no_candidates: str
    lines: Mapping[Origin, float]

    @property
    def name(self) -> str:
        """Its results."""
        return ", ".join(self.graph.outputs)


@dataclass(frozen=True, slots=True)
class BreakFacts:
    """Where the function is not one kernel: what it is, where, and why.

    Attributes:
        seconds: of a call between kernels, measured once.
    """

    line: int | None
    what: str
    why: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of source, its seconds (see `KernelFacts.lines`), and what is said of it."""

    number: int
    text: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report says.

    Attributes:
        machine: facts by name, see `hjit.model.feature_names.MACHINE`; none where kernels run on a GPU.
        source: lines by the function that they are of.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    options: Mapping[str, Any]
    explained: str
    stats: str
    machine: Mapping[str, float]
    kernels: tuple[KernelFacts, ...]
    why_no_kernels: str
    breaks: tuple[BreakFacts, ...]
    source: Mapping[str, tuple[SourceLine, ...]]
