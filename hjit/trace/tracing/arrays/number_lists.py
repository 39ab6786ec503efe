"""Lists of numbers that loops index by what they compute: ``hist[v] += 1``, ``table[img[y, x]]``.

Such a list is an array of int64, float64 or bool while the function is traced. Its ints stay within
``-2**53 .. 2**53``: where they may not, each write checks that, and Python runs where it does not hold.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.grown import GrownList, Item, StandIn, flags_of_all, refused_site
from hjit.trace.tracing.arrays.stacks import NumberStack
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    from_known,
    is_tracer,
    python_int,
    python_number,
    python_type,
)
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.loops.rerolled import HALF
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, as_traced
from hjit.trace.tracing.scalars.size import Size

LARGE = 9.2e18  # a float below which a sum has 63 bits, whatever its roundings are
MAX_COMPUTED = 1024  # numbers of a list that are computed one by one
MAX_PLAIN = 1 << 20  # numbers of a list that are known
_DTYPES: dict[Any, Any] = {int: np.int64, float: np.float64, bool: np.bool_}


class Unchanged:
    """Tells whether a list is as it was; other names may change it."""

    def __init__(self, x: Sequence[Any]) -> None:
        self._now, self._before = x, _items(x)

    def lists(self) -> list[list[Any]]:
        """That list, and the lists in it."""
        return [y for y in (self._now, *self._now) if type(y) is list]

    @property
    def holds(self) -> bool:
        """Are all items the same objects?"""
        now = _items(self._now)
        return len(now) == len(self._before) and all(map(operator.is_, now, self._before))


def _items(x: Sequence[Any]) -> list[Any]:
    """The items of a list, and of the lists in it."""
    rows = (row for row in x if type(row) in (list, tuple)) if x and type(x[0]) in (list, tuple) else ()
    return [*x, *(v for row in rows for v in row)]


class NumberList(StandIn):
    """A list whose items are all ints, all floats or all bools of Python, or lists of such ones of one length.

    Attributes:
        array: the items, shaped (items,) or (lists, items of each).
        at: of one of these lists its place.
        plain: the list that it stands for, where it is only read, and its place is known.
        read: that list, or the one that it is in, as it was when the array was made; None of one that is written.
    """

    def __init__(self, array: Tracer, plain: Sequence[Any] | None, row: NumberList | None = None, at: Any = ()) -> None:
        self.array, self.plain, self.at = array, plain, at
        self._grown: list[float] = [0.0] if row is None else row._grown  # how far ints may have come from what was set
        self.read: Unchanged | None = None
        if row is not None:
            self.read = row.read
        elif plain is not None:
            self.read = Unchanged(plain)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the items."""
        found: tuple[int, ...] = self.array.shape[len(self.at) :]
        return found

    @property
    def items(self) -> Tracer:
        """The items as an array."""
        self._check_unchanged()
        found: Tracer = self.array[self.at] if self.at else self.array
        return found

    @property
    def kind(self) -> type:
        """The type of the numbers."""
        return {"i": int, "f": float, "b": bool}[self.array.dtype.kind]

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> Any:
        if type(key) is slice:
            return NumberList(self.items[key].copy(), None if self.plain is None else self.plain[key])
        if self.plain is not None and type(key) in (int, bool):
            found = self.plain[key]
            return found if len(self.shape) == 1 else NumberList(self.array, found, self, (int(key),))
        self._check_unchanged()
        key = self._index(key)
        if len(self.shape) > 1:
            return NumberList(self.array, None, self, (key,))
        if self.kind is int:
            current().rerolled.small_ints.add(self.array.buffer.source())
        return python_number(self.array[(*self.at, key)])

    def __contains__(self, x: Any) -> bool:
        if self.plain is None:
            raise self.refusal("in")
        return x in self.plain

    def _check_unchanged(self) -> None:
        if self.read is not None and not self.read.holds:
            raise self.refusal("it changes while it is read")

    def __setitem__(self, key: Any, value: Any) -> None:
        key = self._index(key) if type(key) is not slice else None
        value = as_traced(value)
        if key is None or len(self.shape) > 1 or self.read is not None or _type_of(value) is not self.kind:
            raise self.refusal("its items become other things than numbers of one type")
        if self.kind is int:
            self._bound(value)
        self.array[(*self.at, key)] = value
        if self.kind is int:
            current().rerolled.small_ints.add(self.array.buffer.version)

    def _bound(self, value: Any) -> None:
        """Have Python run where an item would become a large int; nothing where it cannot."""
        rec = current()
        if not is_tracer(value):
            large = type(value) is int and abs(value) > HALF
            if large:
                raise self.refusal("it holds large ints")
            return
        e = value.load()
        if not rec.loops:
            found = rec.range_of(e)
            if found is None or max(-found[0], found[1]) > HALF:
                rec.check((value < -HALF) | (value > HALF))
            return
        moves = rec.loops[-1].moves(e, self.array.buffer.source())
        times = math.prod(loop.trip_count for loop in rec.loops)
        grown = self._grown[0] + (math.inf if moves is None else float(moves) * times)
        if grown <= HALF:
            self._grown[0] = grown
            return
        rec.findings.checked_int = rec.findings.checked_int or rec.line()
        rec.check((value < -HALF) | (value > HALF))

    def __iter__(self) -> Iterator[Any]:
        return forward.iterated(self, sys._getframe(1))

    def rows(self) -> Iterator[Any]:
        """The items, one by one."""
        return (self[k] for k in range(len(self)))

    def _index(self, key: Any) -> Any:
        """An index as of an array, where a bool would be a mask."""
        key = as_traced(key)
        if is_tracer(key) and key.is_scalar and (key.dtype.kind == "i" or (key.weak and key.dtype.kind == "b")):
            return python_int(key)
        if is_tracer(key) and key.is_scalar and key.dtype.kind == "u":
            return key
        if type(key) in (int, bool, Size, InductionVariable) or isinstance(key, np.integer):
            return key if type(key) in (Size, InductionVariable) else int(key)
        raise self.refusal("an index of it is no int")

    def lists(self) -> list[list[Any]]:
        """The lists that it stands for, where it is only read."""
        return [] if self.read is None else self.read.lists()

    # -- what lists have

    def index(self, value: Any) -> Any:
        """The place of the first item that equals a number."""
        if len(self.shape) > 1:
            raise self.refusal("list.index")
        same = call(np.equal, self.items, as_traced(value))
        current().check(~call(np.any, same))
        return python_int(call(np.argmax, same))

    def count(self, value: Any) -> Any:
        """How many items equal a number."""
        if len(self.shape) > 1:
            raise self.refusal("list.count")
        return python_int(call(np.count_nonzero, call(np.equal, self.items, as_traced(value))))

    def copy(self) -> NumberList:
        """A list of its own."""
        found: NumberList = self[:]
        return found

    def total(self) -> Any:
        """What ``sum`` gives."""
        if len(self.shape) > 1 or (self.kind is float and sys.version_info >= (3, 12)):  # which corrects roundings
            raise self.refusal("sum")
        if self.kind is float:
            return python_number(call(np.cumsum, self.items)[-1])
        if self.kind is int:
            current().check(~(abs(call(np.sum, self.items.astype(np.float64))) < LARGE))
        return python_int(call(np.sum, self.items))

    def extreme(self, function: Any) -> Any:
        """What ``min`` or ``max`` gives, of ints and bools, and of floats where none is a NaN."""
        if len(self.shape) > 1:
            raise self.refusal(function.__name__)
        if self.kind is float:
            current().check(call(np.any, call(np.isnan, self.items)))
            zero = call(np.equal, self.items, 0.0)
            current().check(call(np.any, zero & call(np.signbit, self.items)))  # the first one of 0.0 and -0.0
        return python_number(call(np.max if function is max else np.min, self.items))

    def result(self) -> Any:
        """What the function returns in its place: the list itself, or one that is made of the array.

        Raises:
            CannotReroll: lists of lists.
        """
        if self.plain is not None:
            return self.plain
        if len(self.shape) > 1 or self.read is not None:
            raise self.refusal("it is returned")
        if not len(self):
            return []
        array = self.items.copy()
        return GrownList(Item(None, (array.dtype,), (True,)), (array,), flags_of_all(array))

    def refusal(self, why: str) -> CannotReroll:
        """The exception that leaves lists as they are."""
        return CannotReroll(refused_site(), f"a list of numbers: {why}", indexing=True)

    def __bool__(self) -> bool:
        return len(self) > 0


