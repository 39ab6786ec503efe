"""Dicts and sets that loops fill: ``sizes[k] = sizes.get(k, 0) + 1``, ``visited.add((y, x))``, ``if k not in remap``.

While the function is traced, the numbers of the keys, and the values, have an array each, in the order in which they
were inserted, from place 1 on; a hash table, with open addressing, holds the places, and 0 where there is none. Loops
that use one are programs. Where a dict has more than one key for each pixel of the largest argument, where there is no
such key, and for what a dict refuses, Python runs.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.errors import InherentError
from hjit.trace.ir.expressions import Const
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.grown import Array, GrownList, Item, StandIn, kind_of, refused_site
from hjit.trace.tracing.arrays.number_lists import NumberList
from hjit.trace.tracing.arrays.stacks import in_program, pixels, unknown
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_stage, is_tracer, python_bool, python_int
from hjit.trace.tracing.frames import asks_class, is_users
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host
from hjit.trace.tracing.scalars.induction import CannotReroll, as_traced
from hjit.trace.tracing.scalars.size import Size

MAX_PARTS = 4  # numbers of a key
MORE_KEYS = 1024  # besides one for each pixel
_FACTORIES = (int, float, bool)  # of defaultdicts
_MIX, _SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd numbers of many bits
_HALF = np.uint64(32)
Kind = tuple[np.dtype[Any], bool]  # of a number, see `kind_of`
_INT, _WHICH = (np.dtype(np.int64), True), (np.dtype(np.uint8), False)


@dataclass(frozen=True, slots=True)
class Container:
    """What is made: a dict, a set, or a relative of theirs.

    Attributes:
        factory: of a defaultdict.
    """

    cls: type
    factory: Any = None

    @classmethod
    def of(cls, x: Any) -> Container | None:
        """That of an object; None of one that is none of these, or has values of its own for missing keys."""
        if type(x) is defaultdict:
            return cls(defaultdict, x.default_factory) if x.default_factory in (*_FACTORIES, None) else None
        return cls(type(x)) if type(x) in (dict, set, Counter, OrderedDict) else None

    def made(self, keys: Sequence[Any], values: Sequence[Any] | None = None) -> Any:
        """One with these items."""
        if self.cls is set:
            return set(keys)
        items = zip(keys, values or (), strict=True)
        if self.cls is defaultdict:
            return defaultdict(self.factory, items)
        return Counter(dict(items)) if self.cls is Counter else self.cls(items)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a dict or a set holds.

    Attributes:
        keys: tuples of so many ints, or ints, of several kinds; a column says which, where there is more than one.
        value: None of a set.
    """

    made_as: Container
    keys: tuple[Item, ...]
    value: Kind | None

    def takes(self, other: Entry) -> Entry | None:
        """What a dict holds that also has keys of another kind; None: none does."""
        a, b = self.keys[0], other.keys[0]
        if (a.container, len(a.dtypes), self.value) != (b.container, len(b.dtypes), other.value):
            return None
        return replace(self, keys=tuple(dict.fromkeys((*self.keys, *other.keys))))

    # -- what a list of items tells of these, too

    @property
    def container(self) -> None:
        """Each item has a number in each column."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """For each column its dtype, and whether it holds numbers of Python."""
        keys = self.keys[0].kinds if len(self.keys) == 1 else (*[_INT] * len(self.keys[0].dtypes), _WHICH)
        return (*keys, *(() if self.value is None else (self.value,)))

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Of the columns."""
        return tuple(dtype for dtype, _ in self.kinds)

    @property
    def are_python(self) -> tuple[bool, ...]:
        """Of the columns."""
        return tuple(weak for _, weak in self.kinds)

    def made(self, columns: Sequence[Array]) -> Any:
        """The dict or the set of the items in these columns."""
        n = len(self.keys[0].dtypes)
        lists = [k.made([c.astype(d) for c, d in zip(columns[:n], k.dtypes, strict=True)]) for k in self.keys]
        keys = lists[0] if len(lists) == 1 else [lists[which][i] for i, which in enumerate(columns[n].tolist())]
        if self.value is None:
            return self.made_as.made(keys)
        dtype, weak = self.value
        return self.made_as.made(keys, Item(None, (dtype,), (weak,)).made(columns[-1:]))


