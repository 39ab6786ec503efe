"""Objects among the arguments of a case. They stay the same, and what they read is another at each call."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 200  # of a process
SOURCES = {
    "function": "def f(x):\n    return x * GAIN + 1\n",
    "nested": "def f(x):\n    return np.maximum(scaled(x), GAIN)\n\ndef scaled(x):\n    return x - GAIN\n",
    "absent": "def f(x):\n    try:\n        return x + OFFSET\n    except NameError:\n        return x * GAIN\n",
    "asked": "def f(x):\n    return x + OFFSET if 'OFFSET' in globals() else x * GAIN\n",
    "two": "def f(x, k=1):\n    return (x + k) * GAIN\n",
}


class Config:
    """What functions are configured by; its attributes come and go."""

    def scaled(self, x: Any) -> Any:
        """A method that reads one."""
        return x * getattr(self, "gain", 2)

    def __copy__(self) -> Config:
        return self  # all calls have the same one


class Partial(functools.partial[Any]):
    """A partial that all calls have."""

    def __copy__(self) -> Partial:
        return self


@functools.lru_cache(maxsize=MOST)
def _globals(seed: int, kind: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"np": np, "__name__": f"campaign_{kind}"}
    exec(compile(SOURCES[kind], f"<campaign {kind} {seed}>", "exec"), scope)
    return scope


_configs: Callable[[int], Config] = functools.lru_cache(maxsize=MOST)(lambda seed: Config())


@functools.lru_cache(maxsize=MOST)
def _partial(seed: int, k: int) -> Any:
    return Partial(_globals(seed, "two")["f"], k=k)


@functools.lru_cache(maxsize=MOST)
def _method(seed: int) -> types.MethodType:
    return _configs(seed).scaled


def function(seed: int, kind: str, gain: Any, offset: Any = None) -> Any:
    """A function, or a partial of one, whose module has these variables now."""
    found = _partial(seed, 3) if kind == "two" else _globals(seed, kind)["f"]
    _set(_globals(seed, kind), GAIN=gain, OFFSET=offset)
    return found


def config(seed: int, gain: Any = None, offset: Any = None) -> Config:
    """An object that has these attributes now."""
    found = _configs(seed)
    _set(found.__dict__, gain=gain, offset=offset)
    return found


def method(seed: int, gain: Any = None) -> Any:
    """A method of such an object."""
    config(seed, gain)
    return _method(seed)


def _set(names: dict[str, Any], **values: Any) -> None:
    """Some variables; None: there is none."""
    for name, value in values.items():
        if value is None:
            names.pop(name, None)
        else:
            names[name] = value