def number_list(x: Any, is_written: bool, has_own_lists: bool = False) -> NumberList | None:
    """A list as an array; None of one that is no list of numbers of one type.

    Args:
        is_written: are items set? Then the list has no other name.
        has_own_lists: nor have lists in it, if there are any.
    """
    if type(x) is GrownList:
        is_plain = x.item.container is None and x.item.are_python == (True,) and x.is_full
        return NumberList(x.columns[0].reshape(-1).copy(), None) if is_plain else None
    if not (type(x) is list or (type(x) is tuple and not is_written)) or not x or len(x) > MAX_PLAIN:
        return None
    plain = None if is_written else x
    if type(x[0]) in (list, tuple):
        return _of_lists(x, plain) if has_own_lists or not is_written else None
    kinds = set(map(_type_of, x))
    kind = kinds.pop()
    if kinds or kind is None:
        return None
    if not any(map(is_tracer, x)):
        if any(type(v) is Size for v in x) or (kind is int and max(map(abs, x)) > HALF):
            return None
        return NumberList(from_known(np.array(x, _DTYPES[kind])), plain)
    if len(x) > MAX_COMPUTED or kind is int:
        return None
    return NumberList(call(np.stack, [as_tracer(v).astype(_DTYPES[kind]) for v in x]), plain)


