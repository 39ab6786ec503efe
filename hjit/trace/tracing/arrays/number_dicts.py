"""Dicts and sets that loops fill: ``sizes[k] = sizes.get(k, 0) + 1``, ``visited.add((y, x))``, ``if k not in remap``.

While the function is traced, the numbers of the keys, and of the values, have an array each, in the order in which they
were inserted, from place 1 on; a hash table, with open addressing, holds the places, and 0 where there is none. Keys
that the dict is made with are known, and not in that table. Loops that use one are programs. Where a dict comes to have
more than a key for each pixel of the largest argument, where it has no such key, and for what it refuses, Python runs.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.errors import InherentError
from hjit.trace.ir.expressions import Const
from hjit.trace.ir.poly import poly
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.dict_keys import INT, Kind, finder, key_of, known_keys, mixed, numbers_of
from hjit.trace.tracing.arrays.grown import Array, GrownList, Item, StandIn, refused_site
from hjit.trace.tracing.arrays.number_lists import NumberList
from hjit.trace.tracing.arrays.stacks import in_program, pixels, unknown
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    has_tracer,
    is_tracer,
    python_bool,
    python_int,
)
from hjit.trace.tracing.frames import asks_class, is_users
from hjit.trace.tracing.recording.loops.rerolled import HALF
from hjit.trace.tracing.recording.recorder import Recorder, current
from hjit.trace.tracing.scalars.host import is_host
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, as_traced
from hjit.trace.tracing.scalars.size import Size, size_poly

MORE_KEYS = 1024  # besides one for each pixel
MAX_ITEMS = 16  # that one is made with by each iteration of a loop
_FACTORIES = (int, float, bool)  # of defaultdicts
_WHICH: Kind = (np.dtype(np.uint8), False)
_HALF = np.uint64(32)


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

    def __call__(self, items: Iterable[Any]) -> Any:
        """One with these items, which of a set are keys."""
        rows = [*items]
        return self.made(rows) if self.cls is set else self.made([k for k, _ in rows], [v for _, v in rows])

    def made(self, keys: Sequence[Any], values: Sequence[Any] | None = None) -> Any:
        """One with these keys, and values."""
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
        value: a number, or a tuple of numbers; None of a set.
    """

    made_as: Container
    keys: tuple[Item, ...]
    value: Item | None

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
        keys = self.keys[0].kinds if len(self.keys) == 1 else (*[INT] * len(self.keys[0].dtypes), _WHICH)
        return (*keys, *(() if self.value is None else self.value.kinds))

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
        return self.made_as.made(keys, self.value.made(columns[n + (len(lists) > 1) :]))


