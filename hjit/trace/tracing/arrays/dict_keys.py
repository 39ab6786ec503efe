"""The keys of dicts and sets that are arrays: ints, and tuples of a few ints, and where known ones are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hjit.trace.tracing.arrays.grown import Array, Item, kind_of
from hjit.trace.tracing.arrays.tracer import as_tracer, call, from_known
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host
from hjit.trace.tracing.scalars.induction import as_traced
from hjit.trace.tracing.scalars.size import Size

MAX_PARTS = 4  # numbers of a key
MAX_KEYS = 4096  # of those that are known, as of captured containers whose items are looked at
MAX_SPAN = 1 << 17  # elements of a table of ints that lie close together
MAX_STEPS = 6  # of a look-up in a hash table of known keys
MAX_INT = 1 << 62
Kind = tuple[np.dtype[Any], bool]  # of a number, see `kind_of`
INT: Kind = (np.dtype(np.int64), True)
Find = Callable[[Sequence[Any]], Any]
_MIX, _SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd numbers of many bits


def number_kind(x: Any) -> Kind | None:
    """The kind of a number, also of one that is known; None of anything else."""
    if type(x) is Size:
        return INT
    return kind_of(x.value if is_host(x) else x)


def numbers_of(x: Any) -> Item | None:
    """What numbers a key or a value consists of; None of other things than numbers, and tuples of these."""
    parts = x if type(x) is tuple else (x,)
    kinds = [k for k in map(number_kind, parts) if k is not None and k[0].kind in "biuf"]
    if not kinds or len(kinds) < len(parts):
        return None
    return Item(tuple if type(x) is tuple else None, tuple(k[0] for k in kinds), tuple(k[1] for k in kinds))


def has_computed(x: Any) -> bool:
    """Is there something in a key or a value, or in both, that is no plain number?"""
    if type(x) is tuple:
        return any(map(has_computed, x))
    return type(x) not in (int, float, bool) and not isinstance(x, np.generic)


def key_of(key: Any) -> tuple[Item, list[Any]] | None:
    """The kinds of the numbers of a key, and these as int64; None: it is neither an int nor a tuple of a few ints."""
    item, parts = numbers_of(key), key if type(key) is tuple else (key,)
    if item is None or len(parts) > MAX_PARTS or any(d.kind == "f" or d == np.uint64 for d in item.dtypes):
        return None
    if any(type(x) is int and abs(x) >= MAX_INT for x in parts):
        return None
    return item, [as_tracer(as_traced(x)).astype(np.int64) for x in parts]


def mixed(parts: Sequence[Any]) -> Any:
    """A number whose first bits depend on all bits of the numbers of a key; all are uint64, traced or not."""
    found = parts[0]
    for part in parts[1:]:
        found = found * _SPREAD + part
    return found * _MIX


# -- known keys


def known_keys(keys: Iterable[Any]) -> list[Array] | None:
    """The numbers of known keys, an array for each part; None of other keys than ints, or tuples of so many ints."""
    rows = [(k, k if type(k) is tuple else (k,)) for k in keys]
    shapes = {(type(k) is tuple, len(row)) for k, row in rows}
    if len(shapes) > 1 or len(rows) > MAX_KEYS or not all(_is_int(v) for _, row in rows for v in row):
        return None
    return [np.array([int(v) for v in column], np.int64) for column in zip(*(row for _, row in rows), strict=True)]


def _is_int(x: Any) -> bool:
    return (type(x) in (int, bool) or isinstance(x, (np.integer, np.bool_))) and abs(int(x)) < MAX_INT


def finder(keys: Sequence[Array]) -> Find | None:
    """What gives, for the numbers of a key, its place among known ones, from 1 on, or 0 where it is none of them.

    None: the table would be too large.
    """
    if not keys or not len(keys[0]):
        return lambda parts: call(np.zeros_like, parts[0])
    is_dense = len(keys) == 1 and int(keys[0].max()) - int(keys[0].min()) < MAX_SPAN
    return _direct(keys[0]) if is_dense else _hashed(keys)


def _direct(keys: Array) -> Find:
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


def _hashed(keys: Sequence[Array]) -> Find | None:
    """Finds other ints, and tuples."""
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


def _search(keys: Sequence[Array], table: Array, bits: int, steps: int) -> Find:
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
