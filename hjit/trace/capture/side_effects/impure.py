"""Impure functions, which run at every call or are refused: random numbers, the clock, input and output.

Random numbers of NumPy and of Python's `random` are drawn at every call, from the stream that the function names.
Everything else whose result changes from call to call is refused, because a trace would freeze it.
"""

from __future__ import annotations

import datetime
import functools
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.splitting.frame_inspection import FRAME_READERS
from hjit.trace.tracing.arrays.traced import Traced
from hjit.trace.tracing.arrays.tracer import has_tracer
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import known_number, static_value

_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time", "localtime", "gmtime", "sleep")
CLOCKS = frozenset(n + unit for n in _CLOCKS for unit in ("", "_ns") if hasattr(time, n + unit))
TODAY = frozenset(("now", "utcnow", "today"))
FILES = (np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.memmap)
# Functions of modules that few processes load: of OpenCV those that read and write files, show windows and draw numbers
IMPURE = {
    "cv2": """imread imreadmulti imwrite imwritemulti imshow waitKey getTickCount getCPUTickCount randu randn
    randShuffle setRNGSeed""".split(),
    "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe".split(),
    "uuid": "uuid1 uuid4 uuid6 uuid7 uuid8".split(),
}
READS_OR_WRITES = "the function reads or writes while it computes: it would do so once, not at every call"
_IN_PLACE, _PERMUTE = "it changes its argument in place", "use permutation() and assign the result"
_DRAW_OUTSIDE = "draw the number outside the function and pass it as an argument"
NUMPY_GENERATORS = (np.random.RandomState, np.random.Generator)
GENERATORS = (*NUMPY_GENERATORS, random.Random)
_SHARED: Any = np.random.mtrand._rand  # the stream of numpy.random's own functions
IN_PLACE = frozenset({"shuffle"})  # draws that change an array that they are given
# methods of `random.Random` that give a number; others give objects of the caller's, or change a list
_PYTHON_NUMBERS = frozenset(
    """random uniform triangular randint randrange gauss normalvariate lognormvariate expovariate vonmisesvariate
    gammavariate betavariate paretovariate weibullvariate""".split()
)


def refused(
    name: str, reason: str = "its result changes from call to call", advice: str = "pass it as an argument"
) -> Callable[..., Any]:
    """A replacement for a function that cannot be traced.

    Raises:
        TraceError: it is called.
    """

    def method(*args: Any, **kwargs: Any) -> Any:
        raise current().error(name, reason, advice)

    return method


def sees_frames(name: str) -> Callable[..., Any]:
    """A replacement for one of `FRAME_READERS`: the frames of a trace differ, and each call has its own callers."""
    return refused(name, "it sees frames of its callers, which differ from call to call", "ask outside the function")


class ThreadClass:
    """A replacement for a class of threads, whose work cannot be traced: making one is refused."""

    def __init__(self, cls: type[threading.Thread]) -> None:
        self.cls = cls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        advice = "let threads call decorated functions, or compute with whole arrays: compiled code runs in parallel"
        raise current().error(f"{self.cls.__module__}.{self.cls.__name__}", "its work cannot be traced", advice)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.cls)


class _Clock:
    """A replacement for `datetime.datetime` or `datetime.date`, without the current time."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __getattr__(self, name: str) -> Any:
        if name in TODAY:
            return refused(f"{self.cls.__module__}.{self.cls.__name__}.{name}")
        return getattr(self.cls, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.cls(*args, **kwargs)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.cls)


def default_rng(seed: Any = None) -> Any:
    """A generator of the function's own: the same numbers at every call, so it needs a seed."""
    if type(seed) is GeneratorProxy:
        return seed
    if seed is None:
        raise current().error(
            "numpy.random.default_rng()",
            "without a seed it differs from call to call",
            "make the generator outside the function",
        )
    return OwnGenerator(np.random.default_rng(static_value(seed)).bit_generator)


class OwnGenerator(np.random.Generator):
    """A generator that the function makes: its numbers are the same at every call, but it cannot draw from traced
    arrays."""

    def shuffle(self, x: Any, axis: int = 0) -> None:
        _shuffle(super().shuffle, x, axis)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return super().permutation(static_value(known_number(x)), axis)

    def choice(self, a: Any, *args: Any, **kwargs: Any) -> Any:
        return super().choice(static_value(known_number(a)), *args, **kwargs)


class OwnRandomState(np.random.RandomState):
    """As `OwnGenerator`."""

    def shuffle(self, x: Any) -> None:
        _shuffle(super().shuffle, x)

    def permutation(self, x: Any) -> Any:
        return super().permutation(static_value(known_number(x)))

    def choice(self, a: Any, *args: Any, **kwargs: Any) -> Any:
        return super().choice(static_value(known_number(a)), *args, **kwargs)


def _shuffle(function: Callable[..., Any], x: Any, *axis: Any) -> None:
    """Shuffles a list, or a traced array whose contents are known; NumPy would swap views of rows.

    Raises:
        TraceError: it is another traced array.
    """
    if not issubclass(type(x), Traced):
        function(x, *axis)
        return
    if getattr(x, "known", None) is None:
        refused("numpy.random.shuffle", _IN_PLACE, _PERMUTE)()
    contents = x.known.copy()
    function(contents, *axis)
    x[...] = contents


