"""The arguments of a call: what of them a kernel depends on, what they are named, and copies of them."""

from __future__ import annotations

import enum
import inspect
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.options import context_state
from hjit.trace.capture.trace import PyTree
from hjit.trace.tracing.scalars.host import is_run_time
from hjit.trace.tracing.writeable import is_writeable

CallKey = tuple[Any, ...]  # the options in force, and the signatures of the arguments
_NUMBERS = frozenset({int, float, complex})
MANY_ELEMENTS = 1 << 14  # of an array, from which on NumPy's time depends on strides more than on the call
_BY_VALUE = (str, bytes, type(None), bool, enum.Enum, np.dtype, type, types.FunctionType, range)


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:
    """The options in force, and what of the arguments a kernel depends on."""
    signatures = [*map(_signature, args)]
    if types.FunctionType in map(type, args):
        _take_code(args, signatures)
    if kwargs:
        return (context_state(), *signatures, None, *[(k, _signature(v)) for k, v in kwargs.items()])
    return (context_state(), *signatures)


def _signature(x: Any) -> Any:
    """The properties of an argument that a kernel is specialised to: a hashable value."""
    t = type(x)
    if t is np.ndarray:
        return (x.dtype, x.shape, x.strides)
    if t in _NUMBERS:
        return t
    if t.__name__ == "ndarray" and t.__module__ == "cupy":
        return (t, x.dtype, x.shape, x.strides, x.data.device_id)
    if t in (list, tuple):
        return (t, *map(_signature, x))
    if t in (dict, OrderedDict):
        return (t, *((k, type(k), _signature(v)) for k, v in x.items()))  # 1 and 1.0 are equal
    if isinstance(x, np.void):
        return (t, x.dtype, x.tobytes())
    if isinstance(x, np.generic):
        return t if is_run_time(x) else (t, repr(x))
    if t is np.memmap:
        return (t, x.dtype, x.shape, x.strides)
    if t is slice:
        return (t, *map(_part, (x.start, x.stop, x.step)))
    if isinstance(x, tuple) and hasattr(t, "_fields"):
        return (t, *map(_signature, x))
    if isinstance(x, types.MethodType):
        return (t, _Identity(x.__self__), x.__func__)
    if is_device_array(x):
        return _device_signature(x)
    if isinstance(x, frozenset):  # equal ones may have other types of numbers, and another order
        return (t, x, repr(x))
    return (t, x) if isinstance(x, _BY_VALUE) and t.__hash__ is not None else (t, _Identity(x))


def recogniser(args: tuple[Any, ...]) -> Callable[..., bool] | None:
    """What tells whether as many positional arguments have the key of these: faster than their key is made.

    Of some that have it, it may say no; of small arrays it does not ask strides. None: there is none for these.
    """
    known: dict[str, Any] = {"context": context_state, "context_now": context_state(), "ndarray": np.ndarray}
    tests = ["context() is context_now"]
    for k, x in enumerate(args):
        if type(x) is np.ndarray:
            known |= {f"dtype{k}": x.dtype, f"shape{k}": x.shape, f"strides{k}": x.strides}
            has_shape = f"x{k}.ndim == 1 and len(x{k}) == {len(x)}" if x.ndim == 1 else f"x{k}.shape == shape{k}"
            tests += [f"type(x{k}) is ndarray", f"x{k}.dtype is dtype{k}", has_shape]  # the cheapest first
            if x.size >= MANY_ELEMENTS:
                tests.append(f"x{k}.strides == strides{k}")
        elif type(x) in _NUMBERS:
            known[f"type{k}"] = type(x)
            tests.append(f"type(x{k}) is type{k}")
        elif x is None or type(x) is bool:
            known[f"value{k}"] = x
            tests.append(f"x{k} is value{k}")
        else:
            return None
    names = ", ".join(f"x{k}" for k in range(len(args)))
    found: Callable[..., bool] = eval(f"lambda {names}: {' and '.join(tests)}", known)
    return found


def is_dask_array(x: Any) -> bool:
    """Is it an array of Dask? Where Dask is not loaded, there are none."""
    loaded = sys.modules.get("dask.array.core")
    return loaded is not None and isinstance(x, loaded.Array)


def is_swapped(x: Any) -> bool:
    """Is it an array of numbers in another byte order than the machine's?"""
    return type(x) in (np.ndarray, np.memmap) and not x.dtype.isnative and x.dtype.kind in "iufc"


# -- arrays on a GPU

_CUDA_DLPACK = (2, 13)  # kDLCUDA, kDLCUDAManaged
_HOST = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None), list, tuple, dict, slice)


def is_device_array(x: Any) -> bool:
    """Is it an array on a GPU: CuPy's, or another package's that says so?"""
    if isinstance(x, _HOST):
        return False
    if type(x).__module__ == "cupy":
        return hasattr(x, "strides")
    if hasattr(type(x), "__cuda_array_interface__"):
        return hasattr(x, "__cuda_array_interface__")  # a tensor of PyTorch has it if it is on a GPU
    return hasattr(type(x), "__dlpack_device__") and x.__dlpack_device__()[0] in _CUDA_DLPACK


