"""What `Pipeline.report` says, as values: of the kernels that run, of the search that chose them, of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hjit.errors import Origin
from hjit.report.performance.costs import Costs
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
    """Memory of a stage that each task has for itself.

    Attributes:
        shape: in elements.
        circular: the axis along which it is a window that slides; None: there is none.
    """

    shape: tuple[int, ...]
    bytes: int
    circular: int | None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel.

    Attributes:
        where: in which part of the function it is; empty: the function is not taken apart.
        seconds: measured now; None: `why_untimed`.
        read, written: bytes of its inputs and outputs, each once: the least that it moves.
        costs: None: `why_no_costs`.
        candidates: none: `why_no_candidates`.
        lines: predicted seconds by line of source.
    """

    where: str
    graph: Graph
    tree: Root
    sizes: Mapping[str, int]
    buffers: Mapping[str, Buffer]
    read: int
    written: int
    seconds: float | None
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

    def least_seconds(self, bandwidth: float) -> float:
        """What moving its bytes takes; `bandwidth`: of a copy, which reads and writes each byte."""
        return (self.read + self.written) / (2 * bandwidth)


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
    """A line of source, its predicted seconds, and what is said of it."""

    number: int
    text: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report says.

    Attributes:
        machine: facts by name, see `hjit.model.names.MACHINE`; None: nothing runs on the CPU's kernels.
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
