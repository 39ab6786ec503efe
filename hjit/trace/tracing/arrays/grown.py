"""Lists that loops fill: ``found.append((y, x))`` where a condition holds.

Each iteration has elements of its own in arrays over all iterations: whether it appends, and what. So iterations do not
wait for each other, and the list is what a boolean-mask read of these arrays gives, in the order of the iterations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import TraceError
from hjit.trace.ir.expressions import Const
from hjit.trace.ir.poly import Poly, poly
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, call, from_stage, is_tracer, python_number
from hjit.trace.tracing.frames import asks_class, is_users
from hjit.trace.tracing.recording.recorder import Recorder, current
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, LoopSite, as_traced

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """What is appended.

    Attributes:
        container: list or tuple; None of a number.
        dtypes: of the numbers.
        are_python: is each a number of Python, rather than NumPy's?
    """

    container: type | None
    dtypes: tuple[np.dtype[Any], ...]
    are_python: tuple[bool, ...]

    @property
    def kinds(self) -> Sequence[tuple[np.dtype[Any], bool]]:
        """For each number its dtype, and whether it is one of Python."""
        return tuple(zip(self.dtypes, self.are_python, strict=True))

    def made(self, columns: Sequence[Array]) -> list[Any]:
        """The list whose items have these numbers: one array, shaped (items,), for each number of an item."""
        pairs = zip(columns, self.are_python, strict=True)
        numbers = [c.tolist() if is_python else list(c) for c, is_python in pairs]
        if self.container is None:
            return numbers[0]
        rows = zip(*numbers, strict=True)
        return list(rows) if self.container is tuple else [list(row) for row in rows]


def list_class(x: Any) -> type:
    """The class of what stands for a list: that, for code that asks for it."""
    frame = sys._getframe(2)
    return list if frame.f_lasti in asks_class(frame.f_code) or is_users(frame) else type(x)


class StandIn:
    """What stands for a list: it refuses what else lists have."""

    __slots__ = ()

    def refusal(self, operation: str) -> BaseException:
        """The exception that has Python run where an operation needs the list itself."""
        raise NotImplementedError

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list_class(self)

    def __repr__(self) -> str:
        raise self.refusal("str")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise self.refusal("conversion to a real array")

    def __contains__(self, x: Any) -> bool:
        raise self.refusal("in")

    def __eq__(self, other: object) -> bool:
        raise self.refusal("==")

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, *other: Any) -> Any:
        raise self.refusal("what else lists have")

    __radd__ = __mul__ = __rmul__ = __iadd__ = __imul__ = __reversed__ = __delitem__ = __add__
    __lt__ = __gt__ = __le__ = __ge__ = __copy__ = __deepcopy__ = __reduce_ex__ = __add__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal(f"list.{name}")


class GrowingList:
    """A list while a loop fills it.

    Attributes:
        list: that the function made; held, as it is known by its identity.
        flags: does an iteration append?
        columns: the numbers that it appends.
    """

    def __init__(self, rec: Recorder, to: list[Any], name: str, item: Item, shape: Sequence[Poly]) -> None:
        sizes = tuple(map(rec.size, shape))

        def array(dtype: np.dtype[Any], name: str) -> Tracer:
            return from_stage(Const(0, dtype), sizes, dtype, name=name)

        self.list, self.item = to, item
        self.flags = array(np.dtype(bool), f"{name}_grows")
        self.columns = tuple(array(dtype, name) for dtype in item.dtypes)
        self._last: Any = None  # the path on which an item was appended last

    @staticmethod
    def loops(rec: Recorder) -> list[Any]:
        """The loops around, of which each iteration has elements of its own."""
        return [loop for loop in rec.loops if loop.iterations.condition is None]

    def append(self, item: Item | None, x: Any) -> None:
        """Note what an iteration appends.

        Raises:
            CannotReroll: it is of another kind, or the second item of an iteration.
        """
        rec = current()
        loops = self.loops(rec)
        path = [(id(loop), loop.serial, len(loop.paths)) for loop in rec.loops]
        if item != self.item or path == self._last or len(loops) != self.flags.ndim:
            raise CannotReroll(rec.loops[0].site, "a list or a dict is changed", growing=False)
        self._last = path
        at = tuple(InductionVariable(loop, 0, loop.trip_count - 1, poly(loop.var)) for loop in loops)
        self.flags[at] = True
        for column, number in zip(self.columns, x if item.container is not None else (x,), strict=True):
            column[at] = as_traced(number)

    def grown(self) -> GrownList:
        """The list after the loop."""
        return GrownList(self.item, self.columns, self.flags)


class GrownList(StandIn):
    """A list that a loop has filled. Its length is computed: what needs the items themselves is a `TraceError`."""

    __slots__ = ("columns", "flags", "item")

    def __init__(self, item: Item, columns: Sequence[Tracer], flags: Tracer) -> None:
        self.item, self.columns, self.flags = item, tuple(columns), flags

    @property
    def is_full(self) -> bool:
        """Has each iteration appended an item?"""
        stage, always = current().stages.get(self.flags.buffer.version), Const(True, np.dtype(bool))
        if stage is None or not self.flags.is_whole:
            return False
        return stage.initial == always or [d.value for d in stage.updates] == [always]

    @property
    def length(self) -> Any:
        """The number of items; an int that is computed."""
        if self.is_full:
            return self.flags.size
        return MaskedRead(self.flags, self.flags).length

    def append(self, x: Any) -> None:
        """Append an item after the loop, of the kind of the others."""
        parts = x if self.item.container is not None else (x,)
        is_alike = type(x) is self.item.container or self.item.container is None
        is_alike = is_alike and len(parts) == len(self.columns) and [kind_of(p) for p in parts] == [*self.item.kinds]
        if current().loops or not is_alike:
            raise self.refusal("list.append")
        columns = [call(np.append, c.reshape(-1), p) for c, p in zip(self.columns, parts, strict=True)]
        self.flags = call(np.append, self.flags.reshape(-1), True)
        self.columns = tuple(c.astype(d) for c, d in zip(columns, self.item.dtypes, strict=True))

    def reads(self) -> tuple[MaskedRead, ...]:
        """The numbers of the items: for each column, or of several of the same dtype one read with a last axis."""
        if len(self.columns) > 1 and len(set(self.item.dtypes)) == 1:
            return (MaskedRead(call(np.stack, self.columns, axis=-1), self.flags, "list that a loop fills"),)
        return tuple(MaskedRead(c, self.flags, "list that a loop fills") for c in self.columns)

    def array(self) -> Any:
        """What NumPy makes of it. An empty one has one axis, and float64: that is decided on."""
        if self.length == 0:
            return np.array([])
        dtype = np.result_type(*self.item.dtypes)
        columns = [c.astype(dtype) for c in self.columns]
        full = columns[0] if self.item.container is None else call(np.stack, columns, axis=-1)
        if self.is_full:
            return full.reshape(-1) if self.item.container is None else full.reshape(-1, len(columns))
        return MaskedRead(full, self.flags, "list that a loop fills")

    def __bool__(self) -> bool:
        return bool(self.length != 0)

    def __len__(self) -> int:
        return int(self.length)

    def __iter__(self) -> Any:
        raise self.refusal("loop")

    def __getitem__(self, key: Any) -> Any:
        if not self.is_full or self.item.container is not None or type(key) is slice:
            raise self.refusal("index")
        found = self.columns[0].reshape(-1)[key]
        return python_number(found) if self.item.are_python[0] else found

    def sort(self) -> None:
        """Sort the numbers of a list to which each iteration has appended one."""
        if not self.is_full or self.item.container is not None:
            raise self.refusal("list.sort")
        numbers = self.columns[0].reshape(-1)
        if numbers.dtype.kind == "f":
            current().check(call(np.any, call(np.isnan, numbers)))
        self.columns = (call(np.sort, numbers, kind="stable"),)
        self.flags = flags_of_all(numbers)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self.refusal("assignment to an item")

    def refusal(self, operation: str) -> TraceError:
        """What it raises where its items would have to be known.

        Raises:
            CannotReroll: the number of items is known: then iterations may be traced one by one.
        """
        if self.is_full and current().attempt.grows:
            raise CannotReroll((sys._getframe(2).f_code, 0), f"{operation} of a list that it fills", growing=False)
        reason = "how many items a list has that a loop fills depends on the image's values"
        return current().error(operation, reason, "make an array of it, or return it")


def refused_site() -> LoopSite:
    """The outermost loop, which is noted as refused; outside of loops, what asks for that in the code two calls up."""
    rec = current()
    site = rec.loops[0].site if rec.loops else (sys._getframe(3).f_code, 0)
    rec.rerolled.refused = site
    return site


def flags_of_all(items: Tracer) -> Tracer:
    """The flags of a list that has all these items."""
    return from_stage(Const(True, np.dtype(bool)), items.shape, np.dtype(bool), name="all_items")


def kind_of(x: Any) -> tuple[np.dtype[Any], bool] | None:
    """The dtype of a number, and whether it is one of Python; None of anything else."""
    x = as_traced(x)
    if is_tracer(x):
        return (x.dtype, x.weak) if x.is_scalar and not x.ndim else None
    if isinstance(x, np.generic):
        return x.dtype, False
    return (np.dtype(type(x)), True) if type(x) in (bool, int, float) else None