def _device_signature(x: Any) -> Any:
    """The signature of an array on a GPU; the device is part of it, as code is loaded on each."""
    t = type(x)
    if t.__module__ == "cupy":
        return (t, x.dtype, x.shape, x.strides, x.data.device_id)
    about = getattr(x, "__cuda_array_interface__", None)
    if about is None:
        return (t, str(x.dtype), tuple(x.shape), getattr(x, "strides", None), x.__dlpack_device__())
    return (t, about["typestr"], about["shape"], about.get("strides"), str(getattr(x, "device", None)))


def device_overlap(a: Any, b: Any) -> bool:
    """May two arrays share memory, one of them on a GPU? Where their ranges of addresses meet."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    (p, q), (r, s) = _addresses(a), _addresses(b)
    return p < s and r < q


def _addresses(a: Any) -> tuple[int, int]:
    about = a.__cuda_array_interface__
    first, shape, item = about["data"][0], about["shape"], np.dtype(about["typestr"]).itemsize
    if 0 in shape:
        return first, first
    steps = [(n - 1) * s for n, s in zip(shape, a.strides, strict=True)]
    return first + sum(min(s, 0) for s in steps), first + sum(max(s, 0) for s in steps) + item


def _part(x: Any) -> Any:
    """A part of a slice: its value is part of the key."""
    return (type(x), x) if x is None or type(x) is int else _Identity(x)


def _take_code(args: tuple[Any, ...], signatures: list[Any]) -> None:
    """Have the code stand for a function that is nothing but code and globals: all that one lambda expression makes are
    alike then, and a caller that has it inside makes another one at each call. Of several, one may be the other."""
    places = [k for k, x in enumerate(args) if type(x) is types.FunctionType]
    f: Any = args[places[0]]
    holds_nothing = not (f.__closure__ or f.__defaults__ or f.__kwdefaults__ or f.__dict__)
    if holds_nothing and all(args[k] is f for k in places):
        for k in places:
            signatures[k] = (types.FunctionType, _Identity(f.__code__), _Identity(f.__globals__))


class _Identity:
    """An object as itself in a key; the key does not keep it alive."""

    __slots__ = ("number", "ref")

    def __init__(self, x: Any) -> None:
        self.number = id(x)
        try:
            self.ref: Any = weakref.ref(x)
        except TypeError:
            self.ref = lambda: x

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.ref() is not None and self.ref() is other.ref()


def each_once(copy: Callable[[Any], Any], leaves: Sequence[Any]) -> list[Any]:
    """Copies of arguments; of what was passed twice there is one copy."""
    made: dict[int, Any] = {}  # by identity: arrays cannot be keys
    for x in leaves:
        if id(x) not in made:
            made[id(x)] = copy(x)
    return [made[id(x)] for x in leaves]


def each_apart(leaves: Sequence[Any]) -> list[Any]:
    """The arguments; of an array that was passed twice there are copies."""
    seen: set[int] = set()
    found = []
    for x in leaves:
        found.append(copied(x) if id(x) in seen else x)
        seen.add(id(x))
    return found


def leaf_names(function: Callable[..., Any], structure: PyTree, count: int) -> list[str]:
    """A name for each leaf of the arguments: its parameter's."""
    names = ["arg"] * count
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []

    def mark(x: Any, name: str) -> None:
        if isinstance(x, PyTree):
            for y in x.items:
                mark(y, name)
        else:
            names[x] = name

    args, kwargs = structure.items
    for k, x in enumerate(args.items):
        mark(x, parameters[k] if k < len(parameters) else "arg")
    for name, x in zip(kwargs.keys or (), kwargs.items, strict=True):
        mark(x, name)
    return names


def copied(x: Any) -> Any:
    """A copy of an array with its strides, as writeable as it is; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if type(x) is np.ndarray and x.size and not x.dtype.hasobject:
        low, high = np.lib.array_utils.byte_bounds(x)
        memory = np.empty(high - low, np.uint8)
        found: Any = np.ndarray(x.shape, x.dtype, memory, x.__array_interface__["data"][0] - low, x.strides)
        np.copyto(found, x)
    else:
        found = x.copy()
    found.flags.writeable = is_writeable(x)
    return found


def is_same_memory(a: np.ndarray[Any, Any], b: Any) -> bool:
    """Are two arrays of one shape the same elements?"""
    return (
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and a.strides == b.strides
        and a.ctypes.data == b.ctypes.data
    )


def leaves_of(x: Any) -> list[Any]:
    """What lists, tuples and dicts hold, in their order."""
    if isinstance(x, (list, tuple)):
        return [leaf for y in x for leaf in leaves_of(y)]
    if isinstance(x, dict):
        return [leaf for y in x.values() for leaf in leaves_of(y)]
    return [x]