def _seeded(cls: type, made: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A class of NumPy's generators where it is called: it needs a seed.

    Raises:
        TraceError: it is called without one.
    """

    def construct(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if not given or given[0] is None:
            reason, advice = "without a seed it differs from call to call", "make the generator outside the function"
            raise current().error(f"numpy.random.{cls.__name__}()", reason, advice)
        return (made or cls)(*map(static_value, args), **{k: static_value(x) for k, x in kwargs.items()})

    return construct


_SEEDED = "PCG64 PCG64DXSM MT19937 Philox SFC64 SeedSequence".split()
# classes of NumPy's generators, and what stands for them where they are called
GENERATOR_CLASSES: dict[type, Callable[..., Any]] = {
    **{cls: _seeded(cls) for cls in (getattr(np.random, name) for name in _SEEDED)},
    np.random.RandomState: _seeded(np.random.RandomState, OwnRandomState),
    np.random.Generator: _seeded(np.random.Generator, OwnGenerator),
}


class GeneratorProxy:
    """A random-number generator from outside the function: its draws are made at every call."""

    __slots__ = ("_hjit_stream",)

    def __init__(self, stream: Any) -> None:
        object.__setattr__(self, "_hjit_stream", stream)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_hjit_stream"))

    def __getattribute__(self, name: str) -> Any:
        stream = object.__getattribute__(self, "_hjit_stream")
        if name == "__class__":
            return type(stream)
        found = getattr(stream, name)
        is_draw = callable(found) and name != "spawn"
        return draw(found, stream) if is_draw else refused(f"{type(stream).__name__}.{name}")()


def draw(function: Any, stream: Any, module: str = "numpy.random") -> Callable[..., Any]:
    """A function that draws from a stream at every call; if the trace fails, the stream is rewound."""
    name = f"{module}.{function.__name__}"

    @functools.wraps(function)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        if function.__name__ in IN_PLACE and has_tracer(args):
            return refused(name, _IN_PLACE, _PERMUTE)()
        return extern_call(name, function, args, kwargs, checkpoint=functools.partial(_rewind, stream))

    return drawn


def _rewind(stream: Any) -> Callable[[], None]:
    """Returns a function that rewinds a stream to its current position."""
    if isinstance(stream, random.Random):
        return functools.partial(stream.setstate, stream.getstate())
    if isinstance(stream, np.random.RandomState):
        return functools.partial(stream.set_state, stream.get_state(legacy=False))
    return functools.partial(setattr, stream.bit_generator, "state", stream.bit_generator.state)


def is_generator_method(value: Any) -> bool:
    """Is this a method of a NumPy stream, such as `numpy.random.rand`?"""
    return isinstance(getattr(value, "__self__", None), NUMPY_GENERATORS)


class _Generator:
    """`random.Random` or `random.SystemRandom`: the same numbers at every call, so it needs a seed."""

    def __init__(self, cls: type[random.Random]) -> None:
        self.cls = cls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __call__(self, x: Any = None) -> Any:
        if x is None or self.cls is random.SystemRandom:
            reason = "without a seed it differs from call to call"
            raise current().error(f"random.{self.cls.__name__}()", reason, "make it outside the function")
        return self.cls(static_value(x))

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.cls)


def python_draw(generator: random.Random, name: str) -> Callable[..., Any]:
    """A method of a `random.Random` from outside the function: a number is drawn at every call."""
    is_stream = name in _PYTHON_NUMBERS and not isinstance(generator, random.SystemRandom)
    return (
        draw(getattr(generator, name), generator, "random")
        if is_stream
        else refused(f"random.{name}", advice=_DRAW_OUTSIDE)
    )


class PythonRandomProxy:
    """A `random.Random` from outside the function."""

    __slots__ = ("_hjit_generator",)

    def __init__(self, generator: random.Random) -> None:
        object.__setattr__(self, "_hjit_generator", generator)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_hjit_generator"))

    def __getattribute__(self, name: str) -> Any:
        generator = object.__getattribute__(self, "_hjit_generator")
        return type(generator) if name == "__class__" else python_draw(generator, name)


def of_loaded_modules() -> dict[Any, Any]:
    """Functions of `IMPURE`, with their replacements."""
    modules = ((module, sys.modules[module], names) for module, names in IMPURE.items() if module in sys.modules)
    return {
        getattr(module, name): refused(f"{where}.{name}", advice="call it outside the function")
        for where, module, names in modules
        for name in names
        if hasattr(module, name)
    }


def replaced() -> dict[Any, Any]:
    """Impure functions and classes of the standard library and NumPy, with their replacements."""
    found: dict[Any, Any] = {np.random.default_rng: default_rng}
    function: Any
    for function in (np.random.seed, np.random.sample, np.random.ranf):
        found[function] = draw(function, _SHARED)
    printing = "the function prints while it computes: it would print once, not at every call"
    found[print] = refused("print", printing, "print outside the function")
    for builtin in (open, input):
        found[builtin] = refused(builtin.__name__)
    found[os.urandom] = refused("os.urandom")
    for where, function in FRAME_READERS.items():
        found[function] = sees_frames(where)
    for function in FILES:
        found[function] = refused(
            f"numpy.{function.__name__}", advice="read it outside the function and pass it as an argument"
        )
    for name in CLOCKS:
        found[getattr(time, name)] = refused(f"time.{name}")
    for cls in (datetime.datetime, datetime.date):
        found[cls] = _Clock(cls)
    for kind in (random.Random, random.SystemRandom):
        found[kind] = _Generator(kind)
    for name in random.__all__:
        if isinstance(getattr(getattr(random, name), "__self__", None), random.Random):
            found[getattr(random, name)] = python_draw(getattr(random, name).__self__, name)
    return found
