"""Dicts and sets that loops only read: ``lut[v]``, ``lut.get(v, 0)``, ``if v in edges``.

While the function is traced, such a dict is arrays of constants: the values, and a table of the places where they are.
Of ints that lie close together the table has an element each; of others, and of tuples of ints, it is a hash table in
which no key is far from where it would be, so that a look-up has a few steps, and is an expression.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from hjit.trace.tracing.arrays.grown import Array, StandIn, kind_of, refused_site
from hjit.trace.tracing.arrays.number_dicts import Kind, key_of, mixed, number_kind
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, is_tracer, python_bool, python_number
from hjit.trace.tracing.recording.loops.rerolled import HALF
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.induction import CannotReroll, LoopNumber, as_traced

MAX_KEYS = 4096  # as of captured containers whose items are looked at
MAX_SPAN = 1 << 17  # elements of a table of ints that lie close together
MAX_STEPS = 6  # of a look-up in a hash table
_DICTS = (dict, OrderedDict, defaultdict, Counter, MappingProxyType)
_SETS = (set, frozenset)
_INT = (np.dtype(np.int64), True)  # the kind of ints of Python
_Find = Callable[[Sequence[Any]], Any]


class LookupTable(StandIn):
    """A dict or a set of known ints, or tuples of these, that is only read.

    Attributes:
        plain: it itself.
        find: gives for the numbers of a key its place, from 1 on, or 0 where there is none.
        values: from place 1 on; None of a set, and where they are no numbers of one kind.
        kind: of the values.
    """

    def __init__(self, plain: Any, find: _Find, is_tuple: bool, parts: int) -> None:
        self.plain, self.find, self.is_tuple, self.parts = plain, find, is_tuple, parts
        self._before = _contents(plain)
        self.values: Tracer | None = None
        self.kind: Kind | None = None

    def objects(self) -> list[Any]:
        """What must not change while it is read."""
        return [self.plain] if type(self.plain) in (dict, list) else []

    def __getitem__(self, key: Any) -> Any:
        at = self._place(key)
        if at is None:
            return self.plain[key]
        if type(self.plain) is Counter:
            return self.get(key, 0)
        if self.values is None or type(self.plain) is defaultdict:
            raise self.refusal("a missing key")
        return self._value(call(np.where, at == 0, self.values.shape[0], at))  # which no index is: Python runs

    def get(self, key: Any, *default: Any) -> Any:
        """A value, or another one where there is no such key."""
        at = self._place(key)
        if at is None:
            return self.plain.get(key, *default)
        if self.kind is None or len(default) != 1 or number_kind(default[0]) != self.kind:
            raise self.refusal("get with a value of another kind")
        found = call(np.where, at == 0, as_tracer(as_traced(default[0])).astype(self.kind[0]), self._value(at))
        return python_number(found) if self.kind[1] else found.astype(self.kind[0])

    def has(self, key: Any) -> Any:
        """Is there such a key? A bool that may be computed."""
        at = self._place(key)
        return key in self.plain if at is None else python_bool(at != 0)

    def __contains__(self, key: object) -> bool:
        return bool(self.has(key))

    def _place(self, key: Any) -> Any:
        """Where a key is; None of one that is known."""
        now = _contents(self.plain)
        if len(now) != len(self._before) or not all(map(operator.is_, now, self._before)):
            raise self.refusal("it changes while it is read")
        numbers = key if type(key) is tuple else (key,)
        if not any(is_tracer(x) or issubclass(type(x), LoopNumber) for x in numbers):
            return None
        found = key_of(key)
        if found is None or (type(key) is tuple) is not self.is_tuple or len(found[1]) != self.parts:
            raise self.refusal("keys of another kind")
        return self.find(found[1])

    def _value(self, at: Any) -> Any:
        assert self.values is not None
        assert self.kind is not None
        found = self.values[at]
        if self.kind == _INT:
            current().rerolled.small_ints.add(self.values.buffer.source())
        return python_number(found) if self.kind[1] else found

    def refusal(self, operation: str) -> BaseException:
        """The exception that leaves lists and dicts as they are."""
        return CannotReroll(refused_site(), f"a dict or a set that it reads: {operation}", indexing=True)


def _contents(x: Any) -> list[Any]:
    return [*x, *x.values()] if isinstance(x, Mapping) else [*x]


def lookup_table(x: Any) -> LookupTable | None:
    """A dict or a set as arrays; None of one with other keys."""
    if type(x) not in (*_DICTS, *_SETS) or not 0 < len(x) <= MAX_KEYS:
        return None
    keys = _numbers(x)
    if keys is None:
        return None
    find = _direct(keys[0]) if len(keys) == 1 and _span(keys[0]) <= MAX_SPAN else _hashed(keys)
    if find is None:
        return None
    found = LookupTable(x, find, type(next(iter(x))) is tuple, len(keys))
    if type(x) in _SETS:
        return found
    values = [*x.values()]
    kinds = {None if is_tracer(v) else kind_of(v) for v in values}
    kind = kinds.pop()
    if kinds or kind is None or kind[0].kind not in "biuf":
        return found
    if kind != _INT or max(map(abs, values)) <= HALF:
        found.kind, found.values = kind, from_known(np.array([values[0], *values], kind[0]))
    return found


def _numbers(keys: Iterable[Any]) -> list[Array] | None:
    """The numbers of known keys, an array for each part; None of other keys than ints, or tuples of so many ints."""
    rows = [k if type(k) is tuple else (k,) for k in keys]
    shapes = {(type(k) is tuple, len(row)) for k, row in zip(keys, rows, strict=True)}
    if len(shapes) > 1 or not all(map(_is_int, (v for row in rows for v in row))):
        return None
    if any(abs(int(v)) >= 1 << 62 for row in rows for v in row) or not rows[0]:
        return None
    return [np.array([int(v) for v in column], np.int64) for column in zip(*rows, strict=True)]


def _is_int(x: Any) -> bool:
    return type(x) in (int, bool) or isinstance(x, (np.integer, np.bool_))


def _span(keys: Array) -> int:
    return int(keys.max()) - int(keys.min()) + 1


def _direct(keys: Array) -> _Find:
    """Finds ints that lie close together."""
    low, high = int(keys.min()), int(keys.max())
    table = np.zeros(high - low + 1, np.int32)
    table[keys - low] = np.arange(1, len(keys) + 1)
    places = from_known(table)

    def find(parts: Sequence[Any]) -> Any:
        (key,) = parts
        bounds = current().range_of(key.load())
        if bounds is not None and low <= bounds[0] and bounds[1] <= high:
            return places[key - low].astype(np.int64)
        is_inside = (key >= low) & (key <= high)
        at = places[call(np.where, is_inside, key - low, 0)].astype(np.int64)
        return call(np.where, is_inside, at, 0)

    return find


def _hashed(keys: Sequence[Array]) -> _Find | None:
    """Finds other ints, and tuples; None: the table would be too large."""
    for bits in range(max(4, (2 * len(keys[0])).bit_length()), 20):
        begin = (mixed([k.astype(np.uint64) for k in keys]) >> np.uint64(64 - bits)).astype(np.int64)
        table = np.zeros((1 << bits) + MAX_STEPS, np.int32)
        steps = _filled(table, begin)
        if steps is not None:
            return _search(keys, table, bits, steps)
    return None


def _filled(table: Array, begin: Array) -> int | None:
    """Enter all keys; gives how many steps a look-up has, or None where one is too far away."""
    most = 1
    for place, at in enumerate(begin.tolist(), 1):
        k = next((k for k in range(MAX_STEPS) if not table[at + k]), None)
        if k is None:
            return None
        table[at + k] = place
        most = max(most, k + 1)
    return most


def _search(keys: Sequence[Array], table: Array, bits: int, steps: int) -> _Find:
    places, columns = from_known(table), [from_known(np.array([k[0], *k])) for k in keys]

    def find(parts: Sequence[Any]) -> Any:
        begin = (mixed([p.astype(np.uint64) for p in parts]) >> np.uint64(64 - bits)).astype(np.int64)
        found: Any = 0
        for k in range(steps):
            place = places[begin + k].astype(np.int64)
            is_there = place != 0
            for column, part in zip(columns, parts, strict=True):
                is_there = is_there & (column[place] == part)
            found = call(np.where, is_there, place, found)
        return found

    return find
