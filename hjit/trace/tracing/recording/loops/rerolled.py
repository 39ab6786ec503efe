"""State of re-rolled loops besides stages; see `hjit.trace.capture.loops`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hjit.trace.ir.poly import Atom, Poly
from hjit.trace.tracing.scalars.induction import LoopSite

MOST = 1 << 53  # of an int of Python that loops carry, or a list holds: a float64 holds it, too
HALF = MOST // 2  # of what it begins with, or is set to; and of all that is added to it


@dataclass(eq=False, slots=True)
class RerolledLoops:
    """What the loops whose iterations are traced as one know of each other.

    Attributes:
        refused: the last loop that turned out to need iterations traced one by one.
        nests: of loops that write several places in each iteration, by the arrays that they write, while loops run.
        carried_ints: ints of Python that loops carry, by the arrays that hold them.
        python_ints: stages that hold the result of an operation on such ints.
        small_ints: arrays of such ints that stay within ``-2**53 .. 2**53``.
        clamped: of indices that are in range behind a condition alone, what they are where it holds.
        conditions: of loops of one iteration at most what is carried, and how, by where they begin.
        branches: how many sides of conditions were traced.
        parts: of a condition that is traced in parts these, by their places.
        implied: for a condition and its outcome the conditions that have this outcome then, too.
        comparisons: of variables of loops, by the stages that hold the outcomes.
        program: what the loops of the program that is recorded now have recorded so far; None: none is.
        slice_bounds: stages that bounds of slices in it were taken for: they must stay what they are.
        growing: lists that the present loop fills, by their identity.
        stacks: lists that loops inside of the present one make and take items from, and dicts and sets that they make
            and fill, by where they do.
        numbers: arrays of known numbers in programs, by dtype, shape and bytes.
    """

    refused: LoopSite | None = None
    nests: dict[str, Any] = field(default_factory=dict)
    carried_ints: dict[str, Any] = field(default_factory=dict)
    python_ints: set[str] = field(default_factory=set)
    small_ints: set[str] = field(default_factory=set)
    clamped: dict[Atom, Poly] = field(default_factory=dict)
    conditions: dict[Any, dict[str, Any]] = field(default_factory=dict)
    branches: int = 0
    parts: dict[tuple[Any, int], str] = field(default_factory=dict)
    implied: dict[tuple[str, bool], tuple[str, ...]] = field(default_factory=dict)
    comparisons: dict[str, Any] = field(default_factory=dict)
    program: Any = None
    slice_bounds: set[str] = field(default_factory=set)
    growing: dict[int, Any] = field(default_factory=dict)
    stacks: dict[tuple[str, str], Any] = field(default_factory=dict)
    numbers: dict[Any, str] = field(default_factory=dict)
