"""Objects that outlive a call, which the traced function must not change, because compiled calls would not.

They are recorded before the trace, compared after it, and restored: the function then runs for real.
"""

from __future__ import annotations

import array
import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CellType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from hjit.trace.tracing.writeable import is_writeable

_BUFFERS = (bytearray, array.array)
CONTAINERS = (list, collections.OrderedDict, dict, set, collections.deque, *_BUFFERS)
MAX_REACHED = 400  # objects that one is looked through for: what is further away may change unseen
MAX_ARRAY = 1 << 16  # bytes of an array that is copied to be compared
_ABSENT = object()  # in place of a global that is not there


@dataclass(slots=True)
class Watched:
    """Variables, classes and containers from outside the function, as they were before the trace.

    Attributes:
        cells: closure cells of clones, with what they held and their names.
        met: the user's classes that the function is handed.
        classes: these and others that their code reaches, with their attributes.
        containers: lists, dicts, sets and arrays by identity, with their contents and names.
        variables: globals of code that runs as it is, by module and name.
    """

    cells: list[tuple[CellType, Any, str]] = field(default_factory=list)
    met: dict[type, None] = field(default_factory=dict)
    classes: dict[type, dict[str, Any]] = field(default_factory=dict)
    containers: dict[int, tuple[Any, list[Any], str]] = field(default_factory=dict)
    variables: dict[tuple[int, str], tuple[dict[str, Any], Any]] = field(default_factory=dict)
    _reached: dict[int, Any] = field(default_factory=dict)  # objects that were looked into, which stay alive

    def add(self, x: Any, name: str) -> None:
        """Watch a list, dict, set, deque, buffer or array; nothing else has contents to change."""
        if is_container(x) and id(x) not in self.containers:
            self.containers[id(x)] = x, contents(x), name

    def add_all(self, x: Any, name: str, is_own: Callable[[Any], bool]) -> None:
        """Also watch its contents, and what the untraced code of a class or a function reaches by name.

        Args:
            is_own: is a class, a function or a module the user's?
        """
        waiting = collections.deque([(x, name)])
        left = MAX_REACHED
        while waiting and left:
            x, name = waiting.popleft()  # what is near comes first
            if id(x) in self._reached or type(x) in _WITHOUT_CONTENTS:
                continue
            self._reached[id(x)] = x
            left -= 1
            self.add(x, name)
            if isinstance(x, type):
                if is_own(x):
                    self.classes.setdefault(x, dict(vars(x)))
                    waiting += [(base, base.__name__) for base in x.__bases__]
                    waiting += [(v, f"{x.__name__}.{n}") for n, v in vars(x).items()]
            elif isinstance(x, FunctionType):
                waiting += self._of_function(x, is_own) if is_own(x) else ()
            else:
                waiting += [(y, name) for y in _parts(x, is_own)]

    def _of_function(self, f: FunctionType, is_own: Callable[[Any], bool]) -> Iterator[tuple[Any, str]]:
        """The values that a function reaches by name; the variables themselves are watched."""
        if type(f.__globals__) is not dict:  # it is traced, and sees no more than what is wrapped
            return
        names = f.__code__.co_names
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            yield value, f"default of {f.__name__}"
        yield from self._variables(f.__globals__, names)
        for module in [f.__globals__.get(n) for n in names]:
            if isinstance(module, ModuleType) and is_own(module):
                yield from self._variables(vars(module), [n for n in names if n in vars(module)])
        for cell in f.__closure__ or ():
            held = _cell_contents(cell)
            if held is not cell:
                self.cells.append((cell, held, f.__name__))
                yield held, f.__name__

    def _variables(self, under: dict[str, Any], names: Iterable[str]) -> Iterator[tuple[Any, str]]:
        """Watch variables of a module, and yield their values."""
        for name in names:
            value = under.get(name, _ABSENT)
            self.variables.setdefault((id(under), name), (under, value))
            yield value, name

    def changes(self) -> Iterator[tuple[str, str]]:
        """The changes since: the operation, and why it cannot be traced."""
        for cls, attributes in self.classes.items():
            for name in _changed(cls, attributes):
                yield f"{cls.__name__}.{name} = ...", "the function changes a class that outlives it"
        for cell, value, name in self.cells:
            if not _same(_cell_contents(cell), value):
                yield f"nonlocal {name}", "the function assigns to a variable of an enclosing function"
        for (_, name), (under, value) in self.variables.items():
            if not _same(under.get(name, _ABSENT), value):
                yield f"global {name}", "the function assigns to a global variable"
        for container, before, name in self.containers.values():
            if not same_items(contents(container), before):
                yield name, f"the function changes a {type(container).__name__} that outlives it"

    def restore(self) -> None:
        """Restore everything."""
        for cls, before in self.classes.items():
            for name in _changed(cls, before):
                type.__setattr__(cls, name, before[name]) if name in before else type.__delattr__(cls, name)
        for cell, value, _ in self.cells:
            if _cell_contents(cell) is not value:
                cell.cell_contents = value
        for (_, name), (under, value) in self.variables.items():
            if value is _ABSENT:
                under.pop(name, None)
            elif under.get(name, _ABSENT) is not value:
                under[name] = value
        for container, items, _ in self.containers.values():
            if not same_items(contents(container), items):
                _put_back(container, items)