class _Values(NumberList):
    """The values of a dict where they are numbers of Python."""

    def refusal(self, why: str) -> CannotReroll:
        """The exception that leaves dicts as they are."""
        return no_dict(why)


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of where a key is.

    Attributes:
        of: the numbers of the key, where in the trace that was found, and the version of the table.
        slot, at: where in the table it is, or would be; and its place.
        is_there: has it a place for certain?
    """

    of: Any
    slot: Any
    at: Any
    is_there: bool = False


class NumberDict(StandIn):
    """A dict or a set that loops fill.

    Attributes:
        place: where the function makes it.
        entry: what it holds; None: nothing is known of that, and it is empty.
        is_inside: is it made by each iteration of a loop?
        given: of one that is, what the last iteration, or call of a function in one, was given in its place.
    """

    def __init__(self, place: tuple[str, str], entry: Entry | None, is_inside: bool, of: Container, begin: Any) -> None:
        self.place, self.entry, self.is_inside, self.made_as, self.begin = place, entry, is_inside, of, begin
        self.given = [self]
        self.known = len(begin)
        self.found: Found | None = None
        if entry is not None:
            self._allocate(entry)

    def _allocate(self, entry: Entry) -> None:
        rec, keys = current(), known_keys(self.begin)
        assert keys is not None
        most = pixels(rec) + (MORE_KEYS + self.known)
        self.find_known = finder(keys) if self.known else None
        self.places = most * 2

        def array(n: Any, dtype: Any, name: str) -> Tracer:
            sizes = () if n is None else (rec.size(n),)
            return from_stage(Const(0, np.dtype(dtype)), sizes, np.dtype(dtype), name=name)

        self.table = array(self.places + 1, np.int32, "table")  # what the last element is does not matter
        self.parts = tuple(array(most + 1, np.int64, "keys") for _ in entry.keys[0].dtypes)
        self.which = array(most + 1, np.uint8, "kinds") if len(entry.keys) > 1 else None
        self.slots = array(most + 1, np.int32, "slots") if self.is_inside else None
        self.columns = tuple(array(most + 1, d, "values") for d in (() if entry.value is None else entry.value.dtypes))
        kinds = () if entry.value is None else entry.value.kinds
        self.values = tuple(_Values(c, None) if weak else c for c, (_, weak) in zip(self.columns, kinds, strict=True))
        self.count = array(None, np.int64, "count")
        if self.known:
            for column, numbers in zip(self.parts, keys, strict=True):
                column[1 : self.known + 1] = from_known(numbers)
            self._begin_again()

    def _begin_again(self) -> None:
        """Have it hold what it is made with."""
        self.count[()] = self.known
        if self.known and self.columns:
            values = [x if type(x) is tuple else (x,) for x in self.begin.values()]
            for column, numbers in zip(self.columns, zip(*values, strict=True), strict=True):
                column[1 : self.known + 1] = from_known(np.array(numbers, column.dtype))

    def made_again(self) -> NumberDict:
        """What stands for the dict that an iteration makes, where no other one is used any more."""
        assert self.slots is not None
        k, is_done = (from_stage(Const(0, np.dtype(d)), (), np.dtype(d), name="k") for d in (np.int64, np.bool_))
        k[()] = self.count[()]
        is_done[()] = k[()] == self.known
        slots = self.slots

        def remove() -> None:
            self.table[slots[k[()]]] = 0
            k[()] = k[()] - 1
            is_done[()] = k[()] == self.known

        forward.repeated(is_done, self.places, remove)
        self._begin_again()
        found: NumberDict = object.__new__(NumberDict)
        vars(found).update(vars(self), found=None)
        self.given[0] = found
        return found

    # -- what dicts and sets have

    def add(self, key: Any) -> None:
        """Add a key to a set."""
        self._check_is(set)
        self._insert(key, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_is(dict)
        kind = numbers_of(value)
        if kind is None:
            raise no_dict("its values are no numbers")
        self._set(self._insert(key, kind), value)

    def __getitem__(self, key: Any) -> Any:
        self._check_is(dict)
        if self.made_as.cls is Counter:
            return self.get(key, 0)
        if self.made_as.factory is not None:
            return self.setdefault(key, self.made_as.factory())
        if self.entry is None:
            raise self.refusal("it is empty")
        found = self._find(key)
        if not found.is_there:
            current().check(found.at == 0)
            self.found = replace(found, is_there=True)
        return self._value(found.at)

    def get(self, key: Any, *default: Any) -> Any:
        """A value, or another one where there is no such key."""
        self._check_is(dict)
        if self.entry is None:
            return default[0] if default else None
        self._check_default(default)
        found = self._find(key)
        return self._chosen(found.at == 0, default[0], self._value(found.at))

    def plus(self, key: Any, y: Any, *default: Any) -> Any:
        """A value and a number, or where there is no such key a default and the number."""
        self._check_is(dict)
        if not default and self.made_as.cls is not Counter and self.made_as.factory is None:
            return self[key] + y
        first = default[0] if default else self.made_as.factory() if self.made_as.factory else 0
        if self.entry is None:
            return first + y
        if numbers_of(first) == self.entry.value:
            return self.get(key, first) + y
        found = self._find(key)
        new, more = first + y, self._value(found.at) + y
        if numbers_of(new) != self.entry.value or numbers_of(more) != self.entry.value:
            raise self.refusal("its values are not all of one kind")
        return self._chosen(found.at == 0, new, more)

    def setdefault(self, key: Any, *default: Any) -> Any:
        """A value, or where there is no such key one that it then has."""
        self._check_is(dict)
        if self.entry is None:
            self._insert(key, numbers_of(default[0]) if len(default) == 1 else None)
        self._check_default(default)
        before = self._find(key)
        value = self._chosen(before.at == 0, default[0], self._value(before.at))
        self._set(self._insert(key, numbers_of(default[0])), value)
        return value

    def has(self, key: Any) -> Any:
        """Is there such a key? A bool that is computed."""
        if self.entry is None:
            return False
        return python_bool(self._find(key).at != 0)

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
        self._check_in_use()
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
        assert self.entry is not None
        self._check_in_use()
        at = call(np.arange, self.parts[0].shape[0])
        flags = (at > 0) & (at <= self.count[()])
        which = () if self.which is None else (self.which,)
        all_of = zip((*self.parts, *which, *self.columns), self.entry.dtypes, strict=True)
        return GrownList(self.entry, [c.astype(d) for c, d in all_of], flags)  # type: ignore[arg-type]

    # -- how

    def _check_is(self, cls: type) -> None:
        if (self.made_as.cls is set) is not (cls is set):
            raise self.refusal(f"something of a {cls.__name__}")

    def _check_in_use(self) -> None:
        """Raise where another one has taken its arrays."""
        if self.given[0] is not self:
            raise no_dict("it is used when another one has been made in its place")

    def _check_default(self, default: tuple[Any, ...]) -> None:
        assert self.entry is not None
        parts = default[0] if default and type(default[0]) is tuple else default
        is_large = any(type(x) is int and abs(x) > HALF for x in parts)
        if len(default) != 1 or numbers_of(default[0]) != self.entry.value or is_large:
            raise self.refusal("its values are not all of one kind")

    def _insert(self, key: Any, kind: Item | None) -> Any:
        """Have it hold a key; gives its place."""
        item, parts = self._key(key)
        entry = Entry(self.made_as, (item,), kind)
        both = entry if self.entry is None else self.entry.takes(entry)
        if both is None or (kind is None and self.made_as.cls is not set):
            raise no_dict("its items are not all of one kind")
        if both != self.entry:
            raise unknown(self.place, both, self.is_inside)
        found = self._searched(key, parts)
        if found.is_there:
            return found.at
        own = _scalar(call(np.where, found.at == 0, self.count[()] + 1, found.at))
        is_there = from_stage((found.at != 0).load(), (), np.dtype(bool), name="is_there")

        def insert() -> None:
            self.table[found.slot] = own
            for column, part in zip(self.parts, parts, strict=True):
                column[own] = part
            if self.which is not None:
                self.which[own] = both.keys.index(item)
            if self.slots is not None:
                self.slots[own] = found.slot
            self.count[()] = own
            is_there[()] = True

        forward.repeated(is_there, poly(1), insert)
        self.found = Found(self._now(key), found.slot, own, is_there=True)
        return own

    @staticmethod
    def _key(key: Any) -> tuple[Item, list[Any]]:
        found = key_of(key)
        if found is None:
            raise no_dict("a key is no int, or a tuple of others")
        return found

    def _find(self, key: Any) -> Found:
        """Where a key is; its place is 0 where there is no such one."""
        item, parts = self._key(key)
        assert self.entry is not None
        if item.container is not self.entry.keys[0].container or len(parts) != len(self.parts):
            raise no_dict("it is asked for keys of another kind")
        return self._searched(key, parts)

    def _now(self, key: Any) -> Any:
        """What has to be the same for a key to be where it was found."""
        numbers = tuple(map(_identity, key if type(key) is tuple else (key,)))
        return numbers, path_of(current()), self.table.buffer.version

    def _searched(self, key: Any, parts: Sequence[Any]) -> Found:
        """Where in the table a key is, or would be; and its place."""
        self._check_in_use()
        in_program()
        now = self._now(key)
        if self.found is not None and self.found.of == now:
            return self.found
        parts, size = [*map(_scalar, parts)], current().size(self.places)
        bits = mixed([part.astype(np.uint64) for part in parts]) >> _HALF
        begin = ((bits * size) >> _HALF).astype(np.int64)
        slot, at, is_done = (
            from_stage(Const(0, np.dtype(d)), (), np.dtype(d), name=n)
            for n, d in (("slot", np.int64), ("at", np.int64), ("is_done", np.bool_))
        )
        slot[()] = begin - 1
        if self.find_known is not None:
            known = _scalar(self.find_known(parts))
            at[()] = known
            is_done[()] = known != 0
            slot[()] = call(np.where, known != 0, size, slot[()])

        def probe() -> None:
            following = slot[()] + 1
            slot[()] = call(np.where, following == size, 0, following)
            at[()] = self.table[slot[()]].astype(np.int64)
            same: Any = True
            for column, part in zip(self.parts, parts, strict=True):
                same = same & (column[at[()]] == part)
            is_done[()] = (at[()] == 0) | same

        forward.repeated(is_done, self.places + 1, probe)
        self.found = Found(self._now(key), _scalar(slot[()]), _scalar(at[()]))
        return self.found

    def _value(self, at: Any) -> Any:
        assert self.entry is not None
        assert self.entry.value is not None
        numbers = []
        for column, kind in zip(self.columns, self.entry.value.kinds, strict=True):
            own = _scalar(column[python_int(at)])
            own.weak = kind[1]
            if kind == INT:
                current().rerolled.small_ints.update((column.buffer.source(), own.buffer.source()))
            numbers.append(own)
        return tuple(numbers) if self.entry.value.container is tuple else numbers[0]

    def _set(self, at: Any, value: Any) -> None:
        assert self.entry is not None
        assert self.entry.value is not None
        numbers = value if type(value) is tuple else (value,)
        for values, number, weak in zip(self.values, numbers, self.entry.value.are_python, strict=True):
            own = as_traced(number)
            if type(own) is Size or is_host(own):
                own = _scalar(as_tracer(own))
                own.weak = weak
            values[python_int(at)] = own

    def _chosen(self, condition: Any, yes: Any, no: Any) -> Any:
        assert self.entry is not None
        assert self.entry.value is not None
        if self.entry.value.container is tuple:
            return tuple(self._one(condition, a, b, k) for a, b, k in zip(yes, no, self.entry.value.kinds, strict=True))
        return self._one(condition, yes, no, self.entry.value.kinds[0])

    @staticmethod
    def _one(condition: Any, yes: Any, no: Any, kind: Kind) -> Any:
        dtype, weak = kind
        found = _scalar(call(np.where, condition, as_tracer(as_traced(yes)).astype(dtype), no).astype(dtype))
        found.weak = weak
        if kind == INT:
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


def path_of(rec: Recorder) -> Any:
    """The path through the iterations of the loops around that is traced now."""
    return tuple((id(loop), loop.serial, len(loop.paths)) for loop in rec.loops)


def _identity(x: Any) -> Any:
    """What tells numbers of keys that are the same on one path, as far as that is known."""
    if is_tracer(x):
        return Tracer, x.load()
    if type(x) in (InductionVariable, Size):
        return type(x), size_poly(x) if type(x) is Size else (id(x.loop), x.poly)
    return type(x), x.k if is_host(x) else x


def _scalar(x: Any) -> Any:
    """A number of its own: what it was read from may be written before it is used."""
    return from_stage(x.load(), (), x.dtype, is_scalar=True)


def dict_of(x: Any, place: tuple[str, str]) -> Any:
    """A dict or a set that the function has just made, as arrays; one that holds other things as it is.

    Raises:
        CannotReroll: what it holds was not known when the loop around began.
    """
    rec, made_as = current(), Container.of(x)
    if made_as is None or (made_as.cls is set and len(x) > 1):  # the order of others is not that of what is inserted
        return x
    noted = {s.place: s.item for s in rec.attempt.stacks}.get(place)
    own = _entry(x, made_as) if x else None
    if x and own is None:
        return x
    entry = own if noted is None else noted if own is None else noted.takes(own)
    if entry is None and own is not None:
        raise no_dict("its items are not all of one kind")
    if not rec.loops or entry is None:
        return NumberDict(place, entry, bool(rec.loops), made_as, x)
    if len(x) > MAX_ITEMS:
        return x
    known: NumberDict | None = rec.rerolled.stacks.get(place)
    if known is None or known.entry != entry:
        raise unknown(place, entry, is_inside=True)
    in_program()
    found = known.made_again()
    for key in x:
        if made_as.cls is set:
            found.add(key)
        else:
            found[key] = x[key]
    return found


def _entry(x: Any, made_as: Container) -> Entry | None:
    """What a dict or a set holds; None of other things than known numbers of one kind each."""
    keys = known_keys(x)
    if keys is None or finder(keys) is None:
        return None
    values = [] if made_as.cls is set else [*x.values()]
    if any(has_tracer(v) or is_host(v) for v in values) or any(type(v) is int and abs(v) > HALF for v in values):
        return None
    items, kinds = {numbers_of(k) for k in x}, {numbers_of(v) for v in values} or {None}
    if len(items) > 1 or len(kinds) > 1 or (None in kinds and made_as.cls is not set):
        return None
    item = items.pop()
    return None if item is None else Entry(made_as, (item,), kinds.pop())