@provides
def list_of(a: Any) -> NumberList | None:
    """What ``a.tolist()`` gives, where that is many numbers; None: they are computed one by one.

    Raises:
        TraceError: there are too many for that, and the list is no array.
    """
    rec = current()
    if rec.loops or type(a) is not Tracer:
        return None
    if not rec.attempt.indexes or a.ndim > 2 or a.dtype.kind not in "iufb":
        if a.size > MAX_COMPUTED:
            raise rec.error("tolist", f"a list of {a.size} numbers", "compute with the array")
        return None
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        rec.check(call(np.any, call(np.greater, a, a.dtype.type(HALF))))
        if a.dtype.kind == "i":
            rec.check(call(np.any, call(np.less, a, a.dtype.type(-HALF))))
    dtype = {"f": np.float64, "b": np.bool_}.get(a.dtype.kind, np.int64)
    return NumberList(a.astype(dtype).copy(), None)


def _of_lists(x: Sequence[Any], plain: Sequence[Any] | None) -> NumberList | None:
    """A list of lists of known numbers; none of these lists is in it twice if it is to be written."""
    lengths = {len(row) if type(row) is list or (plain is not None and type(row) is tuple) else -1 for row in x}
    if len(lengths) > 1 or min(lengths) < 1 or len(x) * max(lengths) > MAX_PLAIN:
        return None
    if plain is None and len({*map(id, x)}) < len(x):
        return None
    kinds = {type(v) for row in x for v in row}
    kind = kinds.pop()
    if kinds or kind not in _DTYPES or (kind is int and max(abs(v) for row in x for v in row) > HALF):
        return None
    return NumberList(from_known(np.array(x, _DTYPES[kind])), plain)


def _type_of(x: Any) -> type | None:
    """The type of a number of Python, traced or not; None of anything else."""
    if is_tracer(x):
        return python_type(x) if x.weak and x.is_scalar and not x.ndim else None
    if is_host(x):
        return None
    kind = int if type(x) is Size else type(x)
    return kind if kind in _DTYPES else None


def arrays_of_lists(args: Any, dtype: Any = None) -> Any:
    """Arguments of a call, with arrays in place of lists that loops fill, or write; `dtype`: of the array it makes."""
    if type(args) is tuple and any(type(y) in (GrownList, NumberList, NumberStack) for y in args):
        return tuple(_as_array(x, dtype) for x in args)
    return args


def _as_array(x: Any, dtype: Any) -> Any:
    if type(x) is NumberStack:
        x = x.result()
    if type(x) is GrownList:
        for column, is_python in zip(x.columns, x.item.are_python, strict=True):
            if is_python:
                _check_fits(column, x.flags, dtype)
        return x.array()
    if type(x) is not NumberList:
        return x
    if x.plain is None:
        _check_fits(x.items, True, dtype)
    return x.items.copy() if x.plain is None else x.plain


def _check_fits(x: Any, flags: Any, dtype: Any) -> None:
    """Have Python run where a number of Python is out of the bounds of an array's dtype."""
    if x.dtype.kind not in "if" or dtype is None or not isinstance(dtype, str | type | np.dtype):
        return
    to = np.dtype(dtype)
    if to.kind not in "iu" or np.can_cast(x.dtype, to):
        return
    low, high = np.iinfo(to).min, np.iinfo(to).max
    if x.dtype.kind == "f":
        fits = (x > float(low) - 1) & (x < float(high) + 1)  # of no NaN, either
    else:
        fits = (x >= low) & (x <= min(high, np.iinfo(x.dtype).max))
    current().check(call(np.any, ~fits & flags))