_WITHOUT_CONTENTS = frozenset((type(None), bool, int, float, complex, str, bytes, range, slice))
_SERIES = (list, tuple, set, frozenset, collections.deque)


class Elements:
    """A copy of an array, or of an element of a structured one; equal to one of the same bytes."""

    __slots__ = ("copy",)

    def __init__(self, x: Any) -> None:
        self.copy = x.copy()

    def __eq__(self, other: object) -> bool:
        return type(other) is Elements and bool(self.copy.tobytes() == other.copy.tobytes())

    __hash__ = None  # type: ignore[assignment]

    def put_back(self, x: Any) -> None:
        """Make an array hold them."""
        if isinstance(x, np.ndarray):
            np.copyto(x.view(np.ndarray), self.copy.view(np.ndarray))
        else:
            for name in x.dtype.names:
                x[name] = self.copy[name]


_COMPARED = frozenset((bool, int, str, bytes, Elements))


def is_container(x: Any) -> bool:
    """Can its contents change? Decided by the type, as proxies of containers claim to be one."""
    cls = type(x)
    if issubclass(cls, np.ndarray):
        return is_writeable(x) and x.nbytes <= MAX_ARRAY
    return issubclass(cls, CONTAINERS) or (issubclass(cls, np.void) and x.dtype.names is not None)


def _parts(x: Any, is_own: Callable[[Any], bool]) -> Iterator[Any]:
    """The objects that an object holds, as far as its type tells."""
    cls = type(x)
    series = next((t for t in _SERIES if issubclass(cls, t)), None)
    if issubclass(cls, dict):
        yield from dict.values(x)
    elif series is not None:
        yield from series.__iter__(x)
    elif issubclass(cls, np.ndarray) and x.dtype == object and x.nbytes <= MAX_ARRAY:
        yield from x.flat
    elif issubclass(cls, (classmethod, staticmethod)):
        yield x.__func__
    elif issubclass(cls, property):
        yield from (x.fget, x.fset, x.fdel)
    if is_own(cls):
        yield cls
        for base in cls.__mro__:
            for name, member in vars(base).items():
                if name == "__dict__" or isinstance(member, MemberDescriptorType):  # of `__slots__`
                    with contextlib.suppress(AttributeError, TypeError):
                        yield object.__getattribute__(x, name)


def _changed(cls: type, before: dict[str, Any]) -> list[str]:
    """The changed attributes of a class, except those that Python itself sets."""
    now = vars(cls)
    return [
        n
        for n in {**before, **now}
        if not n.startswith(("__", "_abc_")) and not _same(now.get(n, _ABSENT), before.get(n, _ABSENT))
    ]


def _cell_contents(cell: CellType) -> Any:
    """The contents of a cell; the cell itself if they were deleted."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def contents(container: Any) -> list[Any]:
    """What is compared of a container: its items by identity, keys in order; for a buffer or an array, its bytes."""
    if isinstance(container, _BUFFERS):
        return [bytes(container)]
    if isinstance(container, (np.ndarray, np.void)):
        return [Elements(container)]
    if isinstance(container, dict):
        keys = keys_of(container)
        return [*keys, *(dict.__getitem__(container, k) for k in keys)]
    return list(_built_in(container).__iter__(container))


def keys_of(x: dict[Any, Any]) -> list[Any]:
    """The keys in order, ignoring overridden methods of the user's class; an OrderedDict has its own order."""
    return list((collections.OrderedDict if isinstance(x, collections.OrderedDict) else dict).__iter__(x))


def _built_in(container: Any) -> Any:
    """The built-in class of a container."""
    return next(cls for cls in CONTAINERS if isinstance(container, cls))


def same_items(a: list[Any], b: list[Any]) -> bool:
    """Are these the same objects in the same order, or equal plain values?"""
    return len(a) == len(b) and all(map(_same, a, b))


def _same(a: Any, b: Any) -> bool:
    """Is it the same object, or an equal plain value?"""
    if a is b or type(a) is not type(b):
        return a is b
    if type(a) is float:
        return bool(a.hex() == b.hex())
    return type(a) in _COMPARED and bool(a == b)


def _put_back(container: Any, items: list[Any]) -> None:
    """Make a container hold what `contents` gave, by the methods of Python's own classes."""
    if isinstance(container, (np.ndarray, np.void)):
        items[0].put_back(container)
        return
    cls = _built_in(container)
    if cls is list:
        list.__setitem__(container, slice(None), items)
    elif cls is bytearray:
        container[:] = items[0]
    elif cls is array.array:
        container[:] = array.array(container.typecode, items[0])
    elif issubclass(cls, dict):
        cls.clear(container)
        for key, value in zip(items[: len(items) // 2], items[len(items) // 2 :], strict=True):
            cls.__setitem__(container, key, value)
    else:
        cls.clear(container)
        (set.update if cls is set else collections.deque.extend)(container, items)
