"""Arrays that are not in the machine's byte order, as FITS files and network data have them.

They are copied into it at each call, which then goes its way with the copies. What the function changes is written
back; results have the byte orders that NumPy's have, which the first call, by the plain function, tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.call.arguments import each_once, is_swapped, key_of
from hjit.call.guards import overlap
from hjit.trace.capture.trace import PyTree, flatten, flatten_arguments
from hjit.trace.tracing.writeable import is_writeable

Array = np.ndarray[Any, Any]
_NUMBERS = (np.ndarray, np.generic, int, float, complex, str, bytes, type(None))


def native(x: Any) -> Any:
    """A copy in the machine's byte order of such an array, as writeable as it is; anything else as it is."""
    if not is_swapped(x):
        return x
    found = np.asarray(x).astype(x.dtype.newbyteorder("="))
    found.flags.writeable = is_writeable(x)
    return found


def native_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with copies in place of such arrays."""
    structure, leaves = flatten_arguments(args, kwargs)
    if not any(map(is_swapped, leaves)):
        return args, kwargs
    args, kwargs = structure.build(each_once(native, leaves).__getitem__)
    return args, kwargs


class ConvertedCalls:
    """Calls with arrays of some byte orders.

    Attributes:
        why: they cannot be converted, and NumPy runs; empty where they can. It is known after the first call.
    """

    def __init__(self, function: Any) -> None:
        """`function`: a `CompiledFunction`, which this module does not know."""
        self.why = ""
        self._function = function
        self._dtypes: list[np.dtype[Any] | None] = []  # of results that are not in the machine's order

    def __str__(self) -> str:
        back = ", and results back" if any(self._dtypes) else ""
        return f"Arrays that are not in the machine's byte order are copied into it at each call{back}"

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The plain function's result, which tells what later ones are."""
        _, leaves = flatten_arguments(args, kwargs)
        result = self._function.py_func(*args, **kwargs)
        found: list[Any] = []
        flatten(result, found)
        given = [x for x in leaves if is_swapped(x)]
        if not all(isinstance(x, _NUMBERS) for x in found):
            self.why = "the function has arrays of another byte order, and returns objects that may hold such"
        elif any(overlap(x, a) for x in found if isinstance(x, np.ndarray) for a in given if a is not x):
            self.why = "the function returns a view of an array that is not in the machine's byte order"
        self._dtypes = [x.dtype if is_swapped(x) else None for x in found]
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        structure, leaves = flatten_arguments(args, kwargs)
        copies = each_once(native, leaves)
        pairs = [(k, x, c) for k, (x, c) in enumerate(zip(leaves, copies, strict=True)) if c is not x]
        arrays = [x for x in leaves if isinstance(x, np.ndarray)]
        if any(x is not y and overlap(x, y) for _, x, _ in pairs for y in arrays):
            return self._function.py_func(*args, **kwargs)  # what is written to one is read in the other
        args, kwargs = structure.build(copies.__getitem__)
        key, before = key_of(args, kwargs), self._function.stats.fallbacks
        try:
            result = self._function._call(key, args, kwargs)
        finally:
            entry = self._function._entries.get(key) if self._function.stats.fallbacks == before else None
            _write_back(pairs, entry)
        if not any(self._dtypes):
            return result
        found: list[Any] = []
        tree = flatten(result, found)
        if len(found) != len(self._dtypes):  # another way through the function than the first call's
            return result
        given = {id(c): x for _, x, c in pairs}
        dtypes = {id(x): dtype for x, dtype in zip(found, self._dtypes, strict=True)}
        made = each_once(lambda x: given.get(id(x), _converted(x, dtypes[id(x)])), found)
        return tree.build(made.__getitem__) if isinstance(tree, PyTree) else made[tree]


def _converted(x: Any, dtype: np.dtype[Any] | None) -> Any:
    """A result in the byte order that NumPy's has."""
    if dtype is None or not isinstance(x, np.ndarray) or x.dtype != dtype.newbyteorder("="):
        return x
    made = x.astype(dtype)
    made.flags.writeable = is_writeable(x)
    return made


def _write_back(pairs: Sequence[tuple[int, Any, Any]], entry: Any) -> None:
    """What the function has changed of its arguments; `entry`: of kernels that have run, and know what they change."""
    written: set[int] | None = None
    if entry is not None and entry.plain is None and entry.parts is None and entry.variants:
        guards = [v.guards for v in entry.variants]
        written = {g.arguments[name] for g in guards for name in g.written if name in g.arguments}
    for k, x, c in pairs:
        if not is_writeable(x) or (written is not None and k not in written):
            continue
        if written is not None or _differ(x, c):
            x[...] = c


def _differ(x: Array, copy: Array) -> bool:
    """Do an array and a copy in the other byte order differ in any bit?"""
    if x.dtype.kind == "c":
        return _differ(x.real, copy.real) or _differ(x.imag, copy.imag)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return bool((x.view(unsigned.newbyteorder("S")) != copy.view(unsigned)).any())
