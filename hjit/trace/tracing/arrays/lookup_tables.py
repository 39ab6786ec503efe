"""Dicts and sets that loops only read: ``lut[v]``, ``lut.get(v, 0)``, ``if v in edges``.

While the function is traced, such a dict is arrays of constants: the values, and a table of the places where they are.
Of ints that lie close together the table has an element each; of others, and of tuples of ints, it is a hash table in
which no key is far from where it would be, so that a look-up has a few steps, and is an expression.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hjit.trace.tracing.arrays.dict_keys import INT, MAX_KEYS, Find, Kind, finder, key_of, known_keys, number_kind
from hjit.trace.tracing.arrays.grown import StandIn, kind_of, refused_site
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, is_tracer, python_bool, python_number
from hjit.trace.tracing.recording.loops.rerolled import HALF
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.induction import CannotReroll, LoopNumber, as_traced

_DICTS = (dict, OrderedDict, defaultdict, Counter, MappingProxyType)
_SETS = (set, frozenset)


class LookupTable(StandIn):
    """A dict or a set of known ints, or tuples of these, that is only read.

    Attributes:
        plain: it itself.
        find: see `finder`.
        values: from place 1 on; None of a set, and where they are no numbers of one kind.
        kind: of the values.
    """

    def __init__(self, plain: Any, find: Find, is_tuple: bool, parts: int) -> None:
        self.plain, self.find, self.is_tuple, self.parts = plain, find, is_tuple, parts
        self._before = _contents(plain)
        self.values: Tracer | None = None
        self.kind: Kind | None = None

    def objects(self) -> list[Any]:
        """What must not change while it is read."""
        return [self.plain] if type(self.plain) is dict else []

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
        if not self.plain:
            return default[0] if default else None
        at = self._place(key)
        if at is None:
            return self.plain.get(key, *default)
        if self.kind is None or len(default) != 1 or number_kind(default[0]) != self.kind:
            raise self.refusal("get with a value of another kind")
        found = call(np.where, at == 0, as_tracer(as_traced(default[0])).astype(self.kind[0]), self._value(at))
        return python_number(found) if self.kind[1] else found.astype(self.kind[0])

    def has(self, key: Any) -> Any:
        """Is there such a key? A bool that may be computed."""
        if not self.plain:
            return False
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
        if self.kind == INT:
            current().rerolled.small_ints.add(self.values.buffer.source())
        return python_number(found) if self.kind[1] else found

    def refusal(self, operation: str) -> BaseException:
        """The exception that leaves lists and dicts as they are."""
        return CannotReroll(refused_site(), f"a dict or a set that it reads: {operation}", indexing=True)


def _contents(x: Any) -> list[Any]:
    return [*x, *x.values()] if isinstance(x, Mapping) else [*x]


def lookup_table(x: Any) -> LookupTable | None:
    """A dict or a set as arrays; None of one with other keys."""
    if type(x) not in (*_DICTS, *_SETS) or len(x) > MAX_KEYS:
        return None
    keys = known_keys(x)
    find = None if keys is None else finder(keys)
    if keys is None or find is None:
        return None
    found = LookupTable(x, find, type(next(iter(x), 0)) is tuple, len(keys))
    if type(x) in _SETS or not x:
        return found
    values = [*x.values()]
    kinds = {None if is_tracer(v) else kind_of(v) for v in values}
    kind = kinds.pop()
    if kinds or kind is None or kind[0].kind not in "biuf":
        return found
    if kind != INT or max(map(abs, values)) <= HALF:
        found.kind, found.values = kind, from_known(np.array([values[0], *values], kind[0]))
    return found