class _Values(NumberList):
    """The values of a dict where they are numbers of Python."""

    def refusal(self, why: str) -> CannotReroll:
        """The exception that leaves dicts as they are."""
        return no_dict(why)


class NumberDict(StandIn):
    """A dict or a set that loops fill.

    Attributes:
        place: where the function makes it.
        entry: what it holds; None: nothing is known of that, and it is empty.
        is_inside: is it made by each iteration of a loop?
    """

    def __init__(self, place: tuple[str, str], made_as: Container, entry: Entry | None, is_inside: bool) -> None:
        self.place, self.made_as, self.entry, self.is_inside = place, made_as, entry, is_inside
        if entry is not None:
            self._allocate(entry)

    def _allocate(self, entry: Entry) -> None:
        rec = current()
        most = pixels(rec) + MORE_KEYS

        def array(n: Any, dtype: Any, name: str) -> Tracer:
            sizes = () if n is None else (rec.size(n),)
            return from_stage(Const(0, np.dtype(dtype)), sizes, np.dtype(dtype), name=name)

        self.places = most * 2
        self.table = array(self.places, np.int32, "table")
        self.parts = tuple(array(most + 1, np.int64, "keys") for _ in entry.keys[0].dtypes)
        self.which = array(most + 1, np.uint8, "kinds") if len(entry.keys) > 1 else None
        self.slots = array(most + 1, np.int32, "slots") if self.is_inside else None
        self.values: Any = None
        if entry.value is not None:
            dtype, weak = entry.value
            values = array(most + 1, dtype, "values")
            self.values = _Values(values, None) if weak else values
        self.count = array(None, np.int64, "count")

    def clear_all(self) -> None:
        """Make it empty, as it is made anew."""
        assert self.slots is not None
        k, is_empty = (from_stage(Const(0, np.dtype(d)), (), np.dtype(d), name="k") for d in (np.int64, np.bool_))
        k[()] = self.count[()]
        is_empty[()] = k[()] == 0
        slots = self.slots

        def remove() -> None:
            self.table[slots[k[()]]] = 0
            k[()] = k[()] - 1
            is_empty[()] = k[()] == 0

        forward.repeated(is_empty, self.places, remove)
        self.count[()] = 0

    # -- what dicts and sets have

    def add(self, key: Any) -> None:
        """Add a key to a set."""
        self._check_is(set)
        self._insert(key, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_is(dict)
        kind = number_kind(value)
        if kind is None:
            raise no_dict("its values are no numbers")
        at = self._insert(key, kind)
        self.values[at] = as_traced(value)

    def __getitem__(self, key: Any) -> Any:
        self._check_is(dict)
        if self.made_as.cls is Counter:
            return self.get(key, 0)
        if self.made_as.factory is not None:
            return self.setdefault(key, self.made_as.factory())
        if self.entry is None:
            raise self.refusal("it is empty")
        at = self._find(key)
        current().check(at == 0)
        return self._value(at)

    def get(self, key: Any, *default: Any) -> Any:
        """A value, or another one where there is no such key."""
        self._check_is(dict)
        if self.entry is None:
            return default[0] if default else None
        if len(default) != 1 or number_kind(default[0]) != self.entry.value:
            raise self.refusal("its values are not all of one kind")
        at = self._find(key)
        return self._chosen(at == 0, default[0], self._value(at))

    def setdefault(self, key: Any, *default: Any) -> Any:
        """A value, or where there is no such key one that it then has."""
        self._check_is(dict)
        kind = number_kind(default[0]) if len(default) == 1 else None
        if kind is None or (self.entry is not None and kind != self.entry.value):
            raise self.refusal("its values are not all of one kind")
        before = self._find(key) if self.entry is not None else 0
        at = self._insert(key, kind)
        value = self._chosen(before == 0, default[0], self._value(at))
        self.values[at] = value
        return value

    def has(self, key: Any) -> Any:
        """Is there such a key? A bool that is computed."""
        if self.entry is None:
            return False
        return python_bool(self._find(key) != 0)

    @staticmethod
    def has_not(held: Any) -> Any:
        """The opposite of what `has` gives."""
        return python_bool(call(np.logical_not, held)) if is_tracer(held) else not held

    def __contains__(self, key: object) -> bool:
        return bool(self.has(key))

    @property
    def length(self) -> Any:
        """The number of keys; an int that is computed."""
        if self.entry is None:
            return 0
        in_program()
        current().rerolled.small_ints.add(self.count.buffer.source())
        return python_int(self.count[()])

    def __len__(self) -> int:
        return int(self.length)

    def __bool__(self) -> bool:
        return bool(self.length != 0)

    def __iter__(self) -> Any:
        raise self.refusal("a loop over it")

    def result(self) -> Any:
        """What the function returns in its place."""
        if self.entry is None:
            return self.made_as.made((), ())
        at = call(np.arange, self.parts[0].shape[0])
        flags = (at > 0) & (at <= self.count[()])
        others = (self.which, self.values.array if type(self.values) is _Values else self.values)
        all_of = (*self.parts, *(c for c in others if c is not None))
        columns = [c.astype(d) for c, d in zip(all_of, self.entry.dtypes, strict=True)]
        return GrownList(self.entry, columns, flags)  # type: ignore[arg-type]

    # -- how

    def _check_is(self, cls: type) -> None:
        if (self.made_as.cls is set) is not (cls is set):
            raise self.refusal(f"something of a {cls.__name__}")

    def _insert(self, key: Any, kind: Kind | None) -> Any:
        """Have it hold a key; gives its place."""
        item, parts = self._key(key)
        entry = Entry(self.made_as, (item,), kind)
        both = entry if self.entry is None else self.entry.takes(entry)
        if both is None:
            raise no_dict("its items are not all of one kind")
        if both != self.entry:
            raise unknown(self.place, both, self.is_inside)
        slot, at = self._searched(parts)
        is_new = at == 0
        count = self.count[()]
        own = _scalar(call(np.where, is_new, count + 1, at))
        self.table[slot] = own
        for column, part in zip(self.parts, parts, strict=True):
            column[own] = part
        if self.which is not None:
            self.which[own] = call(np.where, is_new, both.keys.index(item), self.which[own]).astype(np.uint8)
        if self.slots is not None:
            self.slots[own] = slot
        self.count[()] = call(np.where, is_new, own, count)
        return own

    @staticmethod
    def _key(key: Any) -> tuple[Item, list[Any]]:
        found = key_of(key)
        if found is None:
            raise no_dict("a key is no int, or a tuple of others")
        return found

    def _find(self, key: Any) -> Any:
        """The place of a key; 0 where there is no such one."""
        item, parts = self._key(key)
        assert self.entry is not None
        if item.container is not self.entry.keys[0].container or len(parts) != len(self.parts):
            raise no_dict("it is asked for keys of another kind")
        return self._searched(parts)[1]

    def _searched(self, parts: Sequence[Any]) -> tuple[Any, Any]:
        """Where in the table a key is, or would be; and its place."""
        in_program()
        size = current().size(self.places)
        bits = mixed([part.astype(np.uint64) for part in parts]) >> _HALF
        begin = ((bits * size) >> _HALF).astype(np.int64)
        slot, at, is_there = (
            from_stage(Const(0, np.dtype(d)), (), np.dtype(d), name=n)
            for n, d in (("slot", np.int64), ("at", np.int64), ("is_there", np.bool_))
        )
        slot[()] = begin - 1

        def probe() -> None:
            following = slot[()] + 1
            slot[()] = call(np.where, following == size, 0, following)
            at[()] = self.table[slot[()]].astype(np.int64)
            held = at[()] == 0
            same = True
            for column, part in zip(self.parts, parts, strict=True):
                same = same & (column[at[()]] == part)
            is_there[()] = held | same

        forward.repeated(is_there, self.places + 1, probe)
        return _scalar(slot[()]), _scalar(at[()])

    def _value(self, at: Any) -> Any:
        if type(self.values) is _Values:
            return self.values[at]
        return _scalar(self.values[at])

    def _chosen(self, condition: Any, yes: Any, no: Any) -> Any:
        assert self.entry is not None
        assert self.entry.value is not None
        dtype, weak = self.entry.value
        found = _scalar(call(np.where, condition, as_tracer(as_traced(yes)).astype(dtype), no).astype(dtype))
        found.weak = weak
        if weak and dtype.kind == "i":
            current().rerolled.small_ints.add(found.buffer.source())
        return found

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        frame = sys._getframe(1)
        is_asked = frame.f_lasti in asks_class(frame.f_code) or is_users(frame)
        return self.made_as.cls if is_asked else type(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal(f"{self.made_as.cls.__name__}.{name}")

    def refusal(self, operation: str) -> BaseException:
        """The exception that has Python run; after the loops only from here on."""
        if current().loops:
            return no_dict(operation)
        reason = "what a dict or a set holds that a loop fills depends on the image's values"
        return current().error(operation, reason, "do that outside the decorated function", InherentError)


def no_dict(why: str) -> CannotReroll:
    """The exception that leaves dicts and sets as they are."""
    return CannotReroll(refused_site(), f"a dict or a set that it fills: {why}", stacking=False)


def number_kind(x: Any) -> Kind | None:
    """The kind of a number, also of one that is known; None of anything else."""
    if type(x) is Size:
        return np.dtype(int), True
    if is_host(x):
        return kind_of(x.value)
    return kind_of(x)


def mixed(parts: Sequence[Any]) -> Any:
    """A number whose first bits depend on all bits of the numbers of a key; all are uint64, traced or not."""
    found = parts[0]
    for part in parts[1:]:
        found = found * _SPREAD + part
    return found * _MIX


def key_of(key: Any) -> tuple[Item, list[Any]] | None:
    """The kinds of the numbers of a key, and these as int64; None: it is neither an int nor a tuple of a few ints."""
    numbers = key if type(key) is tuple else (key,)
    kinds = [number_kind(x) for x in numbers]
    known = [k for k in kinds if k is not None and k[0].kind in "biu" and k[0] != np.uint64]
    if not 0 < len(numbers) <= MAX_PARTS or len(known) < len(kinds):
        return None
    item = Item(tuple if type(key) is tuple else None, tuple(k[0] for k in known), tuple(k[1] for k in known))
    return item, [_scalar(as_tracer(as_traced(x)).astype(np.int64)) for x in numbers]


def _scalar(x: Any) -> Any:
    """A number of its own: what it was read from may be written before it is used."""
    return from_stage(x.load(), (), x.dtype, is_scalar=True)


def dict_of(x: Any, place: tuple[str, str]) -> Any:
    """An empty dict or set that the function has just made, as arrays; another one as it is.

    Raises:
        CannotReroll: what it holds was not known when the loop around began.
    """
    rec, made_as = current(), Container.of(x)
    if made_as is None or x:
        return x
    entry = {s.place: s.item for s in rec.attempt.stacks}.get(place)
    if not rec.loops or entry is None:
        return NumberDict(place, made_as, entry, is_inside=bool(rec.loops))
    known: NumberDict | None = rec.rerolled.stacks.get(place)
    if known is None:
        raise unknown(place, entry, is_inside=True)
    in_program()
    known.clear_all()
    return known
