"""Python loops that are traced iteration by iteration.

Short loops that write many parts of an array are traced again, as one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType

from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.frames import traced_frame
from hjit.trace.tracing.recording.loops.iterations import Iterations
from hjit.trace.tracing.scalars.induction import LoopSite

MAX_PARTS = 32  # of an array that one instruction writes: compiling each takes some 20 ms (chosen)


@dataclass(frozen=True, slots=True)
class RunningLoop:
    """A loop that is traced iteration by iteration.

    Attributes:
        frame: runs it.
        first, end: the offsets of its head, and of what follows it.
    """

    frame: FrameType
    first: int
    end: int

    def is_running(self, frame: FrameType) -> bool:
        """Is a frame in one of its iterations?"""
        return frame is self.frame and self.first < frame.f_lasti < self.end


class ManyParts(BaseException):
    """Iterations of short loops write many parts of an array; not an `Exception`, so that the traced code does not
    handle it.

    Attributes:
        sites: the loops, which are to be traced as one iteration.
    """

    def __init__(self, sites: frozenset[LoopSite]) -> None:
        super().__init__("short loops write many parts of an array")
        self.sites = sites


@dataclass(frozen=True, slots=True)
class ShortLoop(RunningLoop):
    """A loop over a short range.

    Attributes:
        variable, start: its variable, and the first number that this is.
    """

    variable: str
    start: int

    def is_beginning(self) -> bool:
        """Is it in its first iteration?"""
        now = self.frame.f_locals.get(self.variable)
        return type(now) is int and now == self.start


class WrittenParts:
    """Counts the parts of arrays that each instruction writes, and knows the short loops that it may be in."""

    def __init__(self) -> None:
        self._loops: dict[LoopSite, ShortLoop] = {}  # the latest of each
        self._parts: dict[tuple[CodeType, int], set[tuple[Poly, ...]]] = {}

    def begin(self, site: LoopSite, loop: ShortLoop) -> None:
        """A short loop begins that could be traced as one iteration."""
        self._loops[site] = loop

    def write(self, index: tuple[Poly, ...]) -> None:
        """The present instruction writes a part of an array, given by an index for each axis.

        Raises:
            ManyParts: it has written many others, in iterations of short loops.
        """
        frame = traced_frame()[0] if self._loops else None
        if frame is None:
            return
        parts = self._parts.setdefault((frame.f_code, frame.f_lasti), set())
        parts.add(index)
        if len(parts) > MAX_PARTS and (sites := frozenset(self._around(frame))):
            raise ManyParts(sites)

    def _around(self, frame: FrameType | None) -> Iterator[LoopSite]:
        """The loops that the present instruction is in, but those around all that have come to a second iteration."""
        running = []
        while frame is not None:
            found = [(loop.first, site, loop) for site, loop in self._loops.items() if loop.is_running(frame)]
            running += sorted(found, key=lambda x: -x[0])
            frame = frame.f_back
        while running and running[-1][2].is_beginning():
            running.pop()
        return (site for _, site, _ in running)


class UnrolledLoops:
    """The loops that are traced iteration by iteration.

    Attributes:
        iterations: counts the operations in them, so that a long loop is not unrolled; None: any number is allowed.
        parts: of arrays, if short loops write many of them.
        has_short: was a loop unrolled that could have been re-rolled?
        short: the short loops that were met.
        too_long: the outermost loop that could be a program, once iterations have filled the trace.
    """

    def __init__(self) -> None:
        self.iterations: Iterations | None = None
        self.parts = WrittenParts()
        self.has_short = False
        self.short: set[LoopSite] = set()
        self.too_long: frozenset[LoopSite] = frozenset()
        self._loops: dict[LoopSite, RunningLoop] = {}  # that could be programs: the latest of each

    def begin(self, site: LoopSite, loop: RunningLoop) -> None:
        """A loop begins that could be a program."""
        self._loops[site] = loop

    def forget_frames(self) -> None:
        """Drop the frames of traced code, and the variables in them."""
        self.iterations = None
        self.parts = WrittenParts()
        self._loops.clear()

    def outermost(self) -> frozenset[LoopSite]:
        """The outermost one that the present instruction is in, if it is in any."""
        found: frozenset[LoopSite] = frozenset()
        frame = traced_frame()[0] if self._loops else None
        while frame is not None:
            running = [(loop.first, site) for site, loop in self._loops.items() if loop.is_running(frame)]
            if running:
                found = frozenset({min(running, key=lambda x: x[0])[1]})
            frame = frame.f_back
        return found
