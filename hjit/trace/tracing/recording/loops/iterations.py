"""How much of a trace comes from iterations of Python loops.

A trace grows with each iteration, and so does the time to compile it. Beyond some number of operations the loop is
left to Python, and its body is compiled once.
"""

from __future__ import annotations

from collections import Counter
from inspect import CO_GENERATOR
from types import CodeType, FrameType

from hjit.trace.tracing.frames import is_code_of

# Operations in iterations after the first ones of loops. The applications of benchmarks/apps are to be compiled whole:
# stencil_chain has 2,428 of them, nl_means 1,308. Loops over a `range` that could not be traced as one iteration are
# long, mostly over rows; that limit, and those below, are chosen, not measured.
MAX_OPERATIONS, MAX_UNROLLED = 3000, 300
MAX_SPECULATED_OPERATIONS = 1000  # of loops that run in parts if the outcomes of their conditions are not speculated on
MANY_ITERATIONS = 8  # from which on those are a loop, and not a list of what there is to do
# Of one instruction in iterations after the first one. What is decided on differs from image to image, and a loop with
# many decisions goes on until something converges; calls are as many at each call, those of a list of filters, say.
MAX_DECISIONS, MAX_CALLS = 2, 8
# Operations of all that is computed for these. A decision computes what is before it anew, a call what is after the
# call before it.
MAX_RECOMPILED = 1000

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
        self.operations = self.count = self._again = self._realised = 0

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

    def repeat_breaks(
        self, operations: int, most: int, is_call: bool, frame: FrameType | None, called: FrameType
    ) -> bool:
        """A segment of a trace of so many operations ends: do `most` of them end in a loop? See `are_too_many`."""
        begun, self._realised = self._realised, operations if is_call else self._realised
        self._look(frame, called)
        if not self._is_inside():
            return False
        place = tuple((frame.f_code, at) for frame, at in self._stack)
        self._breaks[place] += 1
        self._again += operations - begun if is_call else operations
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
