"""Python loops whose iterations are traced one by one: how much of a trace comes from them.

A trace grows with them, and so does the time to compile it. Beyond some operations the loop is left to Python, and its
body is compiled once. Short loops that write many parts of an array are traced again, as one iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_GENERATOR
from types import CodeType, FrameType

from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.frames import is_code_of, traced_frame
from hjit.trace.tracing.scalars.induction import LoopSite

# Operations in iterations after the first ones of loops. The applications of benchmarks/apps are to be compiled whole:
# stencil_chain has 2,428 of them, nl_means 1,308. Loops over a `range` that could not be traced as one iteration are
# long, mostly over rows; that limit, and those below, are chosen, not measured.
MAX_OPERATIONS, MAX_UNROLLED = 3000, 300
MANY_ITERATIONS = 8  # from which on those are a loop, and not a list of what there is to do
# Of one instruction in iterations after the first one. What is decided on differs from image to image, and a loop with
# many decisions goes on until something converges; calls are as many at each call, those of a list of filters, say.
MAX_DECISIONS, MAX_CALLS = 2, 8
MAX_RECOMPILED = 1000  # operations of all that is computed for these: each computes what is before it anew

MAX_PARTS = 32  # of an array that one instruction writes: compiling each takes some 20 ms (chosen)

CallSites = tuple[tuple[CodeType, int], ...]


class Iterations:
    """Notices where traced code goes round: a frame is back at an instruction that it had passed.

    Attributes:
        operations: those that were recorded in iterations after the first one.
        count: how often some frame went round.
    """

    def __init__(self, code: CodeType, most: int = MAX_OPERATIONS) -> None:
        """`most`: operations in iterations after the first one."""
        self._code, self._most = code, most  # of the function that is traced
        self._stack: list[tuple[FrameType, int]] = []  # at the latest operation, outermost first
        self._loops: dict[FrameType, tuple[int, int]] = {}  # the instructions that its frames go round
        self._breaks: Counter[CallSites] = Counter()
        self.operations = self.count = self._again = 0

    def are_too_many(self, frame: FrameType | None, called: FrameType) -> bool:
        """An operation is recorded: do iterations fill the trace?

        Args:
            frame: the innermost one of traced code.
            called: that of the function which it has called.
        """
        if frame is None or not self._goes_on(frame, called):
            self._look(frame, called)
        if self._loops and self._is_inside():
            self.operations += 1
        return self.operations > self._most and self.count >= MANY_ITERATIONS

    def begin_loop(self, frame: FrameType | None, called: FrameType) -> None:
        """A loop begins whose iterations are traced as one: is it in another iteration of one around it?"""
        self._look(frame, called)

    def go_back(self, frame: FrameType, head: int) -> None:
        """A path through an iteration has ended that stands for all iterations: what follows is no other one.

        Args:
            frame, head: which runs the loop, and the offset of its head.
        """
        k = next((k for k, (f, _) in enumerate(self._stack) if f is frame), len(self._stack))
        self._stack[k:] = [(frame, head)]

    def repeat_breaks(self, operations: int, most: int, frame: FrameType | None, called: FrameType) -> bool:
        """A segment of a trace of so many operations ends: do `most` of them end in a loop? See `are_too_many`."""
        self._look(frame, called)
        if not self._is_inside():
            return False
        place = tuple((frame.f_code, at) for frame, at in self._stack)
        self._breaks[place] += 1
        self._again += operations
        return self._breaks[place] >= most or self._again > MAX_RECOMPILED

    def _is_inside(self) -> bool:
        loops = self._loops
        for frame, at in self._stack:
            if frame in loops:
                first, last = loops[frame]
                if first <= at <= last:
                    return True
        return False

    def _look(self, frame: FrameType | None, called: FrameType) -> None:
        before, self._stack = self._stack, self._frames(frame, called)
        around = self._went_round(before)
        self._loops = {f: self._loops[f] for f, _ in self._stack if f in self._loops}
        if around is not None:
            frame, first, last = around
            low, high = self._loops.get(frame, (first, last))
            self._loops[frame] = min(low, first), max(high, last)
            self.count += 1

    def _goes_on(self, frame: FrameType, called: FrameType) -> bool:
        """Has the innermost frame only gone on to a later instruction, or not even to that? Then no other frame has
        moved, unless it is a generator's, which goes on wherever it is asked to."""
        stack, at = self._stack, frame.f_lasti
        if len(stack) < 2 or stack[-2][0] is not frame or frame.f_code.co_flags & CO_GENERATOR:
            return False
        was = stack[-2][1]
        if at < was or (at == was and stack[-1][0] is not called):
            return False
        stack[-2:] = (frame, at), (called, 0)
        return True

    def _frames(self, frame: FrameType | None, called: FrameType) -> list[tuple[FrameType, int]]:
        """The frames of traced code, and the function of hjit that the innermost has called."""
        found: list[tuple[FrameType, int]] = []
        while frame is not None:
            if type(frame.f_globals) is not dict:
                if not found:
                    found.append((called, 0))
                found.append((frame, frame.f_lasti))
                if is_code_of(frame.f_code, self._code):
                    break
            frame = frame.f_back
        return found[::-1]

    def _went_round(self, before: list[tuple[FrameType, int]]) -> tuple[FrameType, int, int] | None:
        """The frame that is in another iteration than before, with the first and the last instruction of these."""
        inner = [*(f for f, _ in self._stack[1:]), None]
        inner_before = [*(f for f, _ in before[1:]), None]
        for k, ((f, at), (g, was)) in enumerate(zip(self._stack, before, strict=False)):
            if f is not g or at > was:
                return None
            if at < was:
                return f, at, was
            if inner[k] is not inner_before[k]:  # the same instruction has called again
                return None if inner[k] is None or inner_before[k] is None else (f, at, at)
        return None


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


class UnrolledLoops:
    """The loops that are traced iteration by iteration.

    Attributes:
        has_short: was a loop unrolled that could have been re-rolled?
        short: the short loops that were met.
        too_long: the outermost loop that could be a program, once iterations have filled the trace.
    """

    def __init__(self) -> None:
        self.has_short = False
        self.short: set[LoopSite] = set()
        self.too_long: frozenset[LoopSite] = frozenset()
        self._loops: dict[LoopSite, RunningLoop] = {}  # that could be programs: the latest of each

    def begin(self, site: LoopSite, loop: RunningLoop) -> None:
        """A loop begins that could be a program."""
        self._loops[site] = loop

    def forget_frames(self) -> None:
        """Drop the frames of the loops."""
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


# -- parts of arrays


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
