"""Stacks and queues of loops: ``stack.append((y, x))``, and ``y, x = stack.pop()`` while there is something in it.

While the function is traced, each number of an item has an array, with two numbers that say where the items begin and
end in it. Loops that use one are programs, whose iterations run one after the other. Where a stack has more items than
`ITEMS_A_PIXEL` for each pixel of the largest argument, and for what a list refuses, Python runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const
from hjit.trace.ir.poly import Poly, poly
from hjit.trace.tracing.arrays.grown import GrownList, Item, kind_of, refused_site
from hjit.trace.tracing.arrays.tracer import Tracer, call, from_stage, is_tracer, python_int, python_number
from hjit.trace.tracing.recording.recorder import Recorder, current
from hjit.trace.tracing.recording.state.attempt import Stacking
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, as_traced
from hjit.trace.tracing.scalars.size import Size

ITEMS_A_PIXEL = 4  # each pixel is found by its neighbours
MORE_ITEMS = 1024
_STORED = {np.dtype(np.int64): np.dtype(np.int32)}  # of ints of Python: larger ones do not fit, which is checked


class NumberStack:
    """A list or a deque that loops append to and take from.

    Attributes:
        place: where the function makes it.
        item: what it holds; None: nothing is known of that, and it is empty.
        is_inside: is it made by each iteration of a loop?
        given: of one that is, what the last iteration, or call of a function in one, was given in its place.
    """

    def __init__(self, place: tuple[str, str], item: Item | None, is_inside: bool) -> None:
        self.place, self.item, self.is_inside = place, item, is_inside
        self.given = [self]
        self.columns: tuple[Tracer, ...] = ()
        self.begin: Any = None
        self.end: Any = None
        if item is not None:
            self._allocate(item)

    def _allocate(self, item: Item) -> None:
        capacity = current().size(pixels(current()) * ITEMS_A_PIXEL + MORE_ITEMS)
        dtypes = [_STORED.get(d, d) if weak else d for d, weak in zip(item.dtypes, item.are_python, strict=True)]
        self.columns = tuple(from_stage(Const(0, d), (capacity,), d, name="stack") for d in dtypes)
        self.begin, self.end = (from_stage(Const(0, np.int64), (), np.int64, name=n) for n in ("begin", "end"))

    def arrays(self) -> tuple[Tracer, ...]:
        """All that it is."""
        return (*self.columns, self.begin, self.end) if self.item is not None else ()

    def made_again(self, items: Sequence[Any], item: Item | None) -> NumberStack:
        """What stands for the list that an iteration makes, where no other one is used any more."""
        found: NumberStack = object.__new__(NumberStack)
        vars(found).update(vars(self))
        self.given[0] = found
        self.begin[()] = 0
        self.end[()] = 0
        for x in items:
            found.append_item(item, x)
        return found

    def check_in_use(self) -> None:
        """Raise where another one has taken its arrays."""
        if self.given[0] is not self:
            raise no_stack("it is used when another one has been made in its place")

    # -- what lists and deques have

    def append_item(self, item: Item | None, x: Any) -> None:
        """Append one of a kind.

        Raises:
            CannotReroll: it is of another kind than those before, or the first one that is known of.
        """
        self.check_in_use()
        if item is None:
            raise no_stack("it holds other things than numbers")
        if self.item is None:
            raise unknown(self.place, item, self.is_inside)
        if item != self.item:
            raise no_stack("its items are not all of one kind")
        at = self.end[()]
        for column, number in zip(self.columns, x if item.container is not None else (x,), strict=True):
            column[at] = as_traced(number)
        self.end[()] = at + 1

    def pop(self, *place: Any) -> Any:
        """Take the last item, or the first one."""
        if place not in ((), (0,), (-1,)):
            raise no_stack("it takes an item from the middle")
        return self._taken(first=place == (0,))

    def popleft(self) -> Any:
        """Take the first item."""
        return self._taken(first=True)

    def _taken(self, first: bool) -> Any:
        at = self._place(first)
        found = self._item(at)
        if first:
            self.begin[()] = at + 1
        else:
            self.end[()] = at
        return found

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and key in (0, -1):
            return self._item(self._place(first=key == 0))
        return self._item(self._index(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        at = self._index(key)
        assert self.item is not None
        if self.item.container is not None or kind_of(value) != self.item.kinds[0]:
            raise no_stack("its items become other things")
        self.columns[0][at] = as_traced(value)

    def _index(self, key: Any) -> Any:
        """Where an item is; where there is none, Python runs."""
        self.check_in_use()
        if self.item is None:
            raise no_stack("it is empty")
        key = as_traced(key)
        is_whole = type(key) in (int, Size, InductionVariable) or (
            is_tracer(key) and key.is_scalar and key.dtype.kind in "iu"
        )
        if not is_whole:
            raise no_stack("an index of it is no int")
        in_program()
        length = self.end[()] - self.begin[()]
        at = call(np.int64, key) if not is_tracer(key) else key.astype(np.int64)
        current().check((at >= length) | (at < -length))
        return call(np.where, at < 0, self.end[()], self.begin[()]) + at

    def grown(self) -> GrownList:
        """The list that it is, after all loops."""
        assert self.item is not None
        self.check_in_use()
        places = call(np.arange, self.columns[0].shape[0])
        flags = (places >= self.begin[()]) & (places < self.end[()])
        columns = [c.astype(d) for c, d in zip(self.columns, self.item.dtypes, strict=True)]
        return GrownList(self.item, columns, flags)

    def result(self) -> Any:
        """What the function returns in its place."""
        return [] if self.item is None else self.grown()

    def _place(self, first: bool) -> Any:
        """Where the first or the last item is; where there is none, Python runs."""
        self.check_in_use()
        if self.item is None:
            raise no_stack("it is empty")
        in_program()
        current().check(self.end[()] <= self.begin[()])
        return self.begin[()] if first else self.end[()] - 1

    def _item(self, at: Any) -> Any:
        assert self.item is not None
        numbers = [self._number(c[at], weak) for c, weak in zip(self.columns, self.item.are_python, strict=True)]
        return numbers[0] if self.item.container is None else self.item.container(numbers)

    @staticmethod
    def _number(x: Tracer, is_python: bool) -> Any:
        own = from_stage(x.load(), (), x.dtype, is_scalar=True)  # the array may be written before it is used
        return python_number(own) if is_python else own

    def __bool__(self) -> bool:
        if self.item is None:
            return False
        self.check_in_use()
        in_program()
        return bool(self.end[()] > self.begin[()])

    @property
    def length(self) -> Any:
        """The number of items; an int that is computed."""
        if self.item is None:
            return 0
        self.check_in_use()
        in_program()
        for x in (self.begin, self.end):
            current().rerolled.small_ints.add(x.buffer.source())
        return python_int(self.end[()] - self.begin[()])

    def __len__(self) -> int:
        return int(self.length)

    def __iter__(self) -> Any:
        raise no_stack("loop")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_stack(name)


def in_program() -> None:
    """Have what is traced now become a program.

    Raises:
        CannotReroll: it is none yet.
    """
    rec = current()
    if rec.records_program:
        return
    sites = [rec.loops[0].site] if rec.loops else [*rec.unrolled.outermost()]
    if not sites:  # after the loops, or before them
        return
    if rec.attempt.few_iterations:
        raise no_stack("no program may be recorded")
    rec.rerolled.refused = sites[0]
    raise CannotReroll(sites[0], "it has a stack", endless=True)


def unknown(place: tuple[str, str], item: Any, is_inside: bool) -> CannotReroll:
    """The exception that tells the next attempt what a stack holds."""
    return CannotReroll(refused_site(), "a list or a dict is changed", stacking=Stacking(place, item, is_inside))


def no_stack(why: str) -> CannotReroll:
    """The exception that leaves lists as they are."""
    return CannotReroll(refused_site(), f"a list that it takes items from: {why}", stacking=False)


def stack_of(x: Any, place: tuple[str, str], items: Sequence[Item | None]) -> Any:
    """A list or a deque that the function has just made, and takes items from, as arrays; `items`: what it holds.

    Raises:
        CannotReroll: what it holds was not known when the loop around began.
    """
    rec = current()
    if type(x) not in (list, deque) or None in items or len(set(items)) > 1:
        return x
    noted = {s.place: s.item for s in rec.attempt.stacks}
    item = items[0] if items else noted.get(place)
    if not rec.loops:
        found = NumberStack(place, item, is_inside=False)
        for y in x:
            found.append_item(item, y)
        return found
    if item is None:
        return NumberStack(place, None, is_inside=True)
    known: NumberStack | None = rec.rerolled.stacks.get(place)
    if known is None:
        raise unknown(place, item, is_inside=True)
    in_program()
    return known.made_again(x, item)


def pixels(rec: Recorder) -> Poly:
    """How many elements the largest argument has."""
    shapes = [i.input.shape for i in rec.inputs.values()]
    largest = max(shapes, key=lambda s: math.prod(rec.size(n) for n in s), default=())
    found = poly(1)
    for n in largest:
        found = found * n
    return found
