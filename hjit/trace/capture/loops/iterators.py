"""Loops of traced functions over ranges and arrays, with ``enumerate`` and ``zip``, over the places of arrays, and
``while``: the iterations at once, where the body allows that.

A range whose ends move with the iteration of a loop around it, as ``range(y, n)``, runs over all numbers that it has in
any of these, and its iterations do nothing where it has not.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from hjit.trace.capture.loops.bytecode import loops
from hjit.trace.capture.loops.found import found_by
from hjit.trace.capture.loops.rerolling import Iterations, Limit, TracedLoop
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import SMALL, Indirect, poly
from hjit.trace.tracing.arrays.number_lists import NumberList
from hjit.trace.tracing.arrays.traced import Traced
from hjit.trace.tracing.arrays.tracer import as_tracer, is_tracer, python_int, stage_of
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.loops.unrolled import RunningLoop, ShortLoop
from hjit.trace.tracing.recording.recorder import Recorder, current, tracing
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, LoopSite, as_traced, extreme
from hjit.trace.tracing.scalars.size import Size

MAX_TAPS = 128  # iterations of a loop that has nothing to do with a size: they unroll into one expression
MAX_PROGRAM = 1 << 24  # iterations of a ``while`` of a program, which ends where its condition does not hold any more
MAX_WHILE = 64  # iterations of a ``while`` in a loop that is no program: with more, Python runs


def range_(*args: Any) -> Any:
    """``range`` for traced functions."""
    frame = sys._getframe(1)
    if type(frame.f_globals) is not dict and tracing() and current().records_program and any(map(_is_computed, args)):
        found = _computed(args, frame)
        if found is not None:
            return found
    if any(type(a) is InductionVariable for a in args):
        return _moving(args, frame)
    plain = range(*(operator.index(static_value(a)) for a in args))
    if len(plain) < 2 or type(frame.f_globals) is dict or not tracing():
        return plain
    sizes = [a if type(a) is Size else operator.index(static_value(a)) for a in args]
    start, stop = sizes[:2] if len(sizes) > 1 else (0, sizes[0])
    is_short = len(plain) <= MAX_TAPS and not any(type(n) is Size for n in (start, stop))
    if (len(plain) <= SMALL or is_short) and not _is_rolled(plain, frame):
        return plain
    step = plain.step
    span = stop - start if step > 0 else start - stop
    count = span if abs(step) == 1 else (span + (abs(step) - 1)) // abs(step)
    found = traced_loop(frame, Iterations(start, step, count))
    return plain if found is None else found


def _is_rolled(plain: range, frame: FrameType) -> bool:
    """Is a short loop traced as one iteration after all? Not one over taps, as one that holds a loop that is left."""
    rec, n = current(), len(plain)
    loop = loops(frame.f_code).get(frame.f_lasti)
    if loop is not None:
        site = frame.f_code, loop.offset
        if rec.options.run_loops is not None:
            rec.unrolled.short.add(site)
        attempt = rec.attempt
        if attempt.is_program(site) or site in attempt.rolled or (n > SMALL and loop.has_exits and not loop.left):
            return True
        if site not in attempt.unrolled:
            start = plain[-1 if loop.is_reversed else 0]
            rec.unrolled.parts.begin(site, ShortLoop(frame, loop.offset, loop.end, loop.variable, start))
            rec.unrolled.begin(site, RunningLoop(frame, loop.offset, loop.end))
    rec.unrolled.has_short |= bool(rec.loops) or n > SMALL
    return (n > SMALL and rec.attempt.rolls_short) or (bool(rec.loops) and rec.attempt.rolls_inside)


def _over(count: Any, frame: FrameType) -> TracedLoop | None:
    """The loop over so many elements that begins in a frame, traced as one iteration; None as `traced_loop`."""
    n = int(count)
    if n < 2 or type(frame.f_globals) is dict or not tracing() or frame.f_lasti not in loops(frame.f_code):
        return None
    is_short = n <= SMALL or (n <= MAX_TAPS and type(count) is not Size)
    if is_short and not _is_rolled(range(n), frame):
        return None
    return traced_loop(frame, Iterations(0, 1, count))


def while_(left: str, *ends: Any) -> Iterable[Any]:
    """What a ``while`` goes through: a program, or inside of a loop whose iterations are traced as one, so are its own.

    Args:
        ends: pairs of a counter of iterations and a number that it stays below, where its condition says that.
    """
    frame = sys._getframe(1)
    if type(frame.f_globals) is dict or not tracing():
        return itertools.repeat(None)
    rec, loop = current(), loops(frame.f_code).get(frame.f_lasti)
    if loop is None or loop.left != left:
        return itertools.repeat(None)
    site = frame.f_code, loop.offset
    if not rec.loops and not rec.attempt.is_program(site):
        rec.unrolled.begin(site, RunningLoop(frame, loop.offset, loop.end))
        return itertools.repeat(None)
    most = _most(ends)
    if most is None and rec.loops and not rec.records_program:
        most = MAX_WHILE
    found = traced_loop(frame, Iterations(0, 1, MAX_PROGRAM if most is None else most, is_bound=True))
    return itertools.repeat(None) if found is None else found


def _most(ends: tuple[Any, ...]) -> Any:
    """How many iterations a ``while`` has at most, and one that ends it; None: nothing says that."""
    known = []
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        begin, end = static_value(begin), static_value(end)
        if all(type(x) in (int, Size) for x in (begin, end)) and end - begin > 0:
            known.append(end - begin + 2)
    return min(known, key=int, default=None)


def leaves(name: str) -> bool:
    """Is the loop that is left here one whose iterations are traced as one? Then the iteration ends."""
    frame = sys._getframe(1)
    if type(frame.f_globals) is dict or not tracing():
        return False
    loop = current().loops[-1:]
    return bool(loop) and loop[0].frame is frame and loop[0].loop.left == name


def _refuse_masked(rec: Recorder, site: LoopSite) -> None:
    """Have a program run a loop inside of another one that can be left: it ends where Python's does, while an update
    of arrays would run all iterations. Nothing happens where programs are not possible."""
    if rec.options.run_loops is not None and not rec.attempt.few_iterations:
        rec.rerolled.refused = site
        raise CannotReroll(site, "it can be left", endless=True)


def traced_loop(frame: FrameType, iterations: Iterations) -> TracedLoop | None:
    """The loop that begins here, traced as one iteration; None where it has to be traced iteration by iteration."""
    loop, rec = loops(frame.f_code).get(frame.f_lasti), current()
    if loop is None or (frame.f_code, loop.offset) in rec.attempt.unrolled:
        return None
    found = found_by(loop, frame)
    if found is None:
        return None
    if loop.left and rec.loops and not rec.records_program:
        _refuse_masked(rec, (frame.f_code, loop.offset))
    return TracedLoop(rec, frame, loop, found, iterations.reversed() if loop.is_reversed else iterations)


# -- ranges that move


def _moving(args: tuple[Any, ...], frame: FrameType) -> TracedLoop:
    """A range one of whose ends moves with a loop around it.

    Raises:
        CannotReroll: that loop has to be traced iteration by iteration.
    """
    moving = next(a for a in args if type(a) is InductionVariable)
    start, stop, step = _ends(args)
    if type(step) is not int or abs(step) != 1 or type(frame.f_globals) is dict or moving.loop not in current().loops:
        raise moving.refusal("a range")
    up = step == 1
    first, last = extreme(start, most=not up), extreme(stop, most=up)
    count = last - first if up else first - last
    if int(count) < 2:
        raise moving.refusal("a range of few numbers")
    limits = []
    if type(start) is InductionVariable:
        limits.append(Limit(operator.ge if up else operator.le, start, operator.lt if up else operator.gt, last))
    if type(stop) is InductionVariable:
        limits.append(Limit(operator.lt if up else operator.gt, stop, operator.gt if up else operator.lt, first))
    found = traced_loop(frame, Iterations(first, step, count, tuple(limits)))
    if found is None or found.loop.is_reversed:
        raise moving.refusal("a range")
    return found


def _is_computed(x: Any) -> bool:
    """Is it a whole number that the program computes?"""
    return is_tracer(x) and x.known is None and not x.ndim and x.dtype.kind == "i"


def _computed(args: tuple[Any, ...], frame: FrameType) -> TracedLoop | None:
    """A range whose ends a program computes; its numbers are computed, too. None: it has another step."""
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if type(step) is not int or abs(step) != 1:
        return None
    start, stop = (python_int(as_tracer(as_traced(x))) for x in (start, stop))
    count = python_int((stop - start) * step)
    current().check(count > MAX_PROGRAM)
    end = poly(Indirect(Load(stage_of(count), (), np.int64), None))
    return traced_loop(frame, Iterations(0, 1, MAX_PROGRAM, computed=(start, step, end)))


def _ends(args: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    known = [a if type(a) in (Size, InductionVariable) else operator.index(static_value(a)) for a in args]
    if len(known) == 1:
        return 0, known[0], 1
    return (known[0], known[1], known[2]) if len(known) > 2 else (known[0], known[1], 1)


# -- loops over arrays, and over ``enumerate`` and ``zip`` of them: over places, as over a range of these


class Elements:
    """What a loop goes through. Whether its iterations are traced as one is known when it begins; until then, this is
    how to make each element.

    Attributes:
        count: how many elements there are.
        at: makes the one at a place.
        one_by_one: all of them, as Python has them.
    """

    def __init__(self, count: Any, at: Callable[[Any], Any], one_by_one: Callable[[], Iterator[Any]]) -> None:
        self.count, self.at, self.one_by_one = count, at, one_by_one
        self._iterator: Iterator[Any] | None = None  # of those who ask for the next one without a loop

    @property
    def has_begun(self) -> bool:
        """Has somebody asked for the first element?"""
        return self._iterator is not None

    def __iter__(self) -> Iterator[Any]:
        found = None if self.has_begun else _over(self.count, sys._getframe(1))
        if found is not None:
            return _Rerolled(found, self.at)
        self._iterator = self._iterator or self.one_by_one()
        return self._iterator

    def __next__(self) -> Any:
        self._iterator = self._iterator or self.one_by_one()
        return next(self._iterator)


class _Rerolled:
    """The elements of a loop that is traced as one iteration."""

    def __init__(self, loop: TracedLoop, at: Callable[[Any], Any]) -> None:
        self.loop, self.at = loop, at

    def __iter__(self) -> _Rerolled:
        return self

    def __next__(self) -> Any:
        return self.at(next(self.loop))


@provides
def iterated(array: Any, frame: FrameType) -> Iterator[Any]:
    """The iterator of an array, which `frame` asks for."""
    found = _over(array.shape[0], frame)
    return _Rerolled(found, array.__getitem__) if found is not None else array.rows()


def enumerate_(iterable: Any, start: Any = 0) -> Any:
    """``enumerate`` for traced functions."""
    elements = _elements(iterable)
    if elements is None:
        return enumerate(iterable, start)
    start = operator.index(static_value(start))
    at, rows = elements.at, elements.one_by_one
    return Elements(elements.count, lambda k: (k + start, at(k)), lambda: enumerate(rows(), start))


def zip_(*iterables: Any, strict: bool = False) -> Any:
    """``zip`` for traced functions."""
    found = [_elements(x) for x in iterables]
    elements = [x for x in found if x is not None]
    if not elements or len(elements) < len(found) or any(x.count != elements[0].count for x in elements[1:]):
        return zip(*iterables, strict=strict)
    return Elements(
        elements[0].count,
        lambda k: tuple(x.at(k) for x in elements),
        lambda: zip(*(x.one_by_one() for x in elements), strict=strict),
    )


def _elements(x: Any) -> Elements | None:
    """What a loop over an array, or over what is made of arrays here, goes through; None of anything else."""
    if type(x) is Elements:
        return None if x.has_begun else x
    is_array = (issubclass(type(x), Traced) and bool(x.shape)) or type(x) is NumberList
    return Elements(x.shape[0], x.__getitem__, x.rows) if is_array else None


# -- loops over places of several axes, as over a range of all of them


def ndindex_(*shape: Any) -> Any:
    """``np.ndindex`` for traced functions."""
    sizes = shape[0] if len(shape) == 1 and type(shape[0]) in (tuple, list) else shape
    sizes = [n if type(n) is Size else operator.index(static_value(n)) for n in sizes]
    plain = tuple(map(int, sizes))
    if len(sizes) < 2 or min(plain) < 1:
        return np.ndindex(*plain)
    return Elements(math.prod(sizes), functools.partial(_place, sizes), lambda: iter(np.ndindex(*plain)))


def ndenumerate_(array: Any) -> Any:
    """``np.ndenumerate`` for traced functions."""
    if not issubclass(type(array), Traced) or not array.ndim:
        return np.ndenumerate(array)

    def rows() -> Iterator[Any]:
        return ((place, array[place]) for place in np.ndindex(*map(int, array.shape)))

    def at(k: Any) -> Any:
        place = _place(array.shape, k)
        return place, array[place]

    return Elements(math.prod(array.shape), at, rows)


def product_(*iterables: Any, repeat: Any = 1) -> Any:
    """``itertools.product`` for traced functions: of ranges, the places are those of an array."""
    repeat = operator.index(static_value(repeat))
    ranges = [x for x in iterables if type(x) is range] * repeat
    if len(ranges) < max(2, len(iterables) * repeat) or not all(map(len, ranges)):
        return itertools.product(*iterables, repeat=repeat)
    sizes = [len(x) for x in ranges]

    def at(k: Any) -> Any:
        places = zip(ranges, _place(sizes, k), strict=True)
        return tuple(x.start + x.step * place for x, place in places)

    return Elements(math.prod(sizes), at, lambda: itertools.product(*ranges))


def _place(sizes: Sequence[Any], k: Any) -> tuple[Any, ...]:
    """The index for each axis of the element that `k` others come before in C order."""
    found = []
    for n in reversed(sizes[1:]):
        found.append(k % n)
        k = k // n
    return (k, *reversed(found))
